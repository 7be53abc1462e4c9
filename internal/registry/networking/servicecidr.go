// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// ServiceCIDR is a range from which ClusterIPs are allocated while it is Ready (KEP-1880).
var ServiceCIDR = generic.Kind[*networkingv1.ServiceCIDR]{
	Name: "ServiceCIDR", Plural: "servicecidrs", ClusterScoped: true,
	New:        func() *networkingv1.ServiceCIDR { return &networkingv1.ServiceCIDR{} },
	NewList:    func() runtime.Object { return &networkingv1.ServiceCIDRList{} },
	Spec:       func(c *networkingv1.ServiceCIDR) any { return &c.Spec },
	Status:     func(c *networkingv1.ServiceCIDR) any { return &c.Status },
	Generation: generic.NoGeneration,
	StatusUpdate: generic.Update[*networkingv1.ServiceCIDR]{
		Prepare: func(_ context.Context, c, old *networkingv1.ServiceCIDR) {
			metav1.ResetObjectMetaForStatus(&c.ObjectMeta, &old.ObjectMeta)
		},
		Resets: []string{"metadata"},
	},
	Validate: func(_ context.Context, c *check.Checker, cidr *networkingv1.ServiceCIDR) {
		validateCIDRs(c, &cidr.Spec)
	},
	ValidateUpdate: validateServiceCIDRUpdate,
	Columns: []generic.Column[*networkingv1.ServiceCIDR]{{
		Name: "CIDRs", Description: networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"],
		Cell: func(c *networkingv1.ServiceCIDR) any { return strings.Join(c.Spec.CIDRs, ",") },
	}},
}

var cidrsPath = field.NewPath("spec", "cidrs")

// validateCIDRs requires one range, or one of each family.
func validateCIDRs(c *check.Checker, spec *networkingv1.ServiceCIDRSpec) {
	switch {
	case len(spec.CIDRs) == 0:
		c.Required(cidrsPath, "at least one CIDR required")
		return
	case len(spec.CIDRs) > 2:
		c.Invalid(cidrsPath, spec, "may only hold up to 2 values")
		return
	}
	families := map[netutils.IPFamily]int{}
	for i, cidr := range spec.CIDRs {
		c.Add(utilvalidation.IsValidCIDR(cidrsPath.Index(i), cidr)...)
		families[netutils.IPFamilyOfCIDRString(cidr)]++
	}
	if families[netutils.IPv4] > 1 || families[netutils.IPv6] > 1 {
		c.Invalid(cidrsPath, spec.CIDRs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64")
	}
}

// validateServiceCIDRUpdate only allows a range of the other family to be added.
func validateServiceCIDRUpdate(_ context.Context, c *check.Checker, cidr, old *networkingv1.ServiceCIDR) {
	now, before := cidr.Spec.CIDRs, old.Spec.CIDRs
	added := len(before) == 1 && len(now) == 2
	if len(now) != len(before) && !added {
		c.Invalid(cidrsPath, now, apivalidation.FieldImmutableErrorMsg)
		return
	}
	for i := range before {
		if now[i] != before[i] {
			c.Invalid(cidrsPath.Index(i), now[i], apivalidation.FieldImmutableErrorMsg)
		}
	}
	if added {
		validateCIDRs(c, &cidr.Spec)
	}
}
