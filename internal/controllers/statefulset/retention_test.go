// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reference returns an owner reference described by words: "set", "pod", "earlier-set" and
// "earlier-pod" (same name, other UID), "other"; a trailing "*" makes it the controller.
func reference(word string) metav1.OwnerReference {
	name, isController := strings.CutSuffix(word, "*")
	ref := map[string]metav1.OwnerReference{
		"set":         {APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set"},
		"earlier-set": {APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "earlier"},
		"pod":         {APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "web-0"},
		"earlier-pod": {APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "earlier"},
		"other":       {APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other"},
	}[name]
	if isController {
		ref.Controller = new(true)
	}
	return ref
}

func describe(refs []metav1.OwnerReference) string {
	var words []string
	for _, ref := range refs {
		word := map[types.UID]string{"set": "set", "web-0": "pod", "other": "other"}[ref.UID]
		if word == "" {
			word = "earlier-" + map[string]string{"StatefulSet": "set", "Pod": "pod"}[ref.Kind]
		}
		if isController(ref) {
			word += "*"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestRetention: the owners of a claim by policy (whenDeleted, whenScaled), for a pod in the range of
// ordinals and for a surplus one.
func TestRetention(t *testing.T) {
	for _, tc := range []struct {
		deleted, scaled string
		surplus         bool
		have, want      string
	}{
		{"Retain", "Retain", false, "", ""},
		{"Retain", "Retain", true, "", ""},
		{"Retain", "Retain", false, "set*", ""},
		{"Retain", "Retain", false, "other* set*", "other*"},
		{"Retain", "Retain", true, "pod*", ""},
		{"Delete", "Retain", false, "", "set*"},
		{"Delete", "Retain", true, "", "set*"},
		{"Delete", "Retain", false, "set", "set*"},
		{"Delete", "Retain", true, "pod*", "set*"},
		{"Delete", "Retain", false, "other", "other set*"},
		{"Retain", "Delete", false, "", ""},
		{"Retain", "Delete", false, "pod*", ""},
		{"Retain", "Delete", true, "", "pod*"},
		{"Retain", "Delete", true, "set*", "pod*"},
		{"Delete", "Delete", false, "", "set*"},
		{"Delete", "Delete", false, "pod*", "set*"},
		{"Delete", "Delete", true, "set*", "pod*"},
		{"Delete", "Delete", true, "other set* pod", "other pod*"},
		{"Delete", "Delete", false, "other*", "other*"},
		{"Delete", "Delete", false, "other* set", "other*"},
		{"Delete", "Delete", false, "earlier-set*", "earlier-set*"},
		{"Retain", "Retain", true, "earlier-pod*", "earlier-pod*"},
	} {
		set := newSet(1, func(set *appsv1.StatefulSet) {
			set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.PersistentVolumeClaimRetentionPolicyType(tc.deleted),
				WhenScaled:  appsv1.PersistentVolumeClaimRetentionPolicyType(tc.scaled),
			}
		})
		claim := &corev1.PersistentVolumeClaim{}
		for _, word := range strings.Fields(tc.have) {
			claim.OwnerReferences = append(claim.OwnerReferences, reference(word))
		}
		refs, differ := retentionOf(set).owners(claim, sketch("web-0"), tc.surplus)
		if got := describe(refs); got != tc.want || differ != (tc.have != tc.want) {
			t.Errorf("delete when deleted %s, when scaled %s, surplus %t: %q becomes %q (differ: %t), want %q",
				tc.deleted, tc.scaled, tc.surplus, tc.have, got, differ, tc.want)
		}
	}
}

// TestNoPolicyRetains: a StatefulSet without a policy retains its claims.
func TestNoPolicyRetains(t *testing.T) {
	if owner := retentionOf(newSet(1)).owner(sketch("web-0"), true); owner != nil {
		t.Errorf("the owner is %v", owner)
	}
}

func TestOrdinals(t *testing.T) {
	for name, want := range map[string]int{
		"web-0": 0, "web-7": 7, "web-2147483647": 2147483647,
		"web": -1, "web-": -1, "web-01": -1, "web-+1": -1, "web--1": -1, "web-2147483648": -1, "other-1": -1, "web-1-2": -1,
	} {
		got, ok := parseOrdinal("web", name)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("the ordinal of %s is %d, want %d", name, got, want)
		}
	}
}
