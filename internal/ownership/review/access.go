// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// access checks what the caller may do. It caches access to all objects of a resource in a
// namespace.
type access struct {
	authorizer authorizer.Authorizer
	caller     user.Info
	whole      map[placeVerb]bool
}

type placeVerb struct {
	place
	verb string
}

// place is a resource in a namespace.
type place struct {
	graph.Resource
	namespace string
}

func newAccess(a authorizer.Authorizer, caller user.Info) *access {
	return &access{authorizer: a, caller: caller, whole: map[placeVerb]bool{}}
}

// mayGet reports whether the caller may get an object.
func (a *access) mayGet(ctx context.Context, r graph.Resource, namespace, name string) bool {
	return a.may(ctx, "get", r, namespace, name)
}

// mayDelete reports whether the caller may delete an object.
func (a *access) mayDelete(ctx context.Context, r graph.Resource, namespace, name string) bool {
	return a.may(ctx, "delete", r, namespace, name)
}

func (a *access) may(ctx context.Context, verb string, r graph.Resource, namespace, name string) bool {
	p := placeVerb{place{r, namespace}, verb}
	all, known := a.whole[p]
	if !known {
		all = a.require(ctx, verb, r, namespace, "") == nil
		a.whole[p] = all
	}
	return all || a.require(ctx, verb, r, namespace, name) == nil
}

// require returns the API server's Forbidden error unless the caller may use a verb.
func (a *access) require(ctx context.Context, verb string, r graph.Resource, namespace, name string) error {
	return a.requireOf(ctx, verb, r, "", namespace, name)
}

// requireOf is like require, for a subresource.
func (a *access) requireOf(ctx context.Context, verb string, r graph.Resource, subresource, namespace, name string) error {
	attributes := authorizer.AttributesRecord{
		User: a.caller, Verb: verb, ResourceRequest: true,
		APIGroup: r.Group, APIVersion: r.Version, Resource: r.GroupVersionResource.Resource, Subresource: subresource,
		Namespace: namespace, Name: name,
	}
	decision, reason, err := a.authorizer.Authorize(ctx, attributes)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return err
	}
	return responsewriters.ForbiddenStatusError(attributes, reason)
}
