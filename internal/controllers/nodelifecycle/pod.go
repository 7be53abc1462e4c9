// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// staleDelay is the delay before a retry with a stale cache.
const staleDelay = 100 * time.Millisecond

// podReconciler handles pods on lost or tainted nodes.
type podReconciler struct {
	control.Env

	mu sync.Mutex
	// pending holds the pods that tolerate the taints for a time, and since when.
	pending map[types.NamespacedName]pendingEviction
}

type pendingEviction struct {
	pod   types.UID
	since time.Time
}

// Reconcile marks a pod on a lost node as not ready, and evicts it when it is due.
func (r *podReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod, node := &corev1.Pod{}, &corev1.Node{}
	err := r.Client.Get(ctx, req.NamespacedName, pod)
	if err == nil && pod.Spec.NodeName != "" {
		err = r.Client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node)
	}
	if err != nil || pod.Spec.NodeName == "" {
		r.cancel(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if readiness(node) == corev1.ConditionUnknown {
		if pod, err = r.markNotReady(ctx, pod); err != nil {
			return requeueConflict(err)
		}
	}
	if pod.DeletionTimestamp != nil {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	e, tolerated := evictionFor(ctrl.LoggerFrom(ctx), node.Spec.Taints, pod.Spec.Tolerations)
	switch e {
	case noEviction:
		r.cancel(req.NamespacedName)
		return ctrl.Result{}, nil
	case evictLater:
		now := r.Clock.Now()
		if left := r.since(pod, node, now).Add(tolerated).Sub(now); left > 0 {
			return ctrl.Result{RequeueAfter: left}, nil
		}
	}
	if err := r.evict(ctx, pod); err != nil {
		return requeueConflict(err)
	}
	r.forget(req.NamespacedName)
	return ctrl.Result{}, nil
}

// requeueConflict requeues after a conflict, which means that the cache is stale. Changes of a pod's
// status do not wake this controller.
func requeueConflict(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: staleDelay}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// since returns when the pod's tolerated time began, which is now for a new pod.
func (r *podReconciler) since(pod *corev1.Pod, node *corev1.Node, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(pod)
	d, ok := r.pending[key]
	if !ok || d.pod != pod.UID {
		d = pendingEviction{pod: pod.UID, since: taintedSince(node, pod, now)}
	}
	if r.pending == nil {
		r.pending = map[types.NamespacedName]pendingEviction{}
	}
	r.pending[key] = d
	return d.since
}

// forget drops the pending eviction of a pod, and reports whether the pod had one.
func (r *podReconciler) forget(key types.NamespacedName) (wasPending bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, wasPending = r.pending[key]
	delete(r.pending, key)
	return wasPending
}

// cancel drops the pending eviction of a pod, and records an event if the pod had one.
func (r *podReconciler) cancel(key types.NamespacedName) {
	if r.forget(key) {
		r.Events.Eventf(podReference(key), corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod %s", key)
	}
}

func podReference(key types.NamespacedName) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: key.Namespace, Name: key.Name}
}

// markNotReady sets the pod's condition Ready to False, and returns the updated pod.
func (r *podReconciler) markNotReady(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	if ready := pods.Condition(pod, corev1.PodReady); ready == nil || ready.Status == corev1.ConditionFalse {
		return pod, nil
	}
	pod = pod.DeepCopy()
	ready := pods.Condition(pod, corev1.PodReady)
	ready.Status = corev1.ConditionFalse
	ready.LastTransitionTime = metav1.NewTime(r.Clock.Now())
	if err := r.Client.Status().Update(ctx, pod); err != nil {
		return nil, err
	}
	r.Events.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	return pod, nil
}

// evict deletes a pod because of its node's taints, and sets its condition DisruptionTarget.
func (r *podReconciler) evict(ctx context.Context, pod *corev1.Pod) error {
	key := client.ObjectKeyFromObject(pod)
	r.Events.Eventf(podReference(key), corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s", key)
	pod = pod.DeepCopy()
	pods.SetDisruptionTarget(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", r.Clock.Now())
	if err := r.Client.Status().Update(ctx, pod); err != nil {
		return err
	}
	return r.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
}
