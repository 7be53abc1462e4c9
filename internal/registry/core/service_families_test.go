// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
)

const (
	v4 = corev1.IPv4Protocol
	v6 = corev1.IPv6Protocol

	single  = corev1.IPFamilyPolicySingleStack
	prefer  = corev1.IPFamilyPolicyPreferDualStack
	require = corev1.IPFamilyPolicyRequireDualStack
)

// stacks sets all fields that concern IP families.
func stacks(policy corev1.IPFamilyPolicy, families []corev1.IPFamily, ips ...string) serviceChange {
	return func(s *corev1.Service) {
		s.Spec.IPFamilyPolicy = nil
		if policy != "" {
			s.Spec.IPFamilyPolicy = &policy
		}
		s.Spec.IPFamilies = families
		clusterIPs(ips...)(s)
	}
}

func TestCompleteFamilies(t *testing.T) {
	selecting := func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "web"} }
	for name, tc := range map[string]struct {
		cluster  []corev1.IPFamily
		s        serviceChange
		policy   corev1.IPFamilyPolicy
		families []corev1.IPFamily
		want     []string
	}{
		"no fields":             {[]corev1.IPFamily{v4}, stacks("", nil), single, []corev1.IPFamily{v4}, nil},
		"no fields, IPv6 first": {[]corev1.IPFamily{v6, v4}, stacks("", nil), single, []corev1.IPFamily{v6}, nil},
		"PreferDualStack on a single-stack cluster": {[]corev1.IPFamily{v4}, stacks(prefer, nil), prefer, []corev1.IPFamily{v4}, nil},
		"PreferDualStack on a dual-stack cluster":   {[]corev1.IPFamily{v4, v6}, stacks(prefer, []corev1.IPFamily{v6}), prefer, []corev1.IPFamily{v6, v4}, nil},
		"from the address":                          {[]corev1.IPFamily{v4, v6}, stacks("", nil, "fd00::7"), single, []corev1.IPFamily{v6}, nil},
		"headless with selector":                    {[]corev1.IPFamily{v4}, func(s *corev1.Service) { stacks("", nil, "None")(s); selecting(s) }, single, []corev1.IPFamily{v4}, nil},
		"headless without selector":                 {[]corev1.IPFamily{v4}, stacks("", nil, "None"), require, []corev1.IPFamily{v4, v6}, nil},
		"headless without selector, SingleStack":    {[]corev1.IPFamily{v4}, stacks(single, []corev1.IPFamily{v6}, "None"), single, []corev1.IPFamily{v6}, nil},
		"address of a family that is not configured": {[]corev1.IPFamily{v4}, stacks("", nil, "fd00::7"), single, nil, []string{
			`spec.clusterIPs[0]: Invalid value: ["fd00::7"]: IPv6 is not configured on this cluster`}},
		"family that is not configured": {[]corev1.IPFamily{v4}, stacks("", []corev1.IPFamily{v6}), single, []corev1.IPFamily{v6}, []string{
			`spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`}},
		"RequireDualStack on a single-stack cluster": {[]corev1.IPFamily{v4}, stacks(require, nil), require, nil, []string{
			`spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services`}},
		"SingleStack with two families": {[]corev1.IPFamily{v4, v6}, stacks(single, []corev1.IPFamily{v4, v6}, "10.96.0.7", "fd00::7"), single, []corev1.IPFamily{v4, v6}, []string{
			`spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified`,
			`spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified`}},
		"external name": {[]corev1.IPFamily{v4}, externalName, "", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(tc.s)
			compare(t, check.Run(func(c *check.Checker) { families{tc.cluster}.complete(c, s, nil) }), tc.want)
			if got := ptr.Deref(s.Spec.IPFamilyPolicy, ""); got != tc.policy {
				t.Errorf("policy %q, want %q", got, tc.policy)
			}
			if diff := cmp.Diff(tc.families, s.Spec.IPFamilies); diff != "" {
				t.Errorf("families (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompleteFamiliesOnUpdate(t *testing.T) {
	both := []corev1.IPFamily{v4, v6}
	dual := stacks(prefer, both, "10.96.0.7", "fd00::7")
	one := stacks(single, []corev1.IPFamily{v4}, "10.96.0.7")
	for name, tc := range map[string]struct {
		old, now serviceChange
		cluster  []corev1.IPFamily
		ips      []string
		families []corev1.IPFamily
		want     []string
	}{
		"a second family is added":                   {one, stacks(require, []corev1.IPFamily{v4}, "10.96.0.7"), both, []string{"10.96.0.7"}, both, nil},
		"the second family is removed by the policy": {dual, stacks(single, both, "10.96.0.7", "fd00::7"), both, []string{"10.96.0.7"}, []corev1.IPFamily{v4}, nil},
		"the old policy":                             {one, stacks("", []corev1.IPFamily{v4}, "10.96.0.7"), both, []string{"10.96.0.7"}, []corev1.IPFamily{v4}, nil},
		"the cluster gained a family": {
			stacks(prefer, []corev1.IPFamily{v4}, "10.96.0.7"), stacks(prefer, []corev1.IPFamily{v4}, "10.96.0.7"), both, []string{"10.96.0.7"}, []corev1.IPFamily{v4}, nil},
		"fewer families without SingleStack": {dual, stacks(prefer, []corev1.IPFamily{v4}, "10.96.0.7"), both, []string{"10.96.0.7"}, []corev1.IPFamily{v4}, []string{
			`spec.ipFamilyPolicy: Invalid value: "PreferDualStack": must be 'SingleStack' to release the secondary cluster IP`,
			`spec.ipFamilyPolicy: Invalid value: "PreferDualStack": must be 'SingleStack' to release the secondary IP family`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(tc.now)
			compare(t, check.Run(func(c *check.Checker) { families{tc.cluster}.complete(c, s, newService(tc.old)) }), tc.want)
			if diff := cmp.Diff(tc.ips, s.Spec.ClusterIPs); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.families, s.Spec.IPFamilies); diff != "" {
				t.Errorf("families (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompleteRead(t *testing.T) {
	f := families{[]corev1.IPFamily{v4}}
	for name, tc := range map[string]struct {
		change   serviceChange
		families []corev1.IPFamily
		policy   corev1.IPFamilyPolicy
	}{
		"stored before clusterIPs existed": {func(s *corev1.Service) { stacks("", nil)(s); s.Spec.ClusterIP = "fd00::7" }, []corev1.IPFamily{v6}, single},
		"headless without selector":        {stacks("", nil, "None"), []corev1.IPFamily{v4, v6}, require},
		"complete":                         {stacks(prefer, []corev1.IPFamily{v4}, "10.96.0.7"), []corev1.IPFamily{v4}, prefer},
		"external names have none":         {externalName, nil, ""},
	} {
		s := newService(tc.change)
		f.completeRead(s)
		if got := ptr.Deref(s.Spec.IPFamilyPolicy, ""); got != tc.policy || !cmp.Equal(s.Spec.IPFamilies, tc.families) {
			t.Errorf("%s: %v, policy %q", name, s.Spec.IPFamilies, got)
		}
		if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP != "" {
			t.Errorf("%s: no clusterIPs", name)
		}
	}
}
