// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// conditionState is a condition without times.
type conditionState struct {
	kind            corev1.NamespaceConditionType
	failing         bool
	reason, message string
}

// conditionStates returns all five conditions, in order. Those without a problem are not failing.
func conditionStates(f *findings) []conditionState {
	out := []conditionState{
		{corev1.NamespaceDeletionDiscoveryFailure, false, "ResourcesDiscovered", "All resources successfully discovered"},
		{corev1.NamespaceDeletionGVParsingFailure, false, "ParsedGroupVersions", "All legacy kube types successfully parsed"},
		{corev1.NamespaceDeletionContentFailure, false, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"},
		{corev1.NamespaceContentRemaining, false, "ContentRemoved", "All content successfully removed"},
		{corev1.NamespaceFinalizersRemaining, false, "ContentHasNoFinalizers", "All content-preserving finalizers finished"},
	}
	fail := func(i int, reason, message string) { out[i] = conditionState{out[i].kind, true, reason, message} }
	if f.discovery != nil {
		fail(0, "DiscoveryFailed", discoveryMessage(f.discovery))
	}
	if f.parsing != nil {
		fail(1, "GroupVersionParsingFailed", f.parsing.Error())
	}
	if n := len(f.content); n > 0 {
		var messages []string
		for _, err := range f.content {
			messages = append(messages, err.Error())
		}
		fail(2, "ContentDeletionFailed", fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", n, joinSorted(messages)))
	}
	if len(f.remaining) > 0 {
		var counts []string
		for gvr, n := range f.remaining {
			counts = append(counts, fmt.Sprintf("%s.%s has %d resource instances", gvr.Resource, gvr.Group, n))
		}
		fail(3, "SomeResourcesRemain", "Some resources are remaining: "+joinSorted(counts))
	}
	if len(f.finalizers) > 0 {
		var counts []string
		for finalizer, n := range f.finalizers {
			counts = append(counts, fmt.Sprintf("%s in %d resource instances", finalizer, n))
		}
		fail(4, "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+joinSorted(counts))
	}
	return out
}

func discoveryMessage(err error) string {
	var groups *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &groups) {
		return fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(groups.Groups), err)
	}
	return err.Error()
}

// joinSorted joins the parts in a stable order.
func joinSorted(parts []string) string {
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// apply updates the conditions and reports whether anything changed. It modifies the slice and
// its elements.
func apply(conditions *[]corev1.NamespaceCondition, states []conditionState, now time.Time) (changed bool) {
	for _, s := range states {
		c := corev1.NamespaceCondition{
			Type: s.kind, Status: corev1.ConditionFalse, Reason: s.reason, Message: s.message, LastTransitionTime: metav1.NewTime(now),
		}
		if s.failing {
			c.Status = corev1.ConditionTrue
		}
		i := slices.IndexFunc(*conditions, func(c corev1.NamespaceCondition) bool { return c.Type == s.kind })
		if i < 0 {
			*conditions, changed = append(*conditions, c), true
			continue
		}
		current := &(*conditions)[i]
		if current.Status == c.Status {
			c.LastTransitionTime = current.LastTransitionTime
		}
		changed = changed || *current != c
		*current = c
	}
	return changed
}
