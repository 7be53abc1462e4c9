// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

const (
	// BinderName is the identity of the binder.
	BinderName = "persistent-volume-binder"
	// BinderSource is the source of its events.
	BinderSource = "persistentvolume-controller"

	binderWorkers = 8
	// conflictDelay is the delay after a write that was based on a stale cache. The object that changed may
	// be another one than the one of the request, so its event alone does not repeat the request.
	conflictDelay = 50 * time.Millisecond
)

// binder binds claims and volumes. A request without a namespace names a volume.
type binder struct {
	client client.Client
	live   client.Reader
	events record.EventRecorder

	claims  latest[*corev1.PersistentVolumeClaim]
	volumes latest[*corev1.PersistentVolume]
	// matching is held from the choice of a volume for a claim until that is written, so that no two
	// claims are matched with one volume.
	matching sync.Mutex
}

// AddBinder registers the binder.
func AddBinder(env control.Env) error {
	b := newBinder(env)
	return b.watch(env)
}

func newBinder(env control.Env) *binder {
	return &binder{client: env.Client, live: env.Live, events: env.Events}
}

// Reconcile takes the next step for a claim or a volume.
func (b *binder) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var err error
	if req.Namespace == "" {
		err = b.reconcileVolume(ctx, req.Name)
	} else {
		err = b.reconcileClaim(ctx, req.NamespacedName)
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{}, owned.IgnoreStale(err)
}

func (b *binder) reconcileClaim(ctx context.Context, key client.ObjectKey) error {
	claim := &corev1.PersistentVolumeClaim{}
	if err := b.client.Get(ctx, key, claim, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			b.claims.forget(key)
		}
		return client.IgnoreNotFound(err)
	}
	claim = b.claims.of(claim)
	if ownership.IsHeld(claim) {
		return nil
	}
	step, err := b.decide(ctx, claim)
	if err != nil {
		return err
	}
	switch {
	case step.bind != nil && ownership.IsHeld(step.bind):
		return nil // The end of the hold repeats the request.
	case step.bind != nil:
		return b.bind(ctx, claim, step.bind)
	case step.class != "":
		claim = claim.DeepCopy()
		claim.Spec.StorageClassName = &step.class
		return b.updateClaim(ctx, claim)
	case step.provisioner != "":
		return b.requestVolume(ctx, claim, step)
	}
	return b.reportUnbound(ctx, claim, step)
}

// decide returns the step for a claim. If it is bound to a volume that does not name it yet, the claimRef
// is already written.
func (b *binder) decide(ctx context.Context, claim *corev1.PersistentVolumeClaim) (claimStep, error) {
	b.matching.Lock()
	defer b.matching.Unlock()
	around, err := b.surroundings(ctx, claim)
	if err != nil {
		return claimStep{}, err
	}
	step, err := decideClaim(claim, around)
	if err != nil || step.bind == nil || ownership.IsHeld(step.bind) {
		return step, err
	}
	step.bind, err = b.reserve(ctx, claim, step.bind)
	return step, err
}

func (b *binder) reconcileVolume(ctx context.Context, name string) error {
	v, err := b.volume(ctx, name)
	if v == nil || err != nil || ownership.IsHeld(v) {
		return err
	}
	claim, err := b.claimOf(ctx, v)
	if err != nil {
		return err
	}
	if claim != nil && ownership.IsHeld(claim) {
		return nil
	}
	step := decideVolume(v, claim)
	if step.volumeMismatch.reason != "" {
		b.record(v, step.volumeMismatch)
		b.record(claim, step.claimMismatch)
	}
	if step.unbind {
		v = unbound(v)
		if err := b.updateVolume(ctx, v); err != nil {
			return err
		}
		step.phase = corev1.VolumeAvailable
	}
	if step.phase == "" || step.phase == v.Status.Phase {
		return nil
	}
	if v, err = b.setPhase(ctx, v, step.phase, step.message); err != nil {
		return err
	}
	b.record(v, step.event)
	return nil
}
