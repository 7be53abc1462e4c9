// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storagemigration writes all objects of a resource anew, unchanged, so that the
// store holds each as the API server writes it today: in the present storage version, or
// encrypted with the present key (KEP-4192).
//
// A StorageVersionMigration goes through its life in steps, each ended by one write of
// its status, which wakes the next: it begins when no other of its resource runs; it
// notes the newest resourceVersion; it writes every object that is not newer; it
// finishes. A CustomResourceDefinition is told when a migration begins and ends, and then
// has one stored version only. The steps of one resource follow each other; migrations
// of different ones run beside each other.
package storagemigration

import (
	"context"
	"fmt"

	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// Name is the controller's identity, and the manager of what it writes.
const Name = "storage-version-migrator-controller"

const workers = 5

type migration = migrationv1.StorageVersionMigration

// Add registers the controller: woken, for a resource, by all migrations of it.
func Add(env control.Env) error {
	r := &reconciler{client: env.Client, live: env.Live, discovery: env.Discovery, clock: env.Clock}
	resourceOf := func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{requestFor(o.(*migration).Spec.Resource)}
	}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		Watches(&migration{}, handler.EnqueueRequestsFromMapFunc(resourceOf)).
		Complete(r)
}

// requestFor puts a resource where requests have an object's name, and its group where
// they have the namespace.
func requestFor(resource metav1.GroupResource) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: resource.Group, Name: resource.Resource}}
}

type reconciler struct {
	client    client.Client
	live      client.Reader
	discovery discovery.DiscoveryInterface
	clock     clock.PassiveClock
}

// Reconcile takes one step in the migrations of one resource.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	all := &migrationv1.StorageVersionMigrationList{}
	if err := r.client.List(ctx, all); err != nil {
		return ctrl.Result{}, err
	}
	m, step := next(all.Items, metav1.GroupResource{Group: req.Namespace, Resource: req.Name})
	if step == nothing {
		return ctrl.Result{}, nil
	}
	m = m.DeepCopy()
	switch step {
	case finish:
		return ctrl.Result{}, r.finish(ctx, m)
	case begin:
		return ctrl.Result{}, r.begin(ctx, m)
	default:
		return ctrl.Result{}, r.run(ctx, m)
	}
}

// step is what a resource's migrations need next.
type step int

const (
	nothing step = iota
	begin
	run
	finish
)

// next chooses the migration to go on with. One at a time runs, the oldest first.
func next(all []migration, resource metav1.GroupResource) (*migration, step) {
	var chosen *migration
	does := nothing
	for i := range all {
		m := &all[i]
		if m.Spec.Resource != resource {
			continue
		}
		s := state(m)
		if s > does || s == does && s == begin && older(m, chosen) {
			chosen, does = m, s
		}
	}
	return chosen, does
}

// state is what one migration needs next, for itself.
func state(m *migration) step {
	running, ended := is(m, migrationv1.MigrationRunning), is(m, migrationv1.MigrationSucceeded) || is(m, migrationv1.MigrationFailed)
	switch {
	case running && ended:
		return finish
	case running:
		return run
	case ended:
		return nothing
	default:
		return begin
	}
}

func older(a, b *migration) bool {
	if at, bt := a.CreationTimestamp.Time, b.CreationTimestamp.Time; !at.Equal(bt) {
		return at.Before(bt)
	}
	return a.Name < b.Name
}

func is(m *migration, t migrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
}

// Reasons of conditions.
const (
	reasonRunning   = "MigrationRunning"
	reasonCompleted = "MigrationCompleted"
	reasonSucceeded = "StorageVersionMigrationSucceeded"
	reasonFailed    = "StorageVersionMigrationFailed"
)

// set sets a condition.
func (r *reconciler) set(m *migration, t migrationv1.MigrationConditionType, status metav1.ConditionStatus, reason, message string) bool {
	return meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: string(t), Status: status, LastTransitionTime: metav1.NewTime(r.clock.Now()), Reason: reason, Message: message,
	})
}

func (r *reconciler) begin(ctx context.Context, m *migration) error {
	if err := r.tellDefinition(ctx, m, beginning(m.Name)); err != nil {
		return err
	}
	r.set(m, migrationv1.MigrationRunning, metav1.ConditionTrue, reasonRunning, progress{}.message())
	return r.write(ctx, m)
}

func (r *reconciler) finish(ctx context.Context, m *migration) error {
	if err := r.tellDefinition(ctx, m, ending(is(m, migrationv1.MigrationSucceeded))); err != nil {
		return err
	}
	r.set(m, migrationv1.MigrationRunning, metav1.ConditionFalse, reasonCompleted, "Migration completed")
	return r.write(ctx, m)
}

func (r *reconciler) fail(ctx context.Context, m *migration, message string) error {
	r.set(m, migrationv1.MigrationFailed, metav1.ConditionTrue, reasonFailed, message)
	return r.write(ctx, m)
}

func (r *reconciler) write(ctx context.Context, m *migration) error {
	return owned.IgnoreStale(r.client.Status().Update(ctx, m))
}

// progress counts the objects of a migration.
type progress struct {
	left, total int
	err         error // what it waits to have passed
}

func (p progress) message() string {
	message := "The migration is running"
	switch {
	case p.total == 0:
	case p.left > 0:
		message += fmt.Sprintf(", %d/%d objects not yet migrated", p.left, p.total)
	default:
		message += fmt.Sprintf(", %d objects verified migrated", p.total)
	}
	if p.err != nil {
		message += fmt.Sprintf("; transient error: %s", p.err)
	}
	return message
}
