// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Follows reports whether the deletion of an object belongs to the cascade of an owner's deletion
// that started earlier, with the given policy. Many operators delete dependents themselves while
// the owner waits for its finalizer; that is part of the cascade. The deletion of a dependent by a
// person is not: it is intended regardless of the owner.
func (r *Record) Follows(policy metav1.DeletionPropagation) bool {
	return !r.By.IsPerson() && policy != metav1.DeletePropagationOrphan
}

// PolicyOf returns the propagation policy of a deletion in progress from the object's finalizers,
// which decide what the garbage collector does.
func PolicyOf(finalizers []string) metav1.DeletionPropagation {
	switch {
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// Precedes reports whether a deletion started before another one, or at the same time. It compares
// revisions if clients requested both. For objects that the garbage collector deleted, only the time
// of the deletion is known.
func (r *Record) Precedes(other Record) bool {
	if r.IsCollected() || other.IsCollected() {
		return !r.Time.After(other.Time.Time)
	}
	return r.Revision <= other.Revision
}

// commands are the user agent prefixes of programs with which people delete objects.
var commands = []string{"kubectl", "oc/", "helm", "k9s", "curl", "wget", "mozilla"}

// IsPerson reports whether a person requested a deletion, rather than an operator, a controller or
// a node. It prefers the user agent to the user name, because operators may run with a developer's
// kubeconfig, and kubectl with a service account.
func (c *Caller) IsPerson() bool {
	agent, isSystem := strings.ToLower(c.Agent), strings.HasPrefix(c.User, "system:")
	switch {
	case slices.ContainsFunc(commands, func(command string) bool { return strings.HasPrefix(agent, command) }):
		return true
	case agent == "", strings.HasPrefix(agent, "kindred"): // Components of Kindred may use this user agent too.
		return c.User != "" && !isSystem
	}
	return false
}
