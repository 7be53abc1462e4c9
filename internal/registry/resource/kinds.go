// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Dependencies are what claims and taints need besides storage.
type Dependencies struct {
	// Authorizer decides which clients may write which part of a claim's status.
	Authorizer authorizer.UnconditionalAuthorizer
	// Namespaces are looked up for the label that permits admin access.
	Namespaces corev1client.NamespacesGetter
	// Clock sets the time at which a taint was added.
	Clock clock.PassiveClock
}

// Group is resource.k8s.io.
func Group(d Dependencies) generic.Group {
	return generic.Group{
		Name:     resourcev1.GroupName,
		Priority: 16200,
		Scheme:   []func(*runtime.Scheme) error{resourcev1.AddToScheme, AddToScheme, timedDefaults(d.Clock)},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{
			DeviceClass,
			deviceTaintRule(d.Clock),
			resourceClaim(d.Authorizer, d.Namespaces),
			resourceClaimTemplate(d.Namespaces),
			ResourceSlice,
		}}},
	}
}

var (
	specPath   = field.NewPath("spec")
	statusPath = field.NewPath("status")
)

// anyName accepts all names, of kinds whose declared validation checks names.
func anyName(string, bool) []string { return nil }
