// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

const (
	// Name is the controller's identity, and the source of its events.
	Name = "attachdetach-controller"

	// conflictDelay is the delay after a write that was based on a stale cache.
	conflictDelay = 50 * time.Millisecond
	// unseenDelay is the delay between live reads of an attachment that the cache does not show.
	unseenDelay = time.Second
)

var errStaleNode = errors.New("the cached Node is stale")

type reconciler struct {
	client client.Client
	live   client.Reader
	events record.EventRecorder
	clock  clock.PassiveClock

	// memory has what the API does not, by volume and node. Only the one worker uses it.
	memory map[volume]map[string]*seen
	// orphans has the names of the attachments that had no PersistentVolume when the controller started; nil before.
	orphans map[string]bool
}

// seen is the controller's memory of a place.
type seen struct {
	// attachment is the UID of the attachment that the other fields describe, or "".
	attachment types.UID
	// unseen is true from before the creation of an attachment until the cache shows it.
	unseen bool
	// deleted is true if it was deleted. The cache may show it as it was before.
	deleted bool
	// unneeded is the time at which its last user went; zero while it has users.
	unneeded time.Time
	// told is the problem that was last reported to its users.
	told string
}

func newReconciler(env control.Env) *reconciler {
	return &reconciler{client: env.Client, live: env.Live, events: env.Events, clock: env.Clock, memory: map[volume]map[string]*seen{}}
}

// Reconcile takes the next step for one volume. Its PersistentVolumes may have been deleted.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	v := byRequest(req)
	places, exclusive, err := r.places(ctx, v)
	if err != nil {
		return ctrl.Result{}, err
	}
	var after time.Duration
	for i, d := range plan(places, exclusive, r.clock.Now()) {
		if places[i].memory.unseen {
			after = control.SoonerOf(after, unseenDelay)
		}
		if err = r.act(ctx, v, &places[i], d); err != nil {
			break
		}
		after = control.SoonerOf(after, d.after)
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{RequeueAfter: after}, owned.IgnoreStale(err)
}

// isAttachable reports whether a volume must be attached before it is mounted. A driver that is not
// installed may require it.
func (r *reconciler) isAttachable(ctx context.Context, v volume) (bool, error) {
	driver := &storagev1.CSIDriver{}
	err := r.client.Get(ctx, client.ObjectKey{Name: v.driver}, driver, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired, err
}

// act carries out a decision.
func (r *reconciler) act(ctx context.Context, v volume, p *place, d decision) error {
	r.tell(p, d)
	switch d.step {
	case attach:
		return r.attach(ctx, v, p)
	case list:
		if err := r.setListed(ctx, v, p.node, true); err != nil {
			return err
		}
		for _, user := range p.users {
			r.events.Eventf(user, corev1.EventTypeNormal, "SuccessfulAttachVolume", "AttachVolume.Attach succeeded for volume %q ", p.persistentVolume)
		}
	case unlist:
		return r.setListed(ctx, v, p.node, false)
	case detach:
		return r.detach(ctx, v, p)
	}
	return nil
}

// attach creates an attachment. It may have been created even if the answer is an error.
func (r *reconciler) attach(ctx context.Context, v volume, p *place) error {
	*p.memory = seen{unseen: true}
	a := newAttachment(v, p)
	err := r.client.Create(ctx, a)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err == nil {
		p.memory.attachment = a.UID
	}
	return err
}

// detach removes the volume from the node's list, then deletes the attachment. It decides again on the
// live Node, because the volume may be in use since. A node that begins to use the volume after that
// conflicts with the write of the list, or no longer finds the volume there.
func (r *reconciler) detach(ctx context.Context, v volume, p *place) error {
	node := &corev1.Node{}
	err := r.live.Get(ctx, client.ObjectKey{Name: p.node}, node)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	exists := err == nil
	fresh := *p
	fresh.see(v, node, exists)
	if release(fresh, r.clock.Now()).step != detach {
		return apierrors.NewConflict(corev1.Resource("nodes"), p.node, errStaleNode)
	}
	if exists {
		if err := r.writeListed(ctx, v, node, false); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if err := r.client.Delete(ctx, p.attachment, client.Preconditions{UID: &p.attachment.UID}); client.IgnoreNotFound(err) != nil {
		return err
	}
	p.memory.deleted = true
	return nil
}

// tell records a problem as an event of the pods that wait, once.
func (r *reconciler) tell(p *place, d decision) {
	if d.problem == nil {
		p.memory.told = ""
		return
	}
	problem := d.problem(p.users[0])
	if problem == p.memory.told {
		return
	}
	p.memory.told = problem
	for _, user := range p.users {
		r.events.Event(user, corev1.EventTypeWarning, "FailedAttachVolume", d.problem(user))
	}
}
