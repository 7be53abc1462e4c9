// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podresources serves the node's PodResources API (KEP-606), which tells agents that monitor devices which
// pod uses which: the devices of plugins and of ResourceClaims (KEP-3695), and the CPUs and memory that the node assigned
// to single containers. Of the older version v1alpha1, which upstream still serves, it has all: the devices of plugins.
package podresources

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	alpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/localgrpc"
	"github.com/kindred-project/kindred/internal/node/pod"
)

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
	server := &localgrpc.Server{Name: "PodResources", Register: s.register, Requested: s.Requested, Clock: s.Clock}
	server.Run(ctx, socket)
}

func (s *Server) register(r grpc.ServiceRegistrar) {
	api.RegisterPodResourcesListerServer(r, s)
	alpha.RegisterPodResourcesListerServer(r, &alphaServer{server: s})
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
