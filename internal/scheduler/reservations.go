// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// reserve writes a pod's reservation. Before that it nominates the pod to its node, so that other
// programs know where the pod will be, and the scheduler tries that node first after a restart.
func (s *Scheduler) reserve(ctx context.Context, pod *model.Pod, node string, r *model.Reservation) {
	if patch := s.statusPatch(pod.Pod, v1.PodCondition{}, &node); patch != nil {
		if err := s.patchStatus(ctx, pod.Pod, patch); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot nominate a pod to its node", "pod", klog.KObj(pod.Pod), "node", node)
		}
	}
	objects, err := s.writeVolumes(ctx, &r.Volumes)
	if err != nil {
		err = fmt.Errorf("running PreBind plugin %q: %w", "VolumeBinding", err)
	} else if devices, failed := s.writeDevices(ctx, pod, &r.Devices); failed != nil {
		objects, err = append(objects, devices...), devicesFailed(failed)
	} else {
		objects = append(objects, devices...)
	}
	if ctx.Err() != nil {
		return
	}
	s.inbox.post(func(m *machine) { m.reserved(pod.UID, objects, err) })
}

// writeVolumes writes which claim each volume belongs to, and on which node the others are created.
// Other programs bind the claims and create the volumes. After an error it returns what was written.
func (s *Scheduler) writeVolumes(ctx context.Context, plan *model.VolumePlan) (written, error) {
	var objects written
	for _, match := range plan.Bind {
		if !match.Write {
			continue
		}
		object, err := s.bindVolume(ctx, match)
		if err != nil {
			return objects, err
		}
		objects = append(objects, object)
	}
	for _, provision := range plan.Provision {
		if !provision.Write {
			continue
		}
		object, err := s.selectNode(ctx, provision.Claim)
		if err != nil {
			return objects, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// bindVolume makes a volume belong to a claim, unless the volume has changed since the decision.
// It may belong to the claim already if another pod uses the claim too.
func (s *Scheduler) bindVolume(ctx context.Context, match model.Match) (*v1.PersistentVolume, error) {
	volumes := s.Client.CoreV1().PersistentVolumes()
	patch, err := changedSince(match.Volume, map[string]any{"claimRef": match.Volume.Spec.ClaimRef})
	if err != nil {
		return nil, err
	}
	object, err := volumes.Patch(ctx, match.Volume.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsConflict(err) {
		return object, err
	}
	now, getErr := volumes.Get(ctx, match.Volume.Name, metav1.GetOptions{})
	if getErr == nil && now.Spec.ClaimRef != nil && now.Spec.ClaimRef.UID == match.Claim.UID {
		return now, nil
	}
	return nil, err
}

// selectNode has a claim's volume created for a node, unless the claim has changed since the
// decision. It may have the node already if another pod uses the claim too.
func (s *Scheduler) selectNode(ctx context.Context, claim *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	claims := s.Client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	patch, err := changedSince(claim, nil)
	if err != nil {
		return nil, err
	}
	object, err := claims.Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsConflict(err) {
		return object, err
	}
	now, getErr := claims.Get(ctx, claim.Name, metav1.GetOptions{})
	if getErr == nil && now.UID == claim.UID && now.Annotations[volume.AnnSelectedNode] == claim.Annotations[volume.AnnSelectedNode] {
		return now, nil
	}
	return nil, err
}

// changedSince returns a patch with an object's annotations and spec, that fails if the stored
// object is not the version that the decision was based on.
func changedSince(object metav1.Object, spec map[string]any) ([]byte, error) {
	patch := map[string]any{"metadata": map[string]any{
		"uid":             object.GetUID(),
		"resourceVersion": object.GetResourceVersion(),
		"annotations":     object.GetAnnotations(),
	}}
	if spec != nil {
		patch["spec"] = spec
	}
	return json.Marshal(patch)
}
