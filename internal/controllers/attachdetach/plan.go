// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// unmountLimit is the time after which a volume that no pod needs is detached from a node that is not
// ready, although the node may still use it. It is upstream's.
const unmountLimit = 6 * time.Minute

// place is one node, as far as it concerns a volume.
type place struct {
	node string
	// users are the pods that need the volume here, and persistentVolume names it for them.
	users            []*corev1.Pod
	persistentVolume string
	// attachment is the VolumeAttachment, or nil; deleting is true if it was deleted.
	attachment *storagev1.VolumeAttachment
	deleting   bool
	memory     *seen
	// listed is true if the node lists the volume as attached; inUse if it uses it.
	listed, inUse bool
	// lost is true if the node is not ready, or does not exist.
	lost bool
	// outOfService is true if an administrator vouches that the node is shut down.
	outOfService bool
}

// step is what is done at one place.
type step int

const (
	// stay leaves the place as it is.
	stay step = iota
	// attach creates the attachment.
	attach
	// list makes the node list the volume as attached.
	list
	// detach removes the volume from the node's list, then deletes the attachment.
	detach
	// unlist removes the volume from the node's list.
	unlist
)

// decision is the next step at one place.
type decision struct {
	step
	// problem explains to the users of the place why they have to wait; "" if they need not.
	problem func(user *corev1.Pod) string
	// after is the delay until the next decision; 0 if it can wait for the next change.
	after time.Duration
}

// plan returns a decision for each place of a volume. exclusive is true if the volume can be attached to one
// node at a time.
func plan(places []place, exclusive bool, now time.Time) []decision {
	decisions := make([]decision, len(places))
	taken := exclusive && slices.ContainsFunc(places, func(p place) bool { return p.attachment != nil })
	for i, p := range places {
		switch {
		case p.attachment != nil:
			decisions[i] = keep(p, now)
		case p.listed:
			decisions[i].step = unlist
		case len(p.users) == 0:
		case taken:
			decisions[i].problem = func(user *corev1.Pod) string { return waitForDetach(user, places, p) }
		default:
			decisions[i].step = attach
			taken = exclusive
		}
	}
	return decisions
}

// keep decides about an attachment.
func keep(p place, now time.Time) decision {
	switch {
	case p.deleting:
		if p.listed {
			return decision{step: unlist}
		}
		return decision{}
	case len(p.users) == 0:
		return release(p, now)
	case p.attachment.Status.Attached:
		if !p.listed {
			return decision{step: list}
		}
		return decision{}
	}
	if failure := p.attachment.Status.AttachError; failure != nil && failure.Message != "" {
		text := fmt.Sprintf("AttachVolume.Attach failed for volume %q : %s", p.persistentVolume, failure.Message)
		return decision{problem: func(*corev1.Pod) string { return text }}
	}
	return decision{}
}

// release decides about an attachment that no pod needs.
func release(p place, now time.Time) decision {
	if !p.inUse || p.outOfService {
		return decision{step: detach}
	}
	if !p.lost {
		return decision{}
	}
	if waited := now.Sub(p.memory.unneeded); waited <= unmountLimit {
		return decision{after: unmountLimit - waited + time.Second}
	}
	return decision{step: detach}
}

// waitForDetach explains to a pod that its volume is attached to another node. It names only pods of the
// same namespace.
func waitForDetach(user *corev1.Pod, places []place, at place) string {
	var local []string
	others := 0
	for _, p := range places {
		if p.node == at.node {
			continue
		}
		for _, pod := range p.users {
			if pod.Namespace == user.Namespace {
				local = append(local, pod.Name)
			} else {
				others++
			}
		}
	}
	var reason string
	switch {
	case len(local) > 0 && others > 0:
		reason = fmt.Sprintf("Volume is already used by pod(s) %s and %d pod(s) in different namespaces", strings.Join(local, ", "), others)
	case len(local) > 0:
		reason = fmt.Sprintf("Volume is already used by pod(s) %s", strings.Join(local, ", "))
	case others > 0:
		reason = fmt.Sprintf("Volume is already used by %d pod(s) in different namespaces", others)
	default:
		reason = "Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node"
	}
	return fmt.Sprintf("Waiting for detach for volume %q %s", at.persistentVolume, reason)
}

// isExclusive reports whether a volume can be attached to one node at a time. Of a volume without access
// modes nothing is known; its driver refuses what it cannot do.
func isExclusive(pv *corev1.PersistentVolume) bool {
	modes := pv.Spec.AccessModes
	return len(modes) > 0 && !slices.Contains(modes, corev1.ReadWriteMany) && !slices.Contains(modes, corev1.ReadOnlyMany)
}
