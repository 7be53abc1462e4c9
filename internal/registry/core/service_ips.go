// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kindred-project/kindred/internal/registry/check"
)

var (
	ipFamilies       = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	ipFamilyPolicies = []corev1.IPFamilyPolicy{corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack}
	clusterIPsPath   = specPath.Child("clusterIPs")
	familiesPath     = specPath.Child("ipFamilies")
	policyPath       = specPath.Child("ipFamilyPolicy")
)

const (
	notOnceSet       = "may not change once set"
	needsSingleStack = "must be set to 'SingleStack' when releasing the secondary %s"
)

// validateClusterIPs checks that addresses, families and policy are well-formed
// and agree. Services of type ExternalName have none of them.
func validateClusterIPs(c *check.Checker, s, old *corev1.Service) {
	if !needsClusterIP(s) {
		return
	}
	validateSingularIP(c, s)
	validateFamilies(c, s)
	valid := c.Passes(func() { validateEachIP(c, s, old) })
	if len(s.Spec.ClusterIPs) > 2 {
		c.Invalid(clusterIPsPath, s.Spec.ClusterIPs, "may only hold up to 2 values")
	}
	if valid { // only addresses have families to compare
		validateStacks(c, s)
	}
}

// validateSingularIP requires that clusterIP is the first of clusterIPs.
func validateSingularIP(c *check.Checker, s *corev1.Service) {
	switch ip, ips := s.Spec.ClusterIP, s.Spec.ClusterIPs; {
	case ip == "" && len(ips) > 0:
		c.Invalid(clusterIPsPath, ips, "must be empty when `clusterIP` is not specified")
	case ip != "" && len(ips) == 0:
		c.Required(clusterIPsPath, "")
	case ip != "" && ips[0] != ip:
		c.Invalid(clusterIPsPath, ips, "first value must match `clusterIP`")
	}
}

func validateFamilies(c *check.Checker, s *corev1.Service) {
	seen := sets.New[corev1.IPFamily]()
	for i, family := range s.Spec.IPFamilies {
		check.OneOf(c, familiesPath.Index(i), family, ipFamilies...)
		check.Unique(c, familiesPath.Index(i), seen, family)
	}
	if policy := s.Spec.IPFamilyPolicy; policy != nil && !slices.Contains(ipFamilyPolicies, *policy) {
		c.Add(field.NotSupported(policyPath, policy, ipFamilyPolicies))
	}
}

func validateEachIP(c *check.Checker, s, old *corev1.Service) {
	var before []string
	if old != nil {
		before = old.Spec.ClusterIPs
	}
	for i, ip := range s.Spec.ClusterIPs {
		switch {
		case i > 0 || ip != corev1.ClusterIPNone:
			c.IP(clusterIPsPath.Index(i), ip, before)
		case len(s.Spec.ClusterIPs) > 1:
			c.Invalid(clusterIPsPath, s.Spec.ClusterIPs, "'None' must be the first and only value")
		}
	}
}

// validateStacks requires one address of each family, in the order of families.
func validateStacks(c *check.Checker, s *corev1.Service) {
	ips := s.Spec.ClusterIPs
	if len(ips) > 1 {
		if dual, err := netutils.IsDualStackIPStrings(ips); err != nil || !dual {
			c.Invalid(clusterIPsPath, ips, "may specify no more than one IP for each IP family")
		}
	}
	if isHeadless(s) {
		return
	}
	for i, ip := range ips[:min(len(ips), len(s.Spec.IPFamilies))] {
		family := s.Spec.IPFamilies[i]
		if slices.Contains(ipFamilies, family) && familyOf(ip) != family {
			c.Invalid(clusterIPsPath.Index(i), ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%v]`", family, i))
		}
	}
}

// validateClusterIPsUpdate allows only the second address to be added or removed, unless the type
// changes from or to ExternalName.
func validateClusterIPsUpdate(c *check.Checker, s, old *corev1.Service) {
	if !needsClusterIP(s) || !needsClusterIP(old) || isHeadless(s) && isHeadless(old) {
		return
	}
	now, before := s.Spec.ClusterIPs, old.Spec.ClusterIPs
	for i := range min(len(now), len(before)) {
		// If the second address is added or removed, only the first can be compared.
		if now[i] != before[i] && (i == 0 || len(now) == len(before)) {
			c.Invalid(clusterIPsPath.Index(i), now, notOnceSet)
		}
	}
	if len(now) == 0 && len(before) > 0 {
		c.Invalid(clusterIPsPath.Index(0), now, "primary clusterIP can not be unset")
	}
	if len(now) == 1 && len(before) > 1 && !isSingleStack(s) {
		c.Invalid(policyPath, s.Spec.IPFamilyPolicy, fmt.Sprintf(needsSingleStack, "clusterIP"))
	}
}

// validateIPFamiliesUpdate is validateClusterIPsUpdate for families. Those of headless Services may
// change.
func validateIPFamiliesUpdate(c *check.Checker, s, old *corev1.Service) {
	if !needsClusterIP(s) || !needsClusterIP(old) || isHeadless(s) || isHeadless(old) {
		return
	}
	now, before := s.Spec.IPFamilies, old.Spec.IPFamilies
	for i := range min(len(now), len(before)) {
		if now[i] != before[i] && (i == 0 || len(now) == len(before)) {
			c.Invalid(familiesPath.Index(0), now, notOnceSet)
		}
	}
	if len(now) < len(before) && len(s.Spec.ClusterIPs) == 0 {
		c.Invalid(familiesPath.Index(0), now, "primary ipFamily can not be unset")
	}
	if len(now) == 1 && len(before) > 1 && !isSingleStack(s) {
		c.Invalid(policyPath, s.Spec.IPFamilyPolicy, fmt.Sprintf(needsSingleStack, "ipFamily"))
	}
}
