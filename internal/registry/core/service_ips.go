// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
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
func validateClusterIPs(s, old *corev1.Service) field.ErrorList {
	if !needsClusterIP(s) {
		return nil
	}
	errs := validateSingularIP(s)
	errs = append(errs, validateFamilies(s)...)
	problems := validateEachIP(s, old)
	errs = append(errs, problems...)
	if len(s.Spec.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(clusterIPsPath, s.Spec.ClusterIPs, "may only hold up to 2 values"))
	}
	if len(problems) > 0 {
		return errs // of what is no address, no more can be said
	}
	return append(errs, validateStacks(s)...)
}

// validateSingularIP holds clusterIP to be the first of clusterIPs.
func validateSingularIP(s *corev1.Service) field.ErrorList {
	switch ip, ips := s.Spec.ClusterIP, s.Spec.ClusterIPs; {
	case ip == "" && len(ips) > 0:
		return field.ErrorList{field.Invalid(clusterIPsPath, ips, "must be empty when `clusterIP` is not specified")}
	case ip != "" && len(ips) == 0:
		return field.ErrorList{field.Required(clusterIPsPath, "")}
	case ip != "" && ips[0] != ip:
		return field.ErrorList{field.Invalid(clusterIPsPath, ips, "first value must match `clusterIP`")}
	}
	return nil
}

func validateFamilies(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[corev1.IPFamily]()
	for i, family := range s.Spec.IPFamilies {
		if !slices.Contains(ipFamilies, family) {
			errs = append(errs, field.NotSupported(familiesPath.Index(i), family, ipFamilies))
		}
		if seen.Has(family) {
			errs = append(errs, field.Duplicate(familiesPath.Index(i), family))
		}
		seen.Insert(family)
	}
	if policy := s.Spec.IPFamilyPolicy; policy != nil && !slices.Contains(ipFamilyPolicies, *policy) {
		errs = append(errs, field.NotSupported(policyPath, policy, ipFamilyPolicies))
	}
	return errs
}

func validateEachIP(s, old *corev1.Service) field.ErrorList {
	var before []string
	if old != nil {
		before = old.Spec.ClusterIPs
	}
	var errs field.ErrorList
	for i, ip := range s.Spec.ClusterIPs {
		switch {
		case i > 0 || ip != corev1.ClusterIPNone:
			errs = append(errs, utilvalidation.IsValidIPForLegacyField(clusterIPsPath.Index(i), ip, true, before)...)
		case len(s.Spec.ClusterIPs) > 1:
			errs = append(errs, field.Invalid(clusterIPsPath, s.Spec.ClusterIPs, "'None' must be the first and only value"))
		}
	}
	return errs
}

// validateStacks holds addresses to one of each family, in the order of families.
func validateStacks(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	ips := s.Spec.ClusterIPs
	if len(ips) > 1 {
		if dual, err := netutils.IsDualStackIPStrings(ips); err != nil || !dual {
			errs = append(errs, field.Invalid(clusterIPsPath, ips, "may specify no more than one IP for each IP family"))
		}
	}
	if isHeadless(s) {
		return errs
	}
	for i, ip := range ips[:min(len(ips), len(s.Spec.IPFamilies))] {
		family := s.Spec.IPFamilies[i]
		if slices.Contains(ipFamilies, family) && familyOf(ip) != family {
			errs = append(errs, field.Invalid(clusterIPsPath.Index(i), ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%v]`", family, i)))
		}
	}
	return errs
}

// validateClusterIPsUpdate lets a Service gain and lose a second address, and
// change nothing else, unless it comes from or goes to ExternalName.
func validateClusterIPsUpdate(s, old *corev1.Service) field.ErrorList {
	if !needsClusterIP(s) || !needsClusterIP(old) || isHeadless(s) && isHeadless(old) {
		return nil
	}
	now, before := s.Spec.ClusterIPs, old.Spec.ClusterIPs
	var errs field.ErrorList
	for i := range min(len(now), len(before)) {
		// With a second address gained or lost, the first alone can be compared.
		if now[i] != before[i] && (i == 0 || len(now) == len(before)) {
			errs = append(errs, field.Invalid(clusterIPsPath.Index(i), now, notOnceSet))
		}
	}
	if len(now) == 0 && len(before) > 0 {
		errs = append(errs, field.Invalid(clusterIPsPath.Index(0), now, "primary clusterIP can not be unset"))
	}
	if len(now) == 1 && len(before) > 1 && !isSingleStack(s) {
		errs = append(errs, field.Invalid(policyPath, s.Spec.IPFamilyPolicy, fmt.Sprintf(needsSingleStack, "clusterIP")))
	}
	return errs
}

// validateIPFamiliesUpdate is the same for families; those of headless Services
// may change.
func validateIPFamiliesUpdate(s, old *corev1.Service) field.ErrorList {
	if !needsClusterIP(s) || !needsClusterIP(old) || isHeadless(s) || isHeadless(old) {
		return nil
	}
	now, before := s.Spec.IPFamilies, old.Spec.IPFamilies
	var errs field.ErrorList
	for i := range min(len(now), len(before)) {
		if now[i] != before[i] && (i == 0 || len(now) == len(before)) {
			errs = append(errs, field.Invalid(familiesPath.Index(0), now, notOnceSet))
		}
	}
	if len(now) < len(before) && len(s.Spec.ClusterIPs) == 0 {
		errs = append(errs, field.Invalid(familiesPath.Index(0), now, "primary ipFamily can not be unset"))
	}
	if len(now) == 1 && len(before) > 1 && !isSingleStack(s) {
		errs = append(errs, field.Invalid(policyPath, s.Spec.IPFamilyPolicy, fmt.Sprintf(needsSingleStack, "ipFamily")))
	}
	return errs
}
