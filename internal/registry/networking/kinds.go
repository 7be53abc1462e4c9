// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is networking.k8s.io.
func Group() generic.Group {
	return generic.Group{
		Name:     networkingv1.GroupName,
		Priority: 17200,
		Scheme:   []func(*runtime.Scheme) error{networkingv1.AddToScheme, AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{
			Ingress,
			IngressClass,
			NetworkPolicy,
			IPAddress,
			ServiceCIDR,
		}}},
	}
}
