// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podresources serves the node's PodResources API (KEP-606), which tells agents that monitor devices which
// pod uses which: the devices of plugins and of ResourceClaims (KEP-3695), and the CPUs and memory that the node assigned
// to single containers. Of the older version v1alpha1, which upstream still serves, it has all: the devices of plugins.
package podresources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	alpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// The limits of requests for all clients together, upstream's.
const (
	requestsPerSecond = 100
	requestsAtOnce    = 10
)

// resetAfter is the time without a failure after which the backoff begins again.
const resetAfter = 2 * time.Minute

var backoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: time.Minute}

// Server implements the API.
type Server struct {
	api.UnimplementedPodResourcesListerServer
	// Lookup finds pods.
	Lookup pod.Lookup
	// Claims returns the devices of a container's claims.
	Claims func(p *v1.Pod, container *v1.Container) []*api.DynamicResource
	// Resources returns what else a container has, and Allocatable what containers can get.
	Resources   func(uid types.UID, container string) *api.ContainerResources
	Allocatable func() *api.AllocatableResourcesResponse
	// Requested is called, if set, after each request to a method of a version of the API ("v1", "List").
	Requested func(version, method string, err error)
	// Clock times the backoff of Run.
	Clock clock.Clock
}

// Run serves the API at a socket until ctx ends. After a failure it tries again.
func (s *Server) Run(ctx context.Context, socket string) {
	delay := backoff.DelayWithReset(s.Clock, resetAfter)
	logged := ""
	for {
		err := s.Serve(ctx, socket)
		if ctx.Err() != nil {
			return
		}
		if text := fmt.Sprint(err); text != logged {
			klog.FromContext(ctx).Error(err, "The PodResources API is not served on this node; retrying")
			logged = text
		}
		select {
		case <-ctx.Done():
			return
		case <-s.Clock.After(delay()):
		}
	}
}

// Serve serves the API at a socket until ctx ends. It replaces what an earlier process left there.
func (s *Server) Serve(ctx context.Context, socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(
		limit(flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, requestsAtOnce)), s.count))
	api.RegisterPodResourcesListerServer(server, s)
	alpha.RegisterPodResourcesListerServer(server, &alphaServer{server: s})
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(listener)
}

func limit(limiter flowcontrol.PassiveRateLimiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if !limiter.TryAccept() {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return handle(ctx, request)
	}
}

// count reports requests that the rate limit accepts. The full name of a method is like /v1.PodResourcesLister/List.
func (s *Server) count(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	response, err := handle(ctx, request)
	if s.Requested != nil {
		service, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
		version, _, _ := strings.Cut(service, ".")
		s.Requested(version, method, err)
	}
	return response, err
}

// List implements the API. It omits pods that are over.
func (s *Server) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	response := &api.ListPodResourcesResponse{}
	for _, p := range s.Lookup.Pods() {
		if !pod.IsOver(p.Status.Phase) {
			response.PodResources = append(response.PodResources, s.resources(p))
		}
	}
	return response, nil
}

// Get implements the API.
func (s *Server) Get(_ context.Context, r *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	p, found := s.Lookup.Pod(r.PodNamespace, r.PodName, "")
	if !found {
		return nil, fmt.Errorf("pod %s in namespace %s not found", r.PodName, r.PodNamespace)
	}
	return &api.GetPodResourcesResponse{PodResources: s.resources(p)}, nil
}

// GetAllocatableResources implements the API. ResourceSlices have the devices of drivers, and are
// not repeated here.
func (s *Server) GetAllocatableResources(context.Context, *api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	return s.Allocatable(), nil
}

// resources returns what a pod's sidecars and app containers have.
func (s *Server) resources(p *v1.Pod) *api.PodResources {
	r := &api.PodResources{Name: p.Name, Namespace: p.Namespace}
	add := func(c *v1.Container) {
		has := s.Resources(p.UID, c.Name)
		has.DynamicResources = s.Claims(p, c)
		r.Containers = append(r.Containers, has)
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; pod.IsSidecar(c) {
			add(c)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	return r
}
