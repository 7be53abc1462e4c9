// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/review"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// ownershipGroup returns the API group ownership.kindred.dev: reviews of the garbage collector's
// graph, repairs and undeletions.
func (s *Server) ownershipGroup(reviews *review.Reviews, a authorizer.Authorizer) generic.Group {
	policy := review.Policy{Authorizer: a, Orphans: s.orphans}
	return generic.Group{
		Name: ownership.GroupName,
		// After all groups of Kubernetes, so that their short names have precedence.
		Priority: 1000,
		Scheme:   []func(*runtime.Scheme) error{ownership.AddToScheme},
		Versions: []generic.Version{{Name: ownership.SchemeGroupVersion.Version, Resources: []generic.Resource{
			generic.Transient{Plural: "deletionpreviews", Endpoint: reviews.DeletionPreviews(policy)},
			generic.Transient{Plural: "ownershipexplanations", Endpoint: reviews.OwnershipExplanations(policy)},
			generic.Transient{Plural: "ownershiptrees", Endpoint: reviews.OwnershipTrees(policy)},
			generic.Transient{Plural: "ownershiplints", Endpoint: reviews.OwnershipLints(policy)},
			generic.Transient{Plural: "ownershiprepairs", Endpoint: reviews.OwnershipRepairs(policy)},
			generic.Transient{Plural: "undeletions", Endpoint: reviews.Undeletions(policy)},
			generic.Transient{Plural: "deletionhistories", Endpoint: reviews.DeletionHistories(policy)},
		}}},
	}
}

// orphans reports whether deleting objects of a resource orphans their dependents by default.
func (s *Server) orphans(resource schema.GroupVersionResource) bool {
	stored, ok := s.version(resource.GroupVersion())
	if ok && !stored.As.Empty() {
		stored, ok = s.version(stored.As)
	}
	return ok && stored.Orphans(resource)
}

// version returns the description of a built-in version.
func (s *Server) version(gv schema.GroupVersion) (generic.Version, bool) {
	for _, group := range s.groups {
		if group.Name != gv.Group {
			continue
		}
		for _, version := range group.Versions {
			if version.Name == gv.Version {
				return version, true
			}
		}
	}
	return generic.Version{}, false
}
