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
	// Client reads policies, and which resource a kind of parameters is.
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

// unseen are the resources that webhooks and policies never see: requests for authentication and
// authorization must succeed whatever is installed.
var unseen = []schema.GroupResource{
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"},
	{Group: "authentication.k8s.io", Resource: "tokenreviews"},
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"},
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"},
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
}

// Unseen are the resources that webhooks and policies are not asked about.
func Unseen() []schema.GroupResource { return slices.Clone(unseen) }
