// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storagemigration rewrites all objects of a resource without changes, so that the store
// has them in the current storage version, or encrypted with the current key (KEP-4192).
//
// A StorageVersionMigration runs in steps. Each step ends with an update of its status, which
// triggers the next one: it starts when no other migration of its resource runs, records the
// newest resourceVersion, rewrites all objects that are not newer, and finishes. The start and
// the end are recorded in the status of a CustomResourceDefinition, which then has a single
// stored version. Migrations of one resource run one after the other, those of different
// resources run concurrently.
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

// Name is the controller's identity and field manager.
const Name = "storage-version-migrator-controller"

const workers = 5

type migration = migrationv1.StorageVersionMigration

// Add registers the controller. Each migration requeues its resource.
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

// requestFor returns the request of a resource: the resource is in place of the name, and its group in
// place of the namespace.
func requestFor(resource metav1.GroupResource) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: resource.Group, Name: resource.Resource}}
}

type reconciler struct {
	client    client.Client
	live      client.Reader
	discovery discovery.DiscoveryInterface
	clock     clock.PassiveClock
}

// Reconcile takes the next step of the migrations of one resource.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	all := &migrationv1.StorageVersionMigrationList{}
	if err := r.client.List(ctx, all); err != nil {
		return ctrl.Result{}, err
	}
	m, step := next(all.Items, metav1.GroupResource{Group: req.Namespace, Resource: req.Name})
	if step == noStep {
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

// step is the next step of a resource's migrations.
type step int

const (
	noStep step = iota
	begin
	run
	finish
)

// next selects the migration to continue. One runs at a time, the oldest first.
func next(all []migration, resource metav1.GroupResource) (*migration, step) {
	var chosen *migration
	chosenStep := noStep
	for i := range all {
		m := &all[i]
		if m.Spec.Resource != resource {
			continue
		}
		s := nextStep(m)
		if s > chosenStep || s == chosenStep && s == begin && older(m, chosen) {
			chosen, chosenStep = m, s
		}
	}
	return chosen, chosenStep
}

// nextStep returns the next step of a single migration.
func nextStep(m *migration) step {
	running, ended := isTrue(m, migrationv1.MigrationRunning), isTrue(m, migrationv1.MigrationSucceeded) || isTrue(m, migrationv1.MigrationFailed)
	switch {
	case running && ended:
		return finish
	case running:
		return run
	case ended:
		return noStep
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

func isTrue(m *migration, t migrationv1.MigrationConditionType) bool {
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
	if err := r.updateDefinition(ctx, m, startCondition(m.Name)); err != nil {
		return err
	}
	r.set(m, migrationv1.MigrationRunning, metav1.ConditionTrue, reasonRunning, progress{}.message())
	return r.write(ctx, m)
}

func (r *reconciler) finish(ctx context.Context, m *migration) error {
	if err := r.updateDefinition(ctx, m, endCondition(isTrue(m, migrationv1.MigrationSucceeded))); err != nil {
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
	err         error // a transient error, which is retried
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
