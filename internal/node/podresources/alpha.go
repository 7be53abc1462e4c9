// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"

	alpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// alphaServer implements v1alpha1 of the API.
type alphaServer struct {
	alpha.UnimplementedPodResourcesListerServer
	server *Server
}

// List implements the API: app containers and their devices of plugins.
func (a *alphaServer) List(context.Context, *alpha.ListPodResourcesRequest) (*alpha.ListPodResourcesResponse, error) {
	response := &alpha.ListPodResourcesResponse{}
	for _, p := range a.server.Lookup.Pods() {
		r := &alpha.PodResources{Name: p.Name, Namespace: p.Namespace}
		for _, c := range p.Spec.Containers {
			has := &alpha.ContainerResources{Name: c.Name}
			for _, d := range a.server.Resources(p.UID, c.Name).Devices {
				has.Devices = append(has.Devices, &alpha.ContainerDevices{ResourceName: d.ResourceName, DeviceIds: d.DeviceIds})
			}
			r.Containers = append(r.Containers, has)
		}
		response.PodResources = append(response.PodResources, r)
	}
	return response, nil
}
