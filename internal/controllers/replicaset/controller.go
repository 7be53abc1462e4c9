// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

const (
	// workers limits the objects of a kind that are reconciled at a time.
	workers = 8
	// burst limits the pods that one Reconcile creates or deletes, so that a large object
	// reports its progress and leaves room for others.
	burst = 500
)

// add registers the controller for one kind. It watches objects of the kind, pods that
// they own, and orphaned pods that they may adopt.
func add[O any, P object[O]](env control.Env, of kind[O, P]) error {
	ctx := context.Background()
	seen, err := owned.Index(ctx, env.Manager.GetCache(), &corev1.Pod{})
	if err != nil {
		return err
	}
	if _, err := owned.Index(ctx, env.Manager.GetCache(), P(new(O))); err != nil {
		return err
	}
	r := newReconciler(env, of, seen)
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(of.name).
		WithOptions(env.Options(workers)).
		For(P(new(O))).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.adopters), builder.WithPredicates(owned.AdoptableOrphans())).
		Complete(r)
}

type reconciler[O any, P object[O]] struct {
	kind   kind[O, P]
	client client.Client
	live   client.Reader
	pods   pods.Control
	clock  clock.PassiveClock
	ledger *owned.Ledger[*corev1.Pod]
	pace   *control.Pace
}

func newReconciler[O any, P object[O]](env control.Env, of kind[O, P], seen func() string) *reconciler[O, P] {
	return &reconciler[O, P]{
		kind:   of,
		client: env.Client,
		live:   env.Live,
		pods:   pods.Control{Client: env.Client, Events: env.Events},
		clock:  env.Clock,
		ledger: owned.NewLedger[*corev1.Pod](seen),
		pace:   control.NewPace(env.Clock),
	}
}

// Reconcile scales the pods of one object to spec.replicas. It reads and writes the
// object, and decides from its view.
func (r *reconciler[O, P]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if wait := r.pace.Wait(req.NamespacedName); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	obj := P(new(O))
	if ok, err := owned.Fetch(ctx, r.client, req, obj, r.ledger.Forget); !ok {
		return ctrl.Result{}, err
	}
	rs := r.kind.view(obj)
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		// Validation refuses such a selector; a retry would not help.
		klog.FromContext(ctx).Error(err, "Invalid selector", "kind", r.kind.gvk.Kind, "object", klog.KObj(obj))
		return ctrl.Result{}, nil
	}
	active, terminating, err := r.podsOf(ctx, obj, selector)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer r.pace.Reconciled(req.NamespacedName, len(active)+len(terminating))
	var failure error
	if obj.GetDeletionTimestamp() == nil {
		failure = r.scale(ctx, obj, active)
	}
	now := r.clock.Now()
	status := statusOf(rs, active, failure, now)
	if r.kind.countsTerminating {
		status.TerminatingReplicas = ptr.To(int32(len(terminating)))
	}
	if err := r.report(ctx, obj, status); err != nil {
		return ctrl.Result{}, err
	}
	if failure != nil {
		return ctrl.Result{}, failure
	}
	return ctrl.Result{RequeueAfter: pods.NextAvailable(active, rs.Spec.MinReadySeconds, now)}, nil
}

// podsOf returns the object's active pods, after adoption and release, and its terminating
// pods.
func (r *reconciler[O, P]) podsOf(ctx context.Context, obj P, selector labels.Selector) (active, terminating []*corev1.Pod, err error) {
	children := owned.Children[*corev1.Pod]{
		Kind:   r.kind.gvk,
		Client: r.client,
		Live:   r.live,
		Ledger: r.ledger,
		List:   pods.List,
	}
	all, err := children.Candidates(ctx, obj, selector)
	if err != nil {
		return nil, nil, err
	}
	active, err = children.Claim(ctx, obj, selector, pods.Filter(all, pods.IsActive))
	if err != nil {
		return nil, nil, err
	}
	isOwned := pods.OwnedBy(obj.GetUID(), selector)
	terminating = pods.Filter(all, func(pod *corev1.Pod) bool { return pods.IsTerminating(pod) && isOwned(pod) })
	return active, terminating, nil
}

// scale creates missing pods or deletes surplus ones.
func (r *reconciler[O, P]) scale(ctx context.Context, obj P, active []*corev1.Pod) error {
	switch missing := desired(r.kind.view(obj)) - len(active); {
	case missing > 0:
		return r.create(ctx, obj, min(missing, burst))
	case missing < 0:
		return r.delete(ctx, obj, active, min(-missing, burst))
	default:
		return nil
	}
}

func (r *reconciler[O, P]) create(ctx context.Context, obj P, n int) error {
	if ok, err := owned.Confirm(ctx, r.live, obj); !ok {
		return err
	}
	template := &r.kind.view(obj).Spec.Template
	_, err := pods.SlowStart(n, func(int) error {
		pod := pods.FromTemplate(template, obj, r.kind.gvk)
		if err := r.pods.Create(ctx, obj, pod); err != nil {
			return err
		}
		r.ledger.Wrote(obj, pod)
		return nil
	})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

func (r *reconciler[O, P]) delete(ctx context.Context, obj P, active []*corev1.Pod, n int) error {
	related, err := r.related(ctx, obj)
	if err != nil {
		return err
	}
	victims := pods.Victims(active, related, n, r.clock.Now())
	_, err = pods.Parallel(len(victims), func(i int) error {
		if err := r.pods.Delete(ctx, obj, victims[i]); err != nil {
			return err
		}
		r.ledger.Deleted(obj, victims[i])
		return nil
	})
	return err
}

// related returns the pods of all objects of the kind with the same controller as obj,
// including its own: during a rollout they are replicas of one application.
func (r *reconciler[O, P]) related(ctx context.Context, obj P) ([]*corev1.Pod, error) {
	siblings := []O{*obj}
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		var err error
		if siblings, err = r.kind.list(ctx, r.client, owned.By(obj.GetNamespace(), string(owner.UID))...); err != nil {
			return nil, err
		}
	}
	var related []*corev1.Pod
	for i := range siblings {
		found, err := pods.List(ctx, r.client, owned.By(obj.GetNamespace(), string(P(&siblings[i]).GetUID()))...)
		if err != nil {
			return nil, err
		}
		related = append(related, found...)
	}
	return related, nil
}

// report writes the status if it has changed.
func (r *reconciler[O, P]) report(ctx context.Context, obj P, status appsv1.ReplicaSetStatus) error {
	if apiequality.Semantic.DeepEqual(r.kind.view(obj).Status, status) {
		return nil
	}
	updated := obj.DeepCopyObject().(P)
	r.kind.setStatus(updated, status)
	return owned.IgnoreStale(r.client.Status().Update(ctx, updated))
}

// adopters returns a request for each object that selects an orphaned pod.
func (r *reconciler[O, P]) adopters(ctx context.Context, pod client.Object) []reconcile.Request {
	found, err := r.kind.list(ctx, r.client, client.InNamespace(pod.GetNamespace()), client.UnsafeDisableDeepCopy)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the objects that may adopt a pod", "kind", r.kind.gvk.Kind, "pod", klog.KObj(pod))
		return nil
	}
	return owned.Selecting(pod, found, func(obj P) *metav1.LabelSelector { return r.kind.view(obj).Spec.Selector })
}
