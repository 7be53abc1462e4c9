// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// Name is the controller's identity.
const Name = "deployment-controller"

// workers limits the Deployments that are reconciled at a time.
const workers = 8

var (
	kind           = appsv1.SchemeGroupVersion.WithKind("Deployment")
	replicaSetKind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
)

// Add registers the controller. It watches Deployments, ReplicaSets that they own, orphaned
// ReplicaSets that they may adopt, and the end of pods, for which a Recreate Deployment
// waits.
func Add(env control.Env) error {
	ctx := context.Background()
	seen, err := owned.Index(ctx, env.Manager.GetCache(), &appsv1.ReplicaSet{})
	if err != nil {
		return err
	}
	if _, err := owned.Index(ctx, env.Manager.GetCache(), &corev1.Pod{}); err != nil {
		return err
	}
	r := newReconciler(env, seen)
	onlyDeletes := predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&appsv1.Deployment{}).
		Owns(&appsv1.ReplicaSet{}).
		Watches(&appsv1.ReplicaSet{}, handler.EnqueueRequestsFromMapFunc(r.adopters), builder.WithPredicates(owned.AdoptableOrphans())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.recreateDeploymentOf), builder.WithPredicates(onlyDeletes)).
		Complete(r)
}

type reconciler struct {
	client client.Client
	live   client.Reader
	events record.EventRecorder
	clock  clock.PassiveClock
	ledger *owned.Ledger[*appsv1.ReplicaSet]
}

func newReconciler(env control.Env, seen func() string) *reconciler {
	return &reconciler{
		client: env.Client,
		live:   env.Live,
		events: env.Events,
		clock:  env.Clock,
		ledger: owned.NewLedger[*appsv1.ReplicaSet](seen),
	}
}

// Reconcile takes one Deployment one step further.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cached := &appsv1.Deployment{}
	if ok, err := owned.Fetch(ctx, r.client, req, cached, r.ledger.Forget); !ok {
		return ctrl.Result{}, err
	}
	d := cached.DeepCopy()
	if apiequality.Semantic.DeepEqual(d.Spec.Selector, &metav1.LabelSelector{}) {
		return ctrl.Result{}, r.reportSelectsAll(ctx, cached, d)
	}
	sets, err := r.replicaSets(ctx, d)
	if err != nil {
		return ctrl.Result{}, err
	}
	current := &reconciliation{reconciler: r, d: d, limits: limitsOf(d)}
	current.newest, current.old = splitNewest(d, sets)
	stepErr := owned.IgnoreStale(current.step(ctx))
	status := current.status(stepErr)
	if err := r.report(ctx, cached, current.d, status); err != nil {
		return ctrl.Result{}, err
	}
	if stepErr != nil {
		return ctrl.Result{}, stepErr
	}
	return ctrl.Result{RequeueAfter: progressCheck(current.d, &status, r.clock.Now())}, nil
}

// replicaSets returns the Deployment's ReplicaSets, after adoption and release.
func (r *reconciler) replicaSets(ctx context.Context, d *appsv1.Deployment) ([]*appsv1.ReplicaSet, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("deployment %s/%s has invalid label selector: %w", d.Namespace, d.Name, err))
	}
	return owned.Children[*appsv1.ReplicaSet]{
		Kind:   kind,
		Client: r.client,
		Live:   r.live,
		Ledger: r.ledger,
		List:   listReplicaSets,
	}.Find(ctx, d, selector)
}

func listReplicaSets(ctx context.Context, from client.Reader, opts ...client.ListOption) ([]*appsv1.ReplicaSet, error) {
	found := &appsv1.ReplicaSetList{}
	if err := from.List(ctx, found, opts...); err != nil {
		return nil, err
	}
	return owned.Pointers(found.Items), nil
}

// report writes the changed status and revision annotation of d. Both go in one status
// update: the status strategy of Deployments accepts annotations, and unlike an update of
// the annotations it does not increment the generation.
func (r *reconciler) report(ctx context.Context, cached, d *appsv1.Deployment, status appsv1.DeploymentStatus) error {
	d.Status = status
	if apiequality.Semantic.DeepEqual(cached.Status, d.Status) && apiequality.Semantic.DeepEqual(cached.Annotations, d.Annotations) {
		return nil
	}
	return owned.IgnoreStale(r.client.Status().Update(ctx, d))
}

// reportSelectsAll records an event for a Deployment that selects all pods. Nothing else is done
// for it.
func (r *reconciler) reportSelectsAll(ctx context.Context, cached, d *appsv1.Deployment) error {
	r.events.Event(d, corev1.EventTypeWarning, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required.")
	status := *d.Status.DeepCopy()
	status.ObservedGeneration = d.Generation
	return r.report(ctx, cached, d, status)
}

// adopters returns a request for each Deployment that selects an orphaned ReplicaSet.
func (r *reconciler) adopters(ctx context.Context, rs client.Object) []reconcile.Request {
	found := &appsv1.DeploymentList{}
	if err := r.client.List(ctx, found, client.InNamespace(rs.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the Deployments that may adopt a ReplicaSet", "replicaSet", klog.KObj(rs))
		return nil
	}
	return owned.Selecting(rs, found.Items, func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector })
}

// recreateDeploymentOf returns a request for the Recreate Deployment that owns the ReplicaSet
// of a pod.
func (r *reconciler) recreateDeploymentOf(ctx context.Context, pod client.Object) []reconcile.Request {
	rs, d := &appsv1.ReplicaSet{}, &appsv1.Deployment{}
	if !r.ownerOf(ctx, pod, replicaSetKind.Kind, rs) || !r.ownerOf(ctx, rs, kind.Kind, d) ||
		d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(d)}}
}

// ownerOf reads the controller of obj, if it is of the given kind and exists.
func (r *reconciler) ownerOf(ctx context.Context, obj client.Object, kind string, into client.Object) bool {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil || ref.Kind != kind {
		return false
	}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: obj.GetNamespace(), Name: ref.Name}, into)
	return err == nil && into.GetUID() == ref.UID
}
