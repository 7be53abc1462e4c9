// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podsapi serves the node's Pods API (KEP-4188): clients on the node list, get and watch its pods, with the statuses
// that the agent knows, without the API server. The errors and the order of events are those of pkg/kubelet/apis/pods.
package podsapi

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/localgrpc"
)

// Source has the pods of the node.
type Source interface {
	// VerifiedPods returns all pods. Callers do not change them.
	VerifiedPods() []*v1.Pod
	// VerifiedPod returns the pod with a UID.
	VerifiedPod(uid types.UID) (*v1.Pod, bool)
}

// Server implements the API. It implements pod.Watcher, through which watches get their events.
type Server struct {
	api.UnimplementedPodsServer
	// Source has the pods. A change is in it before PodChanged or PodEnded is called.
	Source Source
	// Ready reports whether Source has all pods. Before, requests fail.
	Ready func() bool
	// Requested is called, if set, after each request to a method of a version of the API ("v1alpha1", "ListPods").
	Requested func(version, method string, err error)
	// Dropped is called, if set, for each event that a watch does not get.
	Dropped func()
	// Clock times the retries of Run.
	Clock clock.Clock

	watches watches
}

// Run serves the API at a socket until ctx ends. After a failure it tries again.
func (s *Server) Run(ctx context.Context, socket string) {
	server := &localgrpc.Server{
		Name: "Pods", Requested: s.Requested, Clock: s.Clock,
		Register: func(r grpc.ServiceRegistrar) { api.RegisterPodsServer(r, s) },
	}
	server.Run(ctx, socket)
}

// checkReady returns an error until all pods are known: a shorter list would look as if pods were gone.
func (s *Server) checkReady() error {
	if !s.Ready() {
		return status.Error(codes.FailedPrecondition, "Kubelet is initializing")
	}
	return nil
}

// sorted returns all pods in the order of their UIDs.
func (s *Server) sorted() []*v1.Pod {
	pods := s.Source.VerifiedPods()
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return pods
}

// ListPods implements the API.
func (s *Server) ListPods(context.Context, *api.ListPodsRequest) (*api.ListPodsResponse, error) {
	if err := s.checkReady(); err != nil {
		return nil, err
	}
	response := &api.ListPodsResponse{}
	for _, p := range s.sorted() {
		encoded, err := encode(p)
		if err != nil {
			return nil, err
		}
		response.Pods = append(response.Pods, encoded)
	}
	return response, nil
}

// GetPod implements the API.
func (s *Server) GetPod(_ context.Context, r *api.GetPodRequest) (*api.GetPodResponse, error) {
	if err := s.checkReady(); err != nil {
		return nil, err
	}
	p, found := s.Source.VerifiedPod(types.UID(r.PodUID))
	if !found {
		return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", r.PodUID)
	}
	encoded, err := encode(p)
	if err != nil {
		return nil, err
	}
	return &api.GetPodResponse{Pod: encoded}, nil
}

// WatchPods implements the API.
func (s *Server) WatchPods(_ *api.WatchPodsRequest, stream grpc.ServerStreamingServer[api.WatchPodsEvent]) error {
	if err := s.checkReady(); err != nil {
		return err
	}
	w, pods := s.watches.open(s.sorted)
	defer s.watches.close(w)
	c := client{stream: stream, known: map[types.UID]types.NamespacedName{}, dropped: s.dropped}
	for _, p := range pods {
		if err := c.send(event{uid: p.UID, pod: p}); err != nil {
			return err
		}
	}
	if err := stream.Send(&api.WatchPodsEvent{Type: api.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case e, open := <-w.events:
			if !open {
				return status.Error(codes.ResourceExhausted, "watch client channel closed")
			}
			if err := c.send(e); err != nil {
				return err
			}
		}
	}
}

func (s *Server) dropped() {
	if s.Dropped != nil {
		s.Dropped()
	}
}

func encode(p *v1.Pod) ([]byte, error) {
	encoded, err := p.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "failed to marshal pod: %v", err)
	}
	return encoded, nil
}
