// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/backends"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// Add registers the controller. It watches PersistentVolumes, the attachments of volumes, the pods that use
// them, and what Nodes say about volumes.
func Add(env control.Env) error {
	ctx := context.Background()
	if err := pods.IndexVolumeClaims(ctx, env.Manager.GetCache()); err != nil {
		return err
	}
	if err := addIndexes(ctx, env.Manager.GetFieldIndexer()); err != nil {
		return err
	}
	r := newReconciler(env)
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(1)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(requestsOfPersistentVolume)).
		Watches(&storagev1.VolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(r.requestsOfAttachment)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.requestsOfClaim)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.requestsOfPod), builder.WithPredicates(predicate.Funcs{UpdateFunc: changesUse})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.requestsOfNode), builder.WithPredicates(predicate.Funcs{UpdateFunc: changesVolumes})).
		Complete(r)
}

// changesUse reports whether an update of a pod may change which volumes are needed where.
func changesUse(e event.UpdateEvent) bool {
	old, ok := e.ObjectOld.(*corev1.Pod)
	pod, podOK := e.ObjectNew.(*corev1.Pod)
	return ok && podOK && (old.UID != pod.UID || old.Spec.NodeName != pod.Spec.NodeName || pods.HasEnded(old) != pods.HasEnded(pod))
}

// changesVolumes reports whether an update of a Node may allow to attach or detach a volume.
func changesVolumes(e event.UpdateEvent) bool {
	old, ok := e.ObjectOld.(*corev1.Node)
	node, nodeOK := e.ObjectNew.(*corev1.Node)
	return ok && nodeOK && (!slices.Equal(old.Status.VolumesInUse, node.Status.VolumesInUse) ||
		!slices.Equal(old.Status.VolumesAttached, node.Status.VolumesAttached) ||
		isOutOfService(old) != isOutOfService(node) || backends.IsNodeReady(old) != backends.IsNodeReady(node))
}

func requestsOfPersistentVolume(_ context.Context, obj client.Object) []reconcile.Request {
	pv, ok := obj.(*corev1.PersistentVolume)
	if !ok {
		return nil
	}
	v, ok := byPersistentVolume(pv)
	if !ok {
		return nil
	}
	return []reconcile.Request{v.request()}
}

// requestsOfAttachment finds the volume of an attachment by its PersistentVolume, or if that has been
// deleted, by the Node.
func (r *reconciler) requestsOfAttachment(ctx context.Context, obj client.Object) []reconcile.Request {
	a, ok := obj.(*storagev1.VolumeAttachment)
	if !ok {
		return nil
	}
	if v, ok := r.volumeOf(ctx, a); ok {
		return []reconcile.Request{v.request()}
	}
	node := &corev1.Node{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: a.Spec.NodeName}, node, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	for _, v := range volumesOf(node) {
		if a.Name == v.attachmentName(node.Name) {
			return []reconcile.Request{v.request()}
		}
	}
	return nil
}

// volumeOf returns the volume of an attachment, if its PersistentVolume exists.
func (r *reconciler) volumeOf(ctx context.Context, a *storagev1.VolumeAttachment) (v volume, ok bool) {
	pv := &corev1.PersistentVolume{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: persistentVolumeOf(a)}, pv, client.UnsafeDisableDeepCopy); err != nil {
		return volume{}, false
	}
	v, ok = byPersistentVolume(pv)
	return v, ok && v.attaches(a)
}

// volumesOf returns the volumes that a Node lists as attached or in use.
func volumesOf(node *corev1.Node) (volumes []volume) {
	add := func(name corev1.UniqueVolumeName) {
		if v, ok := byUniqueName(name); ok {
			volumes = append(volumes, v)
		}
	}
	for _, a := range node.Status.VolumesAttached {
		add(a.Name)
	}
	for _, name := range node.Status.VolumesInUse {
		add(name)
	}
	return volumes
}

func (r *reconciler) requestsOfClaim(ctx context.Context, obj client.Object) []reconcile.Request {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName == "" {
		return nil
	}
	pv := &corev1.PersistentVolume{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	return requestsOfPersistentVolume(ctx, pv)
}

func (r *reconciler) requestsOfPod(ctx context.Context, obj client.Object) (requests []reconcile.Request) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	for _, name := range pods.VolumeClaims(pod) {
		claim := &corev1.PersistentVolumeClaim{}
		if err := r.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, claim, client.UnsafeDisableDeepCopy); err == nil {
			requests = append(requests, r.requestsOfClaim(ctx, claim)...)
		}
	}
	return requests
}

// requestsOfNode returns the volumes that are attached to a node, or that it lists.
func (r *reconciler) requestsOfNode(ctx context.Context, obj client.Object) (requests []reconcile.Request) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return nil
	}
	for _, v := range volumesOf(node) {
		requests = append(requests, v.request())
	}
	local := &storagev1.VolumeAttachmentList{}
	if err := r.client.List(ctx, local, client.MatchingFields{nodeIndex: node.Name}, client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the attachments of a node", "node", klog.KObj(node))
	}
	for i := range local.Items {
		requests = append(requests, r.requestsOfAttachment(ctx, &local.Items[i])...)
	}
	return requests
}
