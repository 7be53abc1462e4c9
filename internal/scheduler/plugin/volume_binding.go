// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"math"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// volumeBinding keeps pods on nodes where their volumes are available: those of bound claims, and
// for claims of a class with WaitForFirstConsumer a volume that is free or can be created. It
// prefers nodes on which these claims take the smaller share of their volumes.
type volumeBinding struct{}

func (volumeBinding) Name() string { return "VolumeBinding" }

var unboundImmediate = rejectUnresolvable("pod has unbound immediate PersistentVolumeClaims")

func (volumeBinding) For(cluster *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	if len(pod.Claims) == 0 {
		return nil, nil
	}
	check := &bindable{volumes: cluster.Volumes, free: map[string][]*v1.PersistentVolume{}}
	for _, claim := range pod.Claims {
		if rejection := rejectClaim(cluster.Volumes, pod, claim); rejection != nil {
			return nil, rejection
		}
	}
	for _, claim := range pod.Claims {
		object := cluster.Volumes.Claim(claim.Key)
		switch {
		case isBound(object):
			check.bound = append(check.bound, object)
		case object.Spec.VolumeName == "" && waitsForConsumer(cluster.Volumes, object):
			check.unbound = append(check.unbound, object)
		default:
			return nil, unboundImmediate
		}
	}
	for _, claim := range check.unbound {
		class := volume.GetPersistentVolumeClaimClass(claim)
		if _, found := check.free[class]; !found {
			check.free[class] = cluster.Volumes.Matching(class, check.unbound)
		}
	}
	if rejection := check.rejectHeld(); rejection != nil {
		return nil, rejection
	}
	return check, nil
}

// rejectClaim returns why a claim of a pod cannot be used on any node, or nil.
func rejectClaim(volumes *model.Volumes, pod *model.Pod, claim model.Claim) *Rejection {
	object := volumes.Claim(claim.Key)
	switch {
	case object == nil && claim.Ephemeral:
		return rejectUnresolvable(fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", claim.Key.Name))
	case object == nil:
		return claimNotFound(claim.Key)
	case object.Status.Phase == v1.ClaimLost:
		return rejectUnresolvable(fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", object.Name, object.Spec.VolumeName))
	case object.DeletionTimestamp != nil:
		return rejectUnresolvable(fmt.Sprintf("persistentvolumeclaim %q is being deleted", object.Name))
	}
	if claim.Ephemeral {
		if err := ephemeral.VolumeIsForPod(pod.Pod, object); err != nil {
			return rejectUnresolvable(err.Error())
		}
	}
	return nil
}

// rejectHeld returns why unbound claims have to wait for the end of a hold, or nil. A claim that a
// held volume names waits for it: another volume does not have its data.
func (c *bindable) rejectHeld() *Rejection {
	for _, claim := range c.unbound {
		if ownership.IsHeld(claim) {
			return rejectUnresolvable(fmt.Sprintf("persistentvolumeclaim %q is on hold", claim.Name))
		}
		for _, object := range c.free[volume.GetPersistentVolumeClaimClass(claim)] {
			if ownership.IsHeld(object) && volume.IsVolumeBoundToClaim(object, claim) {
				return rejectUnresolvable(fmt.Sprintf("persistentvolumeclaim %q waits for persistentvolume %q, which is on hold", claim.Name, object.Name))
			}
		}
	}
	return nil
}

// isBound reports whether a claim and its volume are bound to each other.
func isBound(claim *v1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName != "" && metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted)
}

// waitsForConsumer reports whether a claim gets its volume when a pod is placed.
func waitsForConsumer(volumes *model.Volumes, claim *v1.PersistentVolumeClaim) bool {
	class := volumes.Classes[volume.GetPersistentVolumeClaimClass(claim)]
	return class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

func (volumeBinding) Wakes(_ *model.Cluster, event *Event, pod *model.Pod) bool {
	switch event.Kind {
	case NodeAdded, VolumeChanged:
		return true
	case NodeChanged:
		return !maps.Equal(event.OldNode.Labels, event.Node.Labels)
	case ClaimChanged:
		return changesClaimOf(event, pod)
	case ClassChanged:
		before, after := states[*storagev1.StorageClass](event)
		return before == nil || !equality.Semantic.DeepEqual(before.AllowedTopologies, after.AllowedTopologies)
	case DriverChanged:
		before, after := states[*storagev1.CSIDriver](event)
		return tracksCapacity(before) && !tracksCapacity(after)
	case CapacityChanged:
		before, after := states[*storagev1.CSIStorageCapacity](event)
		return before == nil || capacityGrew(before, after)
	default:
		return false
	}
}

func capacityGrew(before, after *storagev1.CSIStorageCapacity) bool {
	was, is := largestVolume(before), largestVolume(after)
	return is != nil && (was == nil || is.Cmp(*was) > 0)
}

// Applies reports whether a pod has claims.
func (volumeBinding) Applies(_ *model.Cluster, pod *model.Pod) bool { return len(pod.Claims) > 0 }

func (volumeBinding) Score(cluster *model.Cluster, pod *model.Pod, nodes []*model.Node, scores []int64) {
	check, _ := volumeBinding{}.For(cluster, pod)
	bindable, _ := check.(*bindable)
	if bindable == nil || len(bindable.unbound) == 0 {
		return
	}
	for i, node := range nodes {
		plan, _ := bindable.plan(node)
		scores[i] = scorePlan(&plan)
	}
}

// usage is how much of the capacity for a class is requested.
type usage struct{ requested, capacity int64 }

// scorePlan returns the mean over the plan's classes of the share that remains free.
func scorePlan(plan *model.VolumePlan) int64 {
	classes := usages(plan)
	if len(classes) == 0 {
		return 0
	}
	var sum int64
	for _, u := range classes {
		if u.capacity > 0 && u.requested <= u.capacity {
			sum += MaxScore - u.requested*MaxScore/u.capacity
		}
	}
	return int64(math.Round(float64(sum) / float64(len(classes))))
}

// usages counts the volumes that are bound; only if there are none, those that are created.
func usages(plan *model.VolumePlan) map[string]usage {
	classes := map[string]usage{}
	for _, match := range plan.Bind {
		u := classes[match.Volume.Spec.StorageClassName]
		u.requested += match.Claim.Spec.Resources.Requests.Storage().Value()
		u.capacity += match.Volume.Spec.Capacity.Storage().Value()
		classes[match.Volume.Spec.StorageClassName] = u
	}
	if len(plan.Bind) > 0 {
		return classes
	}
	for _, provision := range plan.Provision {
		if provision.Capacity == nil {
			continue
		}
		class := volume.GetPersistentVolumeClaimClass(provision.Claim)
		u := classes[class]
		u.requested += provision.Claim.Spec.Resources.Requests.Storage().Value()
		u.capacity = provision.Capacity.Value()
		classes[class] = u
	}
	return classes
}
