// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/record"
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
	// Name is the controller's identity, and the source of its events.
	Name = "statefulset-controller"

	// workers limits the StatefulSets that are reconciled at a time.
	workers = 8
	// burst limits the pods that one pass creates or deletes.
	burst = 500
	// revisionHashLabel holds the hash of a ControllerRevision.
	revisionHashLabel = "controller.kubernetes.io/hash"
)

var kind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

// Add registers the controller. It watches StatefulSets, pods and revisions that they own,
// orphans of both kinds that they may adopt, and the deletion of claims, for which a pod may
// be waiting.
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
	adopters := handler.EnqueueRequestsFromMapFunc(r.adopters)
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&appsv1.StatefulSet{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, adopters, builder.WithPredicates(owned.AdoptableOrphans())).
		Watches(&appsv1.ControllerRevision{}, adopters, builder.WithPredicates(owned.AdoptableOrphans())).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.claimants), builder.WithPredicates(onlyDeleted)).
		Complete(r)
}

var onlyDeleted = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
}

type reconciler struct {
	client    client.Client
	live      client.Reader
	events    record.EventRecorder
	clock     clock.PassiveClock
	ledger    *owned.Ledger[*corev1.Pod]
	revisions revisions.Keeper
}

func newReconciler(env control.Env, podsSeen, revisionsSeen func() string) *reconciler {
	return &reconciler{
		client: env.Client,
		live:   env.Live,
		events: env.Events,
		clock:  env.Clock,
		ledger: owned.NewLedger[*corev1.Pod](podsSeen),
		revisions: revisions.Keeper{
			Kind:   kind,
			Label:  revisionHashLabel,
			Client: env.Client,
			Live:   env.Live,
			Ledger: owned.NewLedger[*appsv1.ControllerRevision](revisionsSeen),
		},
	}
}

// Reconcile takes the next step for one StatefulSet.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set := &appsv1.StatefulSet{}
	if ok, err := owned.Fetch(ctx, r.client, req, set, r.ledger.Forget, r.revisions.Ledger.Forget); !ok {
		return ctrl.Result{}, err
	}
	after, err := r.step(ctx, set)
	if err = owned.IgnoreStale(err); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// step decides from one view of the StatefulSet, acts, and writes the status. It returns when
// to requeue, or 0 for never.
func (r *reconciler) step(ctx context.Context, set *appsv1.StatefulSet) (time.Duration, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return 0, reconcile.TerminalError(fmt.Errorf("statefulset %s/%s has invalid label selector: %w", set.Namespace, set.Name, err))
	}
	claimed, err := r.podsOf(ctx, set, selector)
	if err != nil {
		return 0, err
	}
	if set.DeletionTimestamp != nil {
		return 0, r.report(ctx, set, newView(set, lastHistory(set), claimed, r.clock.Now()).status(nil))
	}
	h, err := r.historyOf(ctx, set, selector)
	if err != nil {
		return 0, err
	}
	v := newView(set, h, claimed, r.clock.Now())
	if err := r.readClaims(ctx, &v); err != nil {
		return 0, err
	}
	removed, failure := r.act(ctx, v, v.plan())
	if failure == nil {
		failure = r.trim(ctx, set, h, claimed)
	}
	if err := r.report(ctx, set, v.status(removed)); failure == nil {
		failure = err
	}
	return pods.NextAvailable(claimed, set.Spec.MinReadySeconds, v.now), failure
}

// podsOf returns the StatefulSet's pods, after adoption and release. A pod with another name
// is not its pod, whatever its labels are.
func (r *reconciler) podsOf(ctx context.Context, set *appsv1.StatefulSet, selector labels.Selector) ([]*corev1.Pod, error) {
	return owned.Children[*corev1.Pod]{
		Kind: kind,
		Matches: func(pod *corev1.Pod) bool {
			_, ok := ordinalOf(set, pod)
			return ok
		},
		Client: r.client,
		Live:   r.live,
		Ledger: r.ledger,
		List:   pods.List,
	}.Find(ctx, set, selector)
}

// readClaims adds the claims to the replicas of a view.
func (r *reconciler) readClaims(ctx context.Context, v *view) error {
	for _, replicas := range [][]replica{v.replicas, v.surplus} {
		for i := range replicas {
			claims, err := r.claimsOf(ctx, v.set, replicas[i].ordinal)
			if err != nil {
				return err
			}
			replicas[i].claims = claims
		}
	}
	return nil
}

func (r *reconciler) claimsOf(ctx context.Context, set *appsv1.StatefulSet, ordinal int) ([]*corev1.PersistentVolumeClaim, error) {
	claims := make([]*corev1.PersistentVolumeClaim, len(set.Spec.VolumeClaimTemplates))
	for i := range claims {
		claim := &corev1.PersistentVolumeClaim{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: claimName(set, &set.Spec.VolumeClaimTemplates[i], ordinal)}, claim)
		switch {
		case err == nil:
			claims[i] = claim
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return claims, nil
}

// report writes the status if it has changed.
func (r *reconciler) report(ctx context.Context, set *appsv1.StatefulSet, status appsv1.StatefulSetStatus) error {
	if apiequality.Semantic.DeepEqual(set.Status, status) {
		return nil
	}
	updated := set.DeepCopy()
	updated.Status = status
	return owned.IgnoreStale(r.client.Status().Update(ctx, updated))
}
