// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Follows reports whether the deletion of an object belongs to the cascade of an owner's deletion
// that had begun before, with this policy. Many operators delete the dependents themselves while
// the owner waits for its finalizer: that is a collection by other means. A person who deletes a
// dependent meanwhile wants this object gone, whatever becomes of the owner.
func (r *Record) Follows(policy metav1.DeletionPropagation) bool {
	return !r.By.IsPerson() && policy != metav1.DeletePropagationOrphan
}

// PolicyOf is the policy of a deletion that has begun, whether it was asked for or is the kind's
// own: the garbage collector goes by the finalizers.
func PolicyOf(finalizers []string) metav1.DeletionPropagation {
	switch {
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// Precedes reports whether a deletion began before another one. Requests are recorded at the
// revision of the deletion; of what was collected only the time is known.
func (r *Record) Precedes(other Record) bool {
	if r.IsCollected() || other.IsCollected() {
		return !r.Time.After(other.Time.Time)
	}
	return r.Revision <= other.Revision
}

// commands are the programs by which people delete objects one by one, by the names that they
// begin their user agent with.
var commands = []string{"kubectl", "oc/", "helm", "k9s", "curl", "wget", "mozilla"}

// IsPerson reports whether a person asked for a deletion, in contrast to a program that works
// by itself: an operator, a controller, a node. A user agent tells them apart better than a
// user does: operators run with the kubeconfig of their developer, and kubectl with service
// accounts.
func (c *Caller) IsPerson() bool {
	agent, isSystem := strings.ToLower(c.Agent), strings.HasPrefix(c.User, "system:")
	switch {
	case slices.ContainsFunc(commands, func(command string) bool { return strings.HasPrefix(agent, command) }):
		return true
	case agent == "", strings.HasPrefix(agent, "kindred"): // Parts of Kindred may call themselves so too.
		return c.User != "" && !isSystem
	}
	return false
}
