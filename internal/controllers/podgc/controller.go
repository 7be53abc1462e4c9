// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podgc

import (
	"context"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// Name is the controller's identity.
const Name = "pod-garbage-collector"

const (
	// period is the time between two checks.
	period = 20 * time.Second
	// quarantine is the time that a node must be missing before its pods are deleted: the
	// cache may not have the node yet.
	quarantine = 40 * time.Second
)

// everything is the one request of this controller.
var everything = reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}

// Add returns the function that registers the controller, which keeps threshold ended pods, or all
// if threshold is not positive. It runs at the start and periodically, and watches nodes for deletion
// and for the out-of-service taint.
func Add(threshold int) func(control.Env) error {
	return func(env control.Env) error { return add(env, threshold) }
}

func add(env control.Env, threshold int) error {
	wake := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{everything} }
	atStart := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(everything)
		return nil
	})
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(1)).
		WatchesRawSource(atStart).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(wake), builder.WithPredicates(nodeTrouble())).
		Complete(newReconciler(env, threshold))
}

// nodeTrouble passes deletions of nodes, and updates of nodes that are out of service.
func nodeTrouble() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, okBefore := e.ObjectOld.(*corev1.Node)
			after, okAfter := e.ObjectNew.(*corev1.Node)
			return okBefore && okAfter && isOutOfService(after) && !isOutOfService(before)
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

type reconciler struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	// threshold is the number of ended pods to keep.
	threshold int
	// missing holds since when a node of pods is not in the cache. There is one worker,
	// so it needs no lock.
	missing map[string]time.Time
}

func newReconciler(env control.Env, threshold int) *reconciler {
	if threshold <= 0 {
		threshold = math.MaxInt
	}
	return &reconciler{client: env.Client, live: env.Live, clock: env.Clock, threshold: threshold, missing: map[string]time.Time{}}
}

// Reconcile checks all pods and deletes the garbage.
func (r *reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	all, err := pods.List(ctx, r.client, client.UnsafeDisableDeepCopy)
	if err != nil {
		return ctrl.Result{}, err
	}
	nodeList := &corev1.NodeList{}
	if err := r.client.List(ctx, nodeList, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, err
	}
	nodes := make(map[string]*corev1.Node, len(nodeList.Items))
	for i := range nodeList.Items {
		nodes[nodeList.Items[i].Name] = &nodeList.Items[i]
	}
	victims := garbage(all, nodes, r.lost(ctx, all, nodes), r.threshold)
	_, err = pods.Parallel(len(victims), func(i int) error { return r.remove(ctx, victims[i]) })
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: period}, nil
}

// lost returns the nodes that have been missing for the quarantine and do not exist in the API.
func (r *reconciler) lost(ctx context.Context, all []*corev1.Pod, nodes map[string]*corev1.Node) map[string]bool {
	now, missing, lost := r.clock.Now(), map[string]time.Time{}, map[string]bool{}
	for _, pod := range all {
		name := pod.Spec.NodeName
		if name == "" || nodes[name] != nil || !missing[name].IsZero() {
			continue
		}
		missing[name] = now
		if since, known := r.missing[name]; known {
			missing[name] = since
		}
		if now.Sub(missing[name]) < quarantine {
			continue
		}
		switch err := r.live.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{}); {
		case apierrors.IsNotFound(err):
			lost[name] = true
		case err != nil:
			klog.FromContext(ctx).Error(err, "Cannot check whether a node exists, keeping its pods", "node", name)
		}
	}
	r.missing = missing
	return lost
}

// remove marks a pod as failed and deletes it with grace period 0. There may be no node agent to
// report its end, which its controllers must see before the pod is removed.
func (r *reconciler) remove(ctx context.Context, v victim) error {
	klog.FromContext(ctx).Info("Deleting an abandoned pod", "pod", klog.KObj(v.pod), "reason", string(v.reason))
	if !pods.IsTerminal(v.pod) {
		failed := v.pod.DeepCopy()
		failed.Status.Phase = corev1.PodFailed
		failed.Status.ObservedGeneration = failed.Generation
		if v.reason == orphaned {
			pods.SetDisruptionTarget(failed, "DeletionByPodGC", "PodGC: node no longer exists", r.clock.Now())
		}
		// The resource version protects a new pod of the same name.
		patch := client.StrategicMergeFrom(v.pod, client.MergeFromWithOptimisticLock{})
		if err := r.client.Status().Patch(ctx, failed, patch); err != nil {
			return owned.IgnoreStale(err)
		}
	}
	err := r.client.Delete(ctx, v.pod.DeepCopy(), client.GracePeriodSeconds(0), client.Preconditions{UID: &v.pod.UID})
	return owned.IgnoreStale(err)
}
