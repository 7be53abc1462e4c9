// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/backends"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// places returns the nodes that a volume is attached to or needed on, by name, and reports whether it can be
// attached to one node at a time.
func (r *reconciler) places(ctx context.Context, v volume) (places []place, exclusive bool, err error) {
	at := map[string]*place{}
	on := func(node string) *place {
		if at[node] == nil {
			at[node] = &place{node: node}
		}
		return at[node]
	}
	pvs, err := r.persistentVolumes(ctx, v)
	if err != nil {
		return nil, false, err
	}
	for i := range pvs {
		users, err := r.users(ctx, &pvs[i])
		if err != nil {
			return nil, false, err
		}
		for _, pod := range users {
			p := on(pod.Spec.NodeName)
			p.users, p.persistentVolume = append(p.users, pod), pvs[i].Name
		}
		exclusive = exclusive || len(users) > 0 && isExclusive(&pvs[i])
	}
	if err := r.addAttachments(ctx, v, pvs, on); err != nil {
		return nil, false, err
	}
	attachable, err := r.isAttachable(ctx, v)
	if err != nil {
		return nil, false, err
	}
	for _, node := range slices.Sorted(maps.Keys(at)) {
		p := at[node]
		if p.attachment == nil && !attachable {
			continue
		}
		if err := r.addNode(ctx, v, p); err != nil {
			return nil, false, err
		}
		exclusive = exclusive || p.attachment != nil && isExclusivelyAttached(p.attachment, pvs)
		places = append(places, *p)
	}
	r.remember(v, places)
	return places, exclusive, nil
}

// persistentVolumes returns the PersistentVolumes of a volume, by name.
func (r *reconciler) persistentVolumes(ctx context.Context, v volume) ([]corev1.PersistentVolume, error) {
	list := &corev1.PersistentVolumeList{}
	err := r.client.List(ctx, list, client.MatchingFields{persistentVolumeIndex: string(v.uniqueName())}, client.UnsafeDisableDeepCopy)
	slices.SortFunc(list.Items, func(a, b corev1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, err
}

// isExclusivelyAttached reports whether an attachment excludes others. That of a PersistentVolume that
// does not exist may.
func isExclusivelyAttached(a *storagev1.VolumeAttachment, pvs []corev1.PersistentVolume) bool {
	i := slices.IndexFunc(pvs, func(pv corev1.PersistentVolume) bool { return pv.Name == persistentVolumeOf(a) })
	return i < 0 || isExclusive(&pvs[i])
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

// addAttachments adds the attachments of a volume that this controller made. They are found by the volume's
// PersistentVolumes, and by memory if those have been deleted since.
func (r *reconciler) addAttachments(ctx context.Context, v volume, pvs []corev1.PersistentVolume, on func(node string) *place) error {
	if err := r.takeStock(ctx); err != nil {
		return err
	}
	add := func(a *storagev1.VolumeAttachment) {
		if v.attaches(a) {
			on(a.Spec.NodeName).attachment = a
		}
	}
	for i := range pvs {
		list := &storagev1.VolumeAttachmentList{}
		if err := r.client.List(ctx, list, client.MatchingFields{sourceIndex: pvs[i].Name}, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		for i := range list.Items {
			add(&list.Items[i])
		}
	}
	for node := range r.memory[v] {
		if err := r.addNamed(ctx, v.attachmentName(node), add); err != nil {
			return err
		}
	}
	for name := range r.orphans {
		if err := r.addNamed(ctx, name, add); err != nil {
			return err
		}
	}
	for node, m := range r.memory[v] {
		if !m.unseen {
			continue
		}
		if err := r.addUnseen(ctx, v, on(node), m); err != nil {
			return err
		}
	}
	return nil
}

// addNamed adds the attachment of a name, if it exists.
func (r *reconciler) addNamed(ctx context.Context, name string, add func(*storagev1.VolumeAttachment)) error {
	a := &storagev1.VolumeAttachment{}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, a, client.UnsafeDisableDeepCopy)
	if err == nil {
		add(a)
		return nil
	}
	delete(r.orphans, name)
	return client.IgnoreNotFound(err)
}

// takeStock remembers the attachments that exist when the controller starts, because their
// PersistentVolumes may be deleted before the first decision about a volume, or have been already.
func (r *reconciler) takeStock(ctx context.Context) error {
	if r.orphans != nil {
		return nil
	}
	all := &storagev1.VolumeAttachmentList{}
	if err := r.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	r.orphans = map[string]bool{}
	for i := range all.Items {
		a := &all.Items[i]
		v, ok := r.volumeOf(ctx, a)
		if !ok {
			r.orphans[a.Name] = true
			continue
		}
		if r.memory[v] == nil {
			r.memory[v] = map[string]*seen{}
		}
		r.memory[v][a.Spec.NodeName] = &seen{attachment: a.UID}
	}
	return nil
}

// addUnseen adds an attachment that the cache may not show yet.
func (r *reconciler) addUnseen(ctx context.Context, v volume, p *place, m *seen) error {
	isCached := func(uid types.UID) bool { return p.attachment != nil && p.attachment.UID == uid }
	if isCached(m.attachment) {
		m.unseen = false
		return nil
	}
	live := &storagev1.VolumeAttachment{}
	err := r.live.Get(ctx, client.ObjectKey{Name: v.attachmentName(p.node)}, live)
	if apierrors.IsNotFound(err) {
		m.unseen = false
		return nil
	}
	if err != nil {
		return err
	}
	m.unseen = !isCached(live.UID)
	if live.UID != m.attachment {
		*m = seen{attachment: live.UID, unseen: m.unseen}
	}
	p.attachment = live
	return nil
}

// addNode adds what the cached Node says.
func (r *reconciler) addNode(ctx context.Context, v volume, p *place) error {
	node := &corev1.Node{}
	err := r.client.Get(ctx, client.ObjectKey{Name: p.node}, node, client.UnsafeDisableDeepCopy)
	p.see(v, node, err == nil)
	return client.IgnoreNotFound(err)
}

// see adds what a Node says. A node that does not exist may still use the volume.
func (p *place) see(v volume, node *corev1.Node, exists bool) {
	if !exists {
		p.listed, p.inUse, p.lost, p.outOfService = false, true, true, false
		return
	}
	name := v.uniqueName()
	p.listed = slices.ContainsFunc(node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == name })
	p.inUse = slices.Contains(node.Status.VolumesInUse, name)
	p.lost = !backends.IsNodeReady(node)
	p.outOfService = isOutOfService(node)
}

func isOutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// remember adds what the API does not have, and forgets nodes that the volume has left.
func (r *reconciler) remember(v volume, places []place) {
	before, after := r.memory[v], map[string]*seen{}
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
	r.memory[v] = after
	if len(after) == 0 {
		delete(r.memory, v)
	}
}

func newAttachment(v volume, p *place) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: v.attachmentName(p.node)},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: v.driver, NodeName: p.node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(p.persistentVolume)},
		},
	}
}

// setListed makes a Node list a volume as attached, or not. It reads the Node from the API, because the
// list is written as a whole.
func (r *reconciler) setListed(ctx context.Context, v volume, name string, want bool) error {
	node := &corev1.Node{}
	if err := r.live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	return r.writeListed(ctx, v, node, want)
}

// writeListed changes the list of a live Node, and fails if the Node has changed since it was read.
func (r *reconciler) writeListed(ctx context.Context, v volume, node *corev1.Node, want bool) error {
	name := v.uniqueName()
	rest := slices.DeleteFunc(slices.Clone(node.Status.VolumesAttached), func(a corev1.AttachedVolume) bool { return a.Name == name })
	if want {
		rest = append(rest, corev1.AttachedVolume{Name: name})
	} else if len(rest) == len(node.Status.VolumesAttached) {
		return nil
	}
	before := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	node.Status.VolumesAttached = rest
	return r.client.Status().Patch(ctx, node, before)
}
