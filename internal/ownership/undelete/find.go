// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
)

// past identifies the object and the state to restore.
type past struct {
	uid types.UID
	// revision is the revision whose state is restored.
	revision int64
	// record is the record of the deletion. If there is none, it has what the history shows.
	record deletion.Record
	stage  stage
}

// stage is the progress of an undeletion when a request starts.
type stage int

const (
	fresh     stage = iota
	restoring       // some objects are restored, on hold
	releasing       // all objects were restored, and some may be released
)

// findDeletion finds the deletion to undo.
func (u *undeletion) findDeletion(ctx context.Context) error {
	now, err := u.get(ctx, u.Resource.GroupVersionResource, u.Namespace, u.Name)
	if err != nil {
		return err
	}
	if now != nil {
		return u.resume(ctx, now)
	}
	if u.At.IsZero() {
		return u.findLast(ctx)
	}
	return u.findAt(ctx)
}

// resume continues the undeletion that the mark of the existing root describes.
func (u *undeletion) resume(ctx context.Context, now *unstructured.Unstructured) error {
	m, marked := markOf(now)
	switch {
	case now.GetDeletionTimestamp() != nil:
		return u.conflict("it is still being deleted; wait until it is gone")
	case !marked:
		if before, err := u.restoredBefore(ctx, now); before || err != nil {
			return err
		}
		return u.conflict("it exists, with the UID %s: there is nothing to undelete", now.GetUID())
	case m.Root != m.From:
		return u.conflict("it is on hold as a part of the undeletion of the object that had the UID %s; continue that one", m.Root)
	case u.UID != "" && u.UID != m.From:
		return u.conflict("the undeletion of the object that had the UID %s is in progress; continue that one", m.From)
	}
	u.past = past{uid: m.From, revision: m.Revision, stage: restoring}
	if m.Releasing {
		u.stage = releasing
	}
	if !u.At.IsZero() && u.History.RevisionAt(u.At) != u.revision {
		u.warn("the undeletion in progress continues with the state that it started from, not with the state at the given time")
	}
	return u.findRecord(ctx)
}

// restoredBefore reports whether an earlier undeletion has restored the existing root, so that
// nothing is left to do. That may happen to one of two concurrent requests.
func (u *undeletion) restoredBefore(ctx context.Context, now *unstructured.Unstructured) (bool, error) {
	if !u.At.IsZero() {
		return false, nil // The request asks for another state.
	}
	if err := u.loadLineage(ctx); err != nil {
		return false, err
	}
	before, found := u.lineage.restored[now.GetUID()]
	if !found || u.UID != "" && u.UID == now.GetUID() || u.UID != "" && !u.lineage.same(u.UID, now.GetUID()) {
		return false, nil
	}
	u.before = &before
	u.past = past{uid: before.From, revision: before.State}
	u.root = newItem(u.Resource, now)
	u.root.now = now
	return true, u.findRecord(ctx)
}

// reportBefore reports that nothing was left to do.
func (u *undeletion) reportBefore() {
	u.root.then = u.root.then.DeepCopy()
	u.root.then.SetUID(u.before.From)
	u.root.Outcome = ownership.UndeletionUnchanged
	u.root.Reason = "it was already restored, at " + u.before.Time.UTC().Format(time.RFC3339)
	u.report.Items, u.report.Phase = []*Item{u.root}, ownership.UndeletionComplete
}

// conflict returns a Conflict with a specific message instead of the default one, that the
// operation cannot be fulfilled.
func (u *undeletion) conflict(format string, args ...any) error {
	err := apierrors.NewConflict(u.Resource.GroupResource(), u.Name, nil)
	err.ErrStatus.Message = fmt.Sprintf("%s %q: ", u.Resource.GroupResource(), u.Name) + fmt.Sprintf(format, args...)
	return err
}

// findLast finds the last deletion of the object.
func (u *undeletion) findLast(ctx context.Context) (err error) {
	endings, err := deletion.Endings(ctx, u.Records, u.History, u.place(), u.UID)
	if err != nil {
		return err
	}
	if len(endings) == 0 {
		return u.unknown("no deleted object of this name is known")
	}
	last := endings[0]
	u.uid, u.record = last.Record.UID, last.Record
	switch {
	case !last.Record.IsCollected():
		// The record was written with the deletion or with the deletion timestamp.
		u.revision = last.Record.Revision - 1
	case last.End != nil:
		u.revision = last.End.Revision - 1
	default:
		u.revision, err = strconv.ParseInt(last.Record.ResourceVersion, 10, 64)
	}
	return err
}

// place returns the resource, namespace and name of the object.
func (u *undeletion) place() deletion.Place {
	return deletion.Place{Resource: u.Resource.GroupResource(), Namespace: u.Namespace, Name: u.Name}
}

// findAt finds the object at a time.
func (u *undeletion) findAt(ctx context.Context) error {
	if u.At.After(u.Clock.Now()) {
		return apierrors.NewBadRequest("at is in the future")
	}
	u.revision = u.History.RevisionAt(u.At)
	if u.revision == 0 {
		return apierrors.NewResourceExpired(fmt.Sprintf("the state at %s is no longer retained, or Kindred did not run then", u.At.UTC().Format("2006-01-02T15:04:05Z")))
	}
	then, err := u.History.At(ctx, u.Resource.GroupResource(), u.Namespace, u.Name, u.revision)
	if apierrors.IsNotFound(err) || err == nil && u.UID != "" && then.GetUID() != u.UID {
		return u.unknown(fmt.Sprintf("it did not exist at %s", u.History.Time(u.revision).UTC().Format("15:04:05 on 2006-01-02")))
	}
	if err != nil {
		return err
	}
	u.uid = then.GetUID()
	return u.findRecord(ctx)
}

func (u *undeletion) unknown(why string) error {
	err := apierrors.NewNotFound(u.Resource.GroupResource(), u.Name)
	err.ErrStatus.Message += ", and " + why
	return err
}

// findRecord finds the record of the object's deletion by the client that started it.
func (u *undeletion) findRecord(ctx context.Context) error {
	u.record = deletion.Record{Resource: u.Resource.GroupResource(), Namespace: u.Namespace, Name: u.Name}
	endings, err := deletion.Recorded(ctx, u.Records, u.place(), u.uid)
	if err != nil {
		return err
	}
	if len(endings) > 0 {
		u.record = endings[0].Record
	}
	return nil
}
