// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package served says what the API server serves today. A RESTMapper remembers versions
// that were withdrawn, and kinds whose CRD is gone; discovery does not.
package served

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Resource is a resource in the version that the server prefers.
type Resource struct {
	schema.GroupVersionResource
	Kind       schema.GroupVersionKind
	Namespaced bool
	Verbs      []string
}

// Can says whether the resource can do all of what is wanted.
func (r Resource) Can(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(verb string) bool { return !slices.Contains(r.Verbs, verb) })
}

// LookUp asks the server for a resource; nil if it does not serve it, by its plural name
// and in any version.
func LookUp(server discovery.DiscoveryInterface, wanted schema.GroupResource) (*Resource, error) {
	groups, err := server.ServerGroups()
	if err != nil {
		return nil, err
	}
	for _, group := range groups.Groups {
		if group.Name != wanted.Group {
			continue
		}
		for _, version := range group.Versions {
			found, err := find(server, wanted.WithVersion(version.Version))
			if err != nil || found != nil {
				return found, err
			}
		}
	}
	return nil, nil
}

// find is nil if the version does not have the resource.
func find(server discovery.DiscoveryInterface, wanted schema.GroupVersionResource) (*Resource, error) {
	version := wanted.GroupVersion()
	list, err := server.ServerResourcesForGroupVersion(version.String())
	if apierrors.IsNotFound(err) {
		return nil, nil // withdrawn since the group was asked for
	}
	if err != nil {
		return nil, err
	}
	for _, known := range list.APIResources {
		if known.Name == wanted.Resource {
			return &Resource{wanted, version.WithKind(known.Kind), known.Namespaced, known.Verbs}, nil
		}
	}
	return nil, nil
}
