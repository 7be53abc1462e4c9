// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	nodepod "github.com/kindred-project/kindred/internal/node/pod"

	"github.com/kindred-project/kindred/internal/node/csi"
)

// expandable is a volume that can grow while it is set up.
type expandable interface {
	expand(ctx context.Context, size int64) (csi.Outcome, error)
}

// pendingSize returns the size that a volume is to be expanded to on the node, or nil. A claim whose expansion
// can be recovered (KEP-1790) says so in its status; with an older controller, the persistent volume is larger
// than the claim.
func pendingSize(b bound) *resource.Quantity {
	have, offered := b.claim.Status.Capacity[v1.ResourceStorage], b.pv.Spec.Capacity[v1.ResourceStorage]
	if have.Cmp(offered) >= 0 {
		return nil
	}
	state, recorded := b.claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	if !recorded && b.claim.Status.AllocatedResources == nil {
		return &offered
	}
	if state != v1.PersistentVolumeClaimNodeResizePending && state != v1.PersistentVolumeClaimNodeResizeInProgress {
		return nil
	}
	wanted := b.claim.Status.AllocatedResources[v1.ResourceStorage]
	return &wanted
}

// expand expands a volume that is set up, if that is pending, and reports the result in the claim's status.
func (m *Manager) expand(ctx context.Context, pod *v1.Pod, spec *v1.Volume, v volume) error {
	b, isBound := m.state(pod.UID).boundTo(spec.Name)
	grows, canGrow := v.(expandable)
	if !isBound || !canGrow {
		return nil
	}
	size := pendingSize(b)
	if size == nil {
		return nil
	}
	if b.readOnly {
		m.eventOfBoth(pod, b, v1.EventTypeWarning, "FileSystemResizeFailed",
			fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", b.pv.Name))
		return nil
	}
	claim, err := m.patchClaim(ctx, b.claim, inProgress(b.claim))
	if err != nil {
		return m.expandError(pod, err)
	}
	outcome, err := grows.expand(ctx, size.Value())
	switch outcome {
	case csi.Expanded:
		m.eventOfBoth(pod, b, v1.EventTypeNormal, "FileSystemResizeSuccessful",
			fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", b.pv.Name, pod.Spec.NodeName))
		_, err := m.patchClaim(ctx, claim, expanded(claim, *size))
		return m.expandError(pod, err)
	case csi.InUse, csi.Unsupported:
		return nil // the pod may use the volume as it is
	}
	failed := failedExpansion(claim, err, outcome == csi.Infeasible, metav1.NewTime(m.options.Clock.Now()))
	if _, patchErr := m.patchClaim(ctx, claim, failed); patchErr != nil {
		err = fmt.Errorf("%w; its claim cannot be updated: %w", err, patchErr)
	}
	return m.expandError(pod, err)
}

// expandError names the step that failed, which depends on whether the pod runs already.
func (m *Manager) expandError(pod *v1.Pod, err error) error {
	switch {
	case err == nil:
		return nil
	case m.state(pod.UID).pod == nil:
		return &stepError{step: "MountVolume.Setup failed while expanding volume", reason: failedMount, err: err}
	}
	return &stepError{step: "NodeExpandVolume.NodeExpandVolume failed", reason: "VolumeResizeFailed", err: err}
}

// inProgress returns the claim with its expansion in progress, if its expansion can be recovered.
func inProgress(claim *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	changed := claim.DeepCopy()
	if _, recorded := changed.Status.AllocatedResourceStatuses[v1.ResourceStorage]; recorded {
		changed.Status.AllocatedResourceStatuses[v1.ResourceStorage] = v1.PersistentVolumeClaimNodeResizeInProgress
	}
	return changed
}

// resizeConditions are the conditions of a claim that are about its expansion.
var resizeConditions = []v1.PersistentVolumeClaimConditionType{
	v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimFileSystemResizePending,
	v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError,
}

// expanded returns the claim after its expansion.
func expanded(claim *v1.PersistentVolumeClaim, size resource.Quantity) *v1.PersistentVolumeClaim {
	changed := claim.DeepCopy()
	if changed.Status.Capacity == nil {
		changed.Status.Capacity = v1.ResourceList{}
	}
	changed.Status.Capacity[v1.ResourceStorage] = size
	delete(changed.Status.AllocatedResourceStatuses, v1.ResourceStorage)
	changed.Status.Conditions = slices.DeleteFunc(changed.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		return slices.Contains(resizeConditions, c.Type)
	})
	return changed
}

// failedExpansion returns the claim after an expansion that failed.
func failedExpansion(claim *v1.PersistentVolumeClaim, err error, infeasible bool, now metav1.Time) *v1.PersistentVolumeClaim {
	changed := claim.DeepCopy()
	if _, recorded := changed.Status.AllocatedResourceStatuses[v1.ResourceStorage]; recorded && infeasible {
		changed.Status.AllocatedResourceStatuses[v1.ResourceStorage] = v1.PersistentVolumeClaimNodeResizeInfeasible
	}
	changed.Status.Conditions = slices.DeleteFunc(changed.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == v1.PersistentVolumeClaimNodeResizeError
	})
	changed.Status.Conditions = append(changed.Status.Conditions, v1.PersistentVolumeClaimCondition{
		Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue, LastTransitionTime: now,
		Message: fmt.Sprintf("failed to expand pvc with %v", err),
	})
	return changed
}

// patchClaim writes a changed status. It fails if the claim has changed meanwhile.
func (m *Manager) patchClaim(ctx context.Context, before, after *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	old, err := json.Marshal(v1.PersistentVolumeClaim{Status: before.Status})
	if err != nil {
		return nil, err
	}
	changed, err := json.Marshal(v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ResourceVersion: before.ResourceVersion}, Status: after.Status})
	if err != nil {
		return nil, err
	}
	same, err := json.Marshal(v1.PersistentVolumeClaim{Status: after.Status})
	if err != nil {
		return nil, err
	}
	if string(same) == string(old) {
		return before, nil
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, changed, v1.PersistentVolumeClaim{})
	if err != nil {
		return nil, err
	}
	return m.options.Client.CoreV1().PersistentVolumeClaims(before.Namespace).
		Patch(ctx, before.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// eventOfBoth records an event of the pod and of its claim.
func (m *Manager) eventOfBoth(pod *v1.Pod, b bound, eventType, reason, message string) {
	m.event(nodepod.Reference(pod), eventType, reason, message)
	m.event(&v1.ObjectReference{
		Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: b.claim.Namespace, Name: b.claim.Name, UID: b.claim.UID,
		ResourceVersion: b.claim.ResourceVersion,
	}, eventType, reason, message)
}
