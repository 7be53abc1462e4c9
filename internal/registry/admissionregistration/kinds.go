// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Dependencies check that the author of a policy or binding may read its parameters.
type Dependencies struct {
	Authorizer authorizer.Authorizer
	// Client reads policies, and the resources of parameter kinds.
	Client kubernetes.Interface
}

// Group is admissionregistration.k8s.io.
func Group(d Dependencies) generic.Group {
	params := params{d.Authorizer, d.Client}
	return generic.Group{
		Name:     admissionv1.GroupName,
		Priority: 16700,
		Scheme:   []func(*runtime.Scheme) error{admissionv1.AddToScheme, AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{
			ValidatingWebhookConfiguration, MutatingWebhookConfiguration,
			validatingPolicy(params), validatingPolicyBinding(params),
			mutatingPolicy(params), mutatingPolicyBinding(params),
		}}},
	}
}

// excluded are the resources that webhooks and policies do not apply to: no webhook may break
// authentication and authorization.
var excluded = []schema.GroupResource{
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"},
	{Group: "authentication.k8s.io", Resource: "tokenreviews"},
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"},
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"},
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
}

// ExcludedResources returns the resources that webhooks and policies do not apply to.
func ExcludedResources() []schema.GroupResource { return slices.Clone(excluded) }
