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

// past is which object is brought back, and as of when.
type past struct {
	uid types.UID
	// revision is that of the state that is brought back.
	revision int64
	// record is of its deletion. Without one, as much of it as the history tells.
	record deletion.Record
	stage  stage
}

// stage is how far an undeletion had come when it was asked for.
type stage int

const (
	fresh     stage = iota
	restoring       // some of it is there, on hold
	releasing       // all of it is there, and some is released
)

// find looks the deletion up.
func (u *undeletion) find(ctx context.Context) error {
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

// resume goes on with an undeletion that the root tells of.
func (u *undeletion) resume(ctx context.Context, now *unstructured.Unstructured) error {
	m, marked := markOf(now)
	switch {
	case now.GetDeletionTimestamp() != nil:
		return u.conflict("it is still being deleted; wait until it is gone")
	case !marked:
		if before, err := u.restoredBefore(ctx, now); before || err != nil {
			return err
		}
		return u.conflict("it is there, with the UID %s: nothing is to be brought back", now.GetUID())
	case m.Root != m.From:
		return u.conflict("it is on hold as a part of the undeletion of the object that had the UID %s; go on with that", m.Root)
	case u.UID != "" && u.UID != m.From:
		return u.conflict("the undeletion of the one that had the UID %s is under way; go on with that", m.From)
	}
	u.past = past{uid: m.From, revision: m.Revision, stage: restoring}
	if m.Releasing {
		u.stage = releasing
	}
	if !u.At.IsZero() && u.History.RevisionAt(u.At) != u.revision {
		u.warn("the undeletion that is under way goes on: it brings back the state that it began with, and not that of another time")
	}
	return u.findRecord(ctx)
}

// restoredBefore reports whether an earlier undeletion has restored the root that is there: then
// nothing is left to do. Of two requests at the same time, one may find that.
func (u *undeletion) restoredBefore(ctx context.Context, now *unstructured.Unstructured) (bool, error) {
	if !u.At.IsZero() {
		return false, nil // Another state is asked for.
	}
	if err := u.recognise(ctx); err != nil {
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
	u.root.Reason = "it was restored already, at " + u.before.Time.UTC().Format(time.RFC3339)
	u.report.Items, u.report.Phase = []*Item{u.root}, ownership.UndeletionComplete
}

// conflict refuses an undeletion because of what is there, with that as the message: that an
// operation cannot be fulfilled, which a conflict says by default, tells nobody anything.
func (u *undeletion) conflict(format string, args ...any) error {
	err := apierrors.NewConflict(u.Resource.GroupResource(), u.Name, nil)
	err.ErrStatus.Message = fmt.Sprintf("%s %q: ", u.Resource.GroupResource(), u.Name) + fmt.Sprintf(format, args...)
	return err
}

// findLast finds the last deletion of what is meant.
func (u *undeletion) findLast(ctx context.Context) (err error) {
	endings, err := deletion.Endings(ctx, u.Records, u.History, u.place(), u.UID)
	if err != nil {
		return err
	}
	if len(endings) == 0 {
		return u.unknown("nothing is known of one that was deleted")
	}
	last := endings[0]
	u.uid, u.record = last.Record.UID, last.Record
	switch {
	case !last.Record.IsCollected():
		// The record is written along with the deletion, or with its beginning.
		u.revision = last.Record.Revision - 1
	case last.End != nil:
		u.revision = last.End.Revision - 1
	default:
		u.revision, err = strconv.ParseInt(last.Record.ResourceVersion, 10, 64)
	}
	return err
}

// place is where the object was.
func (u *undeletion) place() deletion.Place {
	return deletion.Place{Resource: u.Resource.GroupResource(), Namespace: u.Namespace, Name: u.Name}
}

// findAt finds what there was at a time.
func (u *undeletion) findAt(ctx context.Context) error {
	if u.At.After(u.Clock.Now()) {
		return apierrors.NewBadRequest("at is a time that has not come yet")
	}
	u.revision = u.History.RevisionAt(u.At)
	if u.revision == 0 {
		return apierrors.NewResourceExpired(fmt.Sprintf("what there was at %s is not retained any more, or Kindred did not run then", u.At.UTC().Format("2006-01-02T15:04:05Z")))
	}
	then, err := u.History.At(ctx, u.Resource.GroupResource(), u.Namespace, u.Name, u.revision)
	if apierrors.IsNotFound(err) || err == nil && u.UID != "" && then.GetUID() != u.UID {
		return u.unknown(fmt.Sprintf("it was not there at %s", u.History.Time(u.revision).UTC().Format("15:04:05 on 2006-01-02")))
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

// findRecord finds the record of the object, which is of whoever began its deletion.
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
