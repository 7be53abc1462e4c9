// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// families completes the IP families of Services (KEP-563) from those of the cluster.
type families struct {
	configured []corev1.IPFamily
}

func (f families) has(family corev1.IPFamily) bool { return slices.Contains(f.configured, family) }

// complete sets spec.ipFamilyPolicy and spec.ipFamilies, and refuses values that contradict each
// other or the cluster. It must run before addresses are claimed, because each family gets one; old
// is nil on create.
func (f families) complete(c *check.Checker, s, old *corev1.Service) {
	if !needsClusterIP(s) || staysPreferDualStack(s, old) {
		return
	}
	s.Spec.IPFamilyPolicy = ptr.To(familyPolicy(s, old))
	valid := c.Passes(func() { validateClusterIPs(c, s, old) }) && c.Passes(func() {
		followPolicy(c, s, old)
		f.inferFromAddresses(c, s)
	}) && (headlessWithoutSelector(s) || c.Passes(func() { f.validateConfigured(c, s) }))
	if !valid {
		return
	}
	if len(s.Spec.IPFamilies) == 0 {
		s.Spec.IPFamilies = []corev1.IPFamily{f.configured[0]}
	}
	// The endpoints of a headless Service without selector are not the cluster's pods, so they may
	// have both families on any cluster.
	both := len(f.configured) == 2 || headlessWithoutSelector(s)
	if len(s.Spec.IPFamilies) == 1 && both && !isSingleStack(s) {
		s.Spec.IPFamilies = []corev1.IPFamily{s.Spec.IPFamilies[0], otherFamily(s.Spec.IPFamilies[0])}
	}
}

// staysPreferDualStack reports whether an update of a PreferDualStack Service leaves the families
// as they are: the Service must not gain or lose a family because the cluster did.
func staysPreferDualStack(s, old *corev1.Service) bool {
	prefers := func(policy *corev1.IPFamilyPolicy) bool {
		return policy != nil && *policy == corev1.IPFamilyPolicyPreferDualStack
	}
	return old != nil && s.Spec.Type == old.Spec.Type &&
		prefers(s.Spec.IPFamilyPolicy) && prefers(old.Spec.IPFamilyPolicy) &&
		slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies)
}

// familyPolicy returns the requested policy, else the old one, else the default.
func familyPolicy(s, old *corev1.Service) corev1.IPFamilyPolicy {
	switch {
	case s.Spec.IPFamilyPolicy != nil:
		return *s.Spec.IPFamilyPolicy
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		return *old.Spec.IPFamilyPolicy
	case headlessWithoutSelector(s):
		return corev1.IPFamilyPolicyRequireDualStack
	}
	return corev1.IPFamilyPolicySingleStack
}

// followPolicy removes the second address and family of a Service that becomes single-stack. It
// refuses to remove only one of the two.
func followPolicy(c *check.Checker, s, old *corev1.Service) {
	refuse := func(is bool, message string) {
		if is {
			c.Invalid(field.NewPath("spec", "ipFamilyPolicy"), s.Spec.IPFamilyPolicy, message)
		}
	}
	spec := &s.Spec
	if !isSingleStack(s) {
		if old != nil {
			refuse(fewer(spec.ClusterIPs, old.Spec.ClusterIPs), "must be 'SingleStack' to release the secondary cluster IP")
			refuse(fewer(spec.IPFamilies, old.Spec.IPFamilies), "must be 'SingleStack' to release the secondary IP family")
		}
		return
	}
	if old != nil {
		spec.ClusterIPs = firstOfSame(spec.ClusterIPs, old.Spec.ClusterIPs)
		spec.IPFamilies = firstOfSame(spec.IPFamilies, old.Spec.IPFamilies)
	}
	refuse(len(spec.ClusterIPs) == 2, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified")
	refuse(len(spec.IPFamilies) == 2, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified")
}

// fewer reports whether there are fewer values than before, but not none.
func fewer[E any](now, before []E) bool { return len(now) > 0 && len(now) < len(before) }

// firstOfSame returns only the first of unchanged values. It returns changed ones for validation to
// check.
func firstOfSame[E comparable](now, before []E) []E {
	if len(now) > 1 && slices.Equal(now, before) {
		return slices.Clone(now[:1])
	}
	return now
}

// inferFromAddresses adds the families of the requested addresses.
func (f families) inferFromAddresses(c *check.Checker, s *corev1.Service) {
	for i, ip := range s.Spec.ClusterIPs {
		if ip == corev1.ClusterIPNone {
			break
		}
		if i < len(s.Spec.IPFamilies) {
			continue // validation has compared them
		}
		family := familyOf(ip)
		if !f.has(family) {
			c.Invalid(field.NewPath("spec", "clusterIPs").Index(i), s.Spec.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", family))
			continue
		}
		s.Spec.IPFamilies = append(slices.Clip(s.Spec.IPFamilies), family)
	}
}

// validateConfigured refuses families that the cluster does not have.
func (f families) validateConfigured(c *check.Checker, s *corev1.Service) {
	if *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(f.configured) < 2 {
		c.Invalid(field.NewPath("spec", "ipFamilyPolicy"), s.Spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services")
	}
	for i, family := range s.Spec.IPFamilies {
		if !f.has(family) {
			c.Invalid(field.NewPath("spec", "ipFamilies").Index(i), family, "not configured on this cluster")
		}
	}
}

// completeRead sets fields that older versions did not store, and hides unused ones that they
// stored.
func (f families) completeRead(s *corev1.Service) {
	if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		s.Spec.InternalTrafficPolicy = nil
		return
	}
	if len(s.Spec.IPFamilies) > 0 {
		return
	}
	switch {
	case headlessWithoutSelector(s):
		s.Spec.IPFamilies = []corev1.IPFamily{f.configured[0], otherFamily(f.configured[0])}
	case s.Spec.ClusterIP == corev1.ClusterIPNone:
		s.Spec.IPFamilies = []corev1.IPFamily{f.configured[0]}
	default:
		for _, ip := range s.Spec.ClusterIPs {
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, familyOf(ip))
		}
	}
	switch len(s.Spec.IPFamilies) {
	case 1:
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	case 2:
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
}

func isSingleStack(s *corev1.Service) bool {
	return ptr.Deref(s.Spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicySingleStack
}

func headlessWithoutSelector(s *corev1.Service) bool {
	return s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0
}

func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func otherFamily(family corev1.IPFamily) corev1.IPFamily {
	if family == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
