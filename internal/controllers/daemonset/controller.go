// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
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
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
	"github.com/kindred-project/kindred/internal/controllers/framework/revisions"
)

const (
	// Name is the controller's identity.
	Name = "daemon-set-controller"
	// Source is the source of its events, which upstream spells differently.
	Source = "daemonset-controller"

	// workers limits the DaemonSets that are reconciled at a time.
	workers = 8
	// burst limits the pods that one Reconcile creates and deletes.
	burst = 250
	// Failed pods of a node are replaced after 1 s, 2 s, 4 s ... up to 15 minutes: a node
	// that rejects a pod often rejects the next one.
	initialBackoff, maxBackoff = time.Second, 15 * time.Minute
	// backoffGCInterval is the interval at which the backoff of nodes without failures is dropped.
	backoffGCInterval = time.Minute
)

var kind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// Add registers the controller. It watches DaemonSets, pods and revisions that they own,
// orphans of both kinds that they may adopt, and nodes that start or stop to fit.
func Add(env control.Env) error {
	ctx := context.Background()
	podsSeen, err := owned.Index(ctx, env.Manager.GetCache(), &corev1.Pod{})
	if err != nil {
		return err
	}
	revisionsSeen, err := owned.Index(ctx, env.Manager.GetCache(), &appsv1.ControllerRevision{})
	if err != nil {
		return err
	}
	r := newReconciler(env, podsSeen, revisionsSeen)
	if err := env.Every(backoffGCInterval, func(context.Context) error { r.backoff.GC(); return nil }); err != nil {
		return err
	}
	// New revisions do not affect pods, and the controller has created most of them.
	notCreated := predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }}
	adopters := handler.EnqueueRequestsFromMapFunc(r.adopters)
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&appsv1.DaemonSet{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, adopters, builder.WithPredicates(owned.AdoptableOrphans())).
		Owns(&appsv1.ControllerRevision{}, builder.WithPredicates(notCreated)).
		Watches(&appsv1.ControllerRevision{}, adopters, builder.WithPredicates(owned.AdoptableOrphans())).
		Watches(&corev1.Node{}, r.nodeHandler()).
		Complete(r)
}

type reconciler struct {
	client    client.Client
	live      client.Reader
	pods      pods.Control
	events    record.EventRecorder
	clock     clock.PassiveClock
	ledger    *owned.Ledger[*corev1.Pod]
	revisions revisions.Keeper
	backoff   *flowcontrol.Backoff
}

func newReconciler(env control.Env, podsSeen, revisionsSeen func() string) *reconciler {
	backoff := flowcontrol.NewBackOff(initialBackoff, maxBackoff)
	backoff.Clock = env.Clock
	return &reconciler{
		client: env.Client,
		live:   env.Live,
		pods:   pods.Control{Client: env.Client, Events: env.Events},
		events: env.Events,
		clock:  env.Clock,
		ledger: owned.NewLedger[*corev1.Pod](podsSeen),
		revisions: revisions.Keeper{
			Kind:   kind,
			Label:  hashLabel,
			Client: env.Client,
			Live:   env.Live,
			Ledger: owned.NewLedger[*appsv1.ControllerRevision](revisionsSeen),
		},
		backoff: backoff,
	}
}

// Reconcile takes the next step for one DaemonSet.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ds := &appsv1.DaemonSet{}
	if ok, err := owned.Fetch(ctx, r.client, req, ds, r.ledger.Forget, r.revisions.Ledger.Forget); !ok {
		return ctrl.Result{}, err
	}
	// The garbage collector may delete the revisions of a DaemonSet before its pods.
	// Without the revisions, nothing can be decided about the pods.
	if ds.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	if apiequality.Semantic.DeepEqual(ds.Spec.Selector, &metav1.LabelSelector{}) {
		r.events.Event(ds, corev1.EventTypeWarning, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required.")
		return ctrl.Result{}, nil
	}
	after, err := r.step(ctx, ds)
	return ctrl.Result{RequeueAfter: after}, owned.IgnoreStale(err)
}

// step decides from one view of the DaemonSet, acts, and writes the status. It returns when
// to requeue, or 0 for never.
func (r *reconciler) step(ctx context.Context, ds *appsv1.DaemonSet) (time.Duration, error) {
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil {
		return 0, reconcile.TerminalError(fmt.Errorf("daemonset %s/%s has invalid label selector: %w", ds.Namespace, ds.Name, err))
	}
	claimed, err := r.podsOf(ctx, ds, selector)
	if err != nil {
		return 0, err
	}
	h, claimed, err := r.historyOf(ctx, ds, selector, claimed)
	if err != nil {
		return 0, err
	}
	nodes := &corev1.NodeList{}
	if err := r.client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	v := newView(ds, stampOf(ds, r.revisions.Hash(h.current)), nodes.Items, claimed, r.clock.Now())
	backoff, failure := r.act(ctx, v, v.plan())
	if failure == nil {
		failure = r.trim(ctx, ds, h, claimed)
	}
	status := v.status()
	if err := r.report(ctx, ds, status); err != nil || failure != nil {
		return 0, firstError(failure, err)
	}
	return control.SoonerOf(backoff, pods.NextAvailable(claimed, ds.Spec.MinReadySeconds, v.now)), nil
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// podsOf returns the DaemonSet's pods, after adoption and release.
func (r *reconciler) podsOf(ctx context.Context, ds *appsv1.DaemonSet, selector labels.Selector) ([]*corev1.Pod, error) {
	return owned.Children[*corev1.Pod]{
		Kind:   kind,
		Client: r.client,
		Live:   r.live,
		Ledger: r.ledger,
		List:   pods.List,
	}.Find(ctx, ds, selector)
}

// act carries out a plan. It returns when the backoff of the next failed pod ends.
func (r *reconciler) act(ctx context.Context, v view, p plan) (backoff time.Duration, err error) {
	ended, backoff := r.ended(v.ds, p)
	p.remove = slices.Concat(ended, p.remove)
	p = p.bound(burst)
	createErr := r.createAll(ctx, v, p.create)
	_, removeErr := pods.Parallel(len(p.remove), func(i int) error { return r.delete(ctx, v.ds, p.remove[i]) })
	return backoff, firstError(createErr, removeErr)
}

func (r *reconciler) createAll(ctx context.Context, v view, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	if ok, err := owned.Confirm(ctx, r.live, v.ds); !ok {
		return err
	}
	_, err := pods.SlowStart(len(nodes), func(i int) error { return r.create(ctx, v, nodes[i]) })
	return err
}

func (r *reconciler) create(ctx context.Context, v view, node string) error {
	pod := newPod(v.ds, node, v.stamp)
	err := r.pods.Create(ctx, v.ds, pod)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err != nil {
		return err
	}
	r.ledger.Wrote(v.ds, pod)
	return nil
}

// delete deletes a pod, which occupies its node until it has stopped.
func (r *reconciler) delete(ctx context.Context, ds *appsv1.DaemonSet, pod *corev1.Pod) error {
	if err := r.pods.Delete(ctx, ds, pod); err != nil {
		return err
	}
	r.ledger.Terminating(ds, pod, r.clock.Now())
	return nil
}

// ended returns the ended pods to delete now, with events, and when the backoff of the next
// one ends.
func (r *reconciler) ended(ds *appsv1.DaemonSet, p plan) (remove []*corev1.Pod, wait time.Duration) {
	now := r.clock.Now()
	for _, pod := range p.failed {
		node := nodeOf(pod)
		// A new template starts without backoff.
		key := fmt.Sprintf("%s/%d/%s", ds.UID, ds.Status.ObservedGeneration, node)
		if r.backoff.IsInBackOffSinceUpdate(key, now) {
			wait = control.SoonerOf(wait, r.backoff.Get(key))
			continue
		}
		r.backoff.Next(key, now)
		r.events.Eventf(ds, corev1.EventTypeWarning, "FailedDaemonPod", "Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, node)
		remove = append(remove, pod)
	}
	for _, pod := range p.succeeded {
		r.events.Eventf(ds, corev1.EventTypeNormal, "SucceededDaemonPod", "Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, nodeOf(pod))
		remove = append(remove, pod)
	}
	return remove, wait
}

// report writes the status if it has changed.
func (r *reconciler) report(ctx context.Context, ds *appsv1.DaemonSet, status appsv1.DaemonSetStatus) error {
	if apiequality.Semantic.DeepEqual(ds.Status, status) {
		return nil
	}
	updated := ds.DeepCopy()
	updated.Status = status
	return owned.IgnoreStale(r.client.Status().Update(ctx, updated))
}
