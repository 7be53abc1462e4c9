// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
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

// volumeOf returns the name of the PersistentVolume of an attachment, or "".
func volumeOf(a *storagev1.VolumeAttachment) string {
	return ptr.Deref(a.Spec.Source.PersistentVolumeName, "")
}

// Add registers the controller. It watches volumes, their attachments, the pods that use them, and what
// Nodes say about volumes.
func Add(env control.Env) error {
	if err := pods.IndexVolumeClaims(context.Background(), env.Manager.GetCache()); err != nil {
		return err
	}
	r := newReconciler(env)
	ofCSI := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		v, ok := obj.(*corev1.PersistentVolume)
		return ok && v.Spec.CSI != nil
	})
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(1)).
		For(&corev1.PersistentVolume{}, builder.WithPredicates(ofCSI)).
		Watches(&storagev1.VolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(requestsOfAttachment)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(requestsOfClaim)).
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

func requestsOfAttachment(_ context.Context, obj client.Object) []reconcile.Request {
	a, ok := obj.(*storagev1.VolumeAttachment)
	if !ok || volumeOf(a) == "" {
		return nil
	}
	return requestsFor(volumeOf(a))
}

func requestsOfClaim(_ context.Context, obj client.Object) []reconcile.Request {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName == "" {
		return nil
	}
	return requestsFor(claim.Spec.VolumeName)
}

func (r *reconciler) requestsOfPod(ctx context.Context, obj client.Object) (requests []reconcile.Request) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	for _, name := range pods.VolumeClaims(pod) {
		claim := &corev1.PersistentVolumeClaim{}
		if err := r.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, claim, client.UnsafeDisableDeepCopy); err == nil {
			requests = append(requests, requestsOfClaim(ctx, claim)...)
		}
	}
	return requests
}

func (r *reconciler) requestsOfNode(ctx context.Context, node client.Object) (requests []reconcile.Request) {
	all := &storagev1.VolumeAttachmentList{}
	if err := r.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the attachments of a node", "node", klog.KObj(node))
	}
	for i := range all.Items {
		if a := &all.Items[i]; a.Spec.NodeName == node.GetName() {
			requests = append(requests, requestsOfAttachment(ctx, a)...)
		}
	}
	return requests
}

func requestsFor(volume string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: volume}}}
}
