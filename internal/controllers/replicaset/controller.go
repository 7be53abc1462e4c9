// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/control"
	"github.com/kindred-project/kindred/internal/controllers/owned"
	"github.com/kindred-project/kindred/internal/controllers/pods"
)

// Name is the controller's identity.
const Name = "replicaset-controller"

const (
	// workers is how many ReplicaSets are reconciled at a time.
	workers = 8
	// burst bounds the pods that one pass creates or deletes, so that a huge
	// ReplicaSet reports progress and leaves room for others.
	burst = 500
)

var kind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

// Add registers the controller: woken by its ReplicaSets, by pods they own, and
// by orphaned pods that one of them might adopt.
func Add(env control.Env) error {
	ctx := context.Background()
	seen, err := owned.Index(ctx, env.Manager.GetCache(), &corev1.Pod{})
	if err != nil {
		return err
	}
	if _, err := owned.Index(ctx, env.Manager.GetCache(), &appsv1.ReplicaSet{}); err != nil {
		return err
	}
	r := newReconciler(env, seen)
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&appsv1.ReplicaSet{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.adopters), builder.WithPredicates(owned.NewOrphans())).
		Complete(r)
}

type reconciler struct {
	client client.Client
	live   client.Reader
	pods   pods.Control
	clock  clock.PassiveClock
	ledger *owned.Ledger[*corev1.Pod]
}

func newReconciler(env control.Env, seen func() string) *reconciler {
	return &reconciler{
		client: env.Client,
		live:   env.Live,
		pods:   pods.Control{Client: env.Client, Events: env.Events},
		clock:  env.Clock,
		ledger: owned.NewLedger[*corev1.Pod](seen),
	}
}

// Reconcile brings one ReplicaSet's pods to the number it asks for.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	rs := &appsv1.ReplicaSet{}
	if err := r.client.Get(ctx, req.NamespacedName, rs); err != nil {
		if apierrors.IsNotFound(err) {
			r.ledger.Forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		// Validation refuses such a selector; to try again would not mend it.
		klog.FromContext(ctx).Error(err, "ReplicaSet has an invalid selector", "replicaSet", klog.KObj(rs))
		return ctrl.Result{}, nil
	}
	active, terminating, err := r.podsOf(ctx, rs, selector)
	if err != nil {
		return ctrl.Result{}, err
	}
	var failure error
	if rs.DeletionTimestamp == nil {
		failure = r.scale(ctx, rs, active)
	}
	now := r.clock.Now()
	status := statusOf(rs, active, terminating, failure, now)
	if err := r.report(ctx, rs, status); err != nil {
		return ctrl.Result{}, err
	}
	if failure != nil {
		return ctrl.Result{}, failure
	}
	return ctrl.Result{RequeueAfter: nextCheck(rs, active, status, now)}, nil
}

// podsOf returns the ReplicaSet's active pods, after adoption and release, and
// those of its pods that are terminating.
func (r *reconciler) podsOf(ctx context.Context, rs *appsv1.ReplicaSet, selector labels.Selector) (active, terminating []*corev1.Pod, err error) {
	all, err := r.ledger.Read(rs, func() ([]*corev1.Pod, error) {
		mine, err := r.list(ctx, owned.By(rs.Namespace, string(rs.UID))...)
		if err != nil {
			return nil, err
		}
		orphans, err := r.list(ctx, append(owned.By(rs.Namespace, owned.Orphan), client.MatchingLabelsSelector{Selector: selector})...)
		return append(mine, orphans...), err
	})
	if err != nil {
		return nil, nil, err
	}
	claim := owned.Claim[*corev1.Pod]{
		Controller: rs,
		Kind:       kind,
		Selector:   selector,
		Client:     r.client,
		Live:       r.live,
		Ledger:     r.ledger,
		Copy:       (*corev1.Pod).DeepCopy,
	}
	active, err = claim.Filter(ctx, pods.Filter(all, pods.IsActive))
	if err != nil {
		return nil, nil, err
	}
	mine := pods.OwnedBy(rs.UID, selector)
	terminating = pods.Filter(all, func(pod *corev1.Pod) bool { return pods.IsTerminating(pod) && mine(pod) })
	return active, terminating, nil
}

func (r *reconciler) list(ctx context.Context, opts ...client.ListOption) ([]*corev1.Pod, error) {
	found := &corev1.PodList{}
	if err := r.client.List(ctx, found, opts...); err != nil {
		return nil, err
	}
	return pods.Pointers(found), nil
}

// scale creates what is missing or deletes what is too much.
func (r *reconciler) scale(ctx context.Context, rs *appsv1.ReplicaSet, active []*corev1.Pod) error {
	switch missing := desired(rs) - len(active); {
	case missing > 0:
		return r.create(ctx, rs, min(missing, burst))
	case missing < 0:
		return r.delete(ctx, rs, active, min(-missing, burst))
	default:
		return nil
	}
}

func (r *reconciler) create(ctx context.Context, rs *appsv1.ReplicaSet, n int) error {
	_, err := pods.SlowStart(n, func() error {
		pod := pods.FromTemplate(&rs.Spec.Template, rs, kind)
		if err := r.pods.Create(ctx, rs, pod); err != nil {
			return err
		}
		r.ledger.Wrote(rs, pod)
		return nil
	})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

func (r *reconciler) delete(ctx context.Context, rs *appsv1.ReplicaSet, active []*corev1.Pod, n int) error {
	related, err := r.related(ctx, rs)
	if err != nil {
		return err
	}
	victims := pods.Victims(active, related, n, r.clock.Now())
	_, err = pods.Parallel(len(victims), func(i int) error {
		if err := r.pods.Delete(ctx, rs, victims[i]); err != nil {
			return err
		}
		r.ledger.Deleted(rs, victims[i])
		return nil
	})
	return err
}

// related returns the pods of all ReplicaSets that have the same controller as
// rs, itself included: during a rollout they are replicas of one application.
func (r *reconciler) related(ctx context.Context, rs *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	siblings := &appsv1.ReplicaSetList{Items: []appsv1.ReplicaSet{*rs}}
	if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
		if err := r.client.List(ctx, siblings, owned.By(rs.Namespace, string(owner.UID))...); err != nil {
			return nil, err
		}
	}
	var related []*corev1.Pod
	for i := range siblings.Items {
		found, err := r.list(ctx, owned.By(rs.Namespace, string(siblings.Items[i].UID))...)
		if err != nil {
			return nil, err
		}
		related = append(related, found...)
	}
	return related, nil
}

// report writes the status if it says something new.
func (r *reconciler) report(ctx context.Context, rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) error {
	if apiequality.Semantic.DeepEqual(rs.Status, status) {
		return nil
	}
	updated := rs.DeepCopy()
	updated.Status = status
	return owned.IgnoreStale(r.client.Status().Update(ctx, updated))
}

// nextCheck returns when a ready pod will have been ready for long enough: no
// event says so.
func nextCheck(rs *appsv1.ReplicaSet, active []*corev1.Pod, status appsv1.ReplicaSetStatus, now time.Time) time.Duration {
	if status.ReadyReplicas == status.AvailableReplicas {
		return 0
	}
	wait, coming := pods.NextAvailable(active, rs.Spec.MinReadySeconds, now)
	if !coming {
		return time.Duration(rs.Spec.MinReadySeconds) * time.Second
	}
	return wait
}

// adopters names the ReplicaSets that select an orphaned pod.
func (r *reconciler) adopters(ctx context.Context, pod client.Object) []reconcile.Request {
	sets := &appsv1.ReplicaSetList{}
	if err := r.client.List(ctx, sets, client.InNamespace(pod.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the ReplicaSets that might adopt a pod", "pod", klog.KObj(pod))
		return nil
	}
	return owned.Selecting(pod, sets.Items, func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector })
}
