// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package served looks up resources by discovery. A RESTMapper would also return removed
// versions, and kinds whose CRD was deleted.
package served

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Resource is a served resource, in the version that the server prefers.
type Resource struct {
	schema.GroupVersionResource
	Kind       schema.GroupVersionKind
	Namespaced bool
	Verbs      []string
}

// Can reports whether the resource supports all of the verbs.
func (r Resource) Can(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(verb string) bool { return !slices.Contains(r.Verbs, verb) })
}

// LookUp returns a resource by its plural name, or nil if the server serves it in no
// version.
func LookUp(server discovery.DiscoveryInterface, resource schema.GroupResource) (*Resource, error) {
	groups, err := server.ServerGroups()
	if err != nil {
		return nil, err
	}
	for _, group := range groups.Groups {
		if group.Name != resource.Group {
			continue
		}
		for _, version := range group.Versions {
			found, err := find(server, resource.WithVersion(version.Version))
			if err != nil || found != nil {
				return found, err
			}
		}
	}
	return nil, nil
}

// find returns nil if the version does not have the resource.
func find(server discovery.DiscoveryInterface, resource schema.GroupVersionResource) (*Resource, error) {
	version := resource.GroupVersion()
	list, err := server.ServerResourcesForGroupVersion(version.String())
	if apierrors.IsNotFound(err) {
		return nil, nil // removed since the group was read
	}
	if err != nil {
		return nil, err
	}
	for _, r := range list.APIResources {
		if r.Name == resource.Resource {
			return &Resource{resource, version.WithKind(r.Kind), r.Namespaced, r.Verbs}, nil
		}
	}
	return nil, nil
}
