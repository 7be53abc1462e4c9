// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/backends"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// places returns the nodes that a volume is attached to or needed on, by name.
func (r *reconciler) places(ctx context.Context, v *corev1.PersistentVolume) ([]place, error) {
	at := map[string]*place{}
	on := func(node string) *place {
		if at[node] == nil {
			at[node] = &place{node: node}
		}
		return at[node]
	}
	users, err := r.users(ctx, v)
	if err != nil {
		return nil, err
	}
	for _, pod := range users {
		on(pod.Spec.NodeName).users = append(on(pod.Spec.NodeName).users, pod)
	}
	attachments, err := r.attachments(ctx, v)
	if err != nil {
		return nil, err
	}
	for _, a := range attachments {
		on(a.Spec.NodeName).attachment = a
	}
	places := make([]place, 0, len(at))
	for _, node := range slices.Sorted(maps.Keys(at)) {
		p := at[node]
		if err := r.addNode(ctx, v, p); err != nil {
			return nil, err
		}
		places = append(places, *p)
	}
	r.remember(v.Name, places)
	return places, nil
}

// users returns the pods on nodes that use a volume and have not ended.
func (r *reconciler) users(ctx context.Context, v *corev1.PersistentVolume) ([]*corev1.Pod, error) {
	claim, err := r.claimOf(ctx, v)
	if claim == nil || err != nil {
		return nil, err
	}
	all, err := pods.List(ctx, r.client, client.InNamespace(claim.Namespace), client.MatchingFields{pods.VolumeClaimIndex: claim.Name}, client.UnsafeDisableDeepCopy)
	return pods.Filter(all, func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" && !pods.HasEnded(pod) }), err
}

// claimOf returns the claim that is bound to a volume, or nil.
func (r *reconciler) claimOf(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return nil, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, claim, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && (claim.UID != ref.UID || claim.Spec.VolumeName != v.Name) {
		return nil, nil
	}
	return claim, err
}

// attachments returns the attachments of a volume that this controller made. Others may exist; they have
// other names.
func (r *reconciler) attachments(ctx context.Context, v *corev1.PersistentVolume) (own []*storagev1.VolumeAttachment, err error) {
	all := &storagev1.VolumeAttachmentList{}
	if err := r.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range all.Items {
		if a := &all.Items[i]; volumeOf(a) == v.Name && a.Name == attachmentName(v.Spec.CSI, a.Spec.NodeName) {
			own = append(own, a)
		}
	}
	return own, nil
}

// addNode adds what the Node says. A node that does not exist may still use the volume.
func (r *reconciler) addNode(ctx context.Context, v *corev1.PersistentVolume, p *place) error {
	node := &corev1.Node{}
	err := r.client.Get(ctx, client.ObjectKey{Name: p.node}, node, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		p.inUse, p.lost = true, true
		return nil
	}
	name := uniqueName(v.Spec.CSI)
	p.listed = slices.ContainsFunc(node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == name })
	p.inUse = slices.Contains(node.Status.VolumesInUse, name)
	p.lost = !backends.IsNodeReady(node)
	p.outOfService = isOutOfService(node)
	return err
}

func isOutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// remember adds what the API does not have, and forgets nodes that the volume has left.
func (r *reconciler) remember(volume string, places []place) {
	before, after := r.memory[volume], map[string]*seen{}
	for i := range places {
		p := &places[i]
		p.memory = before[p.node]
		if p.memory == nil || p.attachment != nil && p.memory.attachment != p.attachment.UID {
			p.memory = &seen{}
		}
		after[p.node] = p.memory
		if p.attachment == nil {
			continue
		}
		p.memory.attachment = p.attachment.UID
		p.deleting = p.attachment.DeletionTimestamp != nil || p.memory.deleted
		switch {
		case len(p.users) > 0:
			p.memory.unneeded = time.Time{}
		case p.memory.unneeded.IsZero():
			p.memory.unneeded = r.clock.Now()
		}
	}
	r.memory[volume] = after
	if len(after) == 0 {
		delete(r.memory, volume)
	}
}

func newAttachment(v *corev1.PersistentVolume, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachmentName(v.Spec.CSI, node)},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: v.Spec.CSI.Driver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(v.Name)},
		},
	}
}

// setListed makes a Node list a volume as attached, or not. It reads the Node from the API, because the
// list is written as a whole.
func (r *reconciler) setListed(ctx context.Context, v *corev1.PersistentVolume, name string, want bool) error {
	node := &corev1.Node{}
	if err := r.live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	volume := uniqueName(v.Spec.CSI)
	rest := slices.DeleteFunc(slices.Clone(node.Status.VolumesAttached), func(a corev1.AttachedVolume) bool { return a.Name == volume })
	if want {
		rest = append(rest, corev1.AttachedVolume{Name: volume})
	} else if len(rest) == len(node.Status.VolumesAttached) {
		return nil
	}
	before := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	node.Status.VolumesAttached = rest
	return r.client.Status().Patch(ctx, node, before)
}
