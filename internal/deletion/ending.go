// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"context"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Ending is the deletion of one object.
type Ending struct {
	// Record is the first record of the object, by the client that started the deletion. If there
	// is none, it has what the history shows: UID, revision and time.
	Record   Record
	Recorded bool
	// End is the end of the object in the history. It is nil if it is not known or not needed,
	// because the record is complete.
	End *End
}

// Place is a resource, namespace and name.
type Place struct {
	Resource        schema.GroupResource
	Namespace, Name string
}

// Recorded returns the recorded deletions of the objects that had a name, the latest first. With a
// UID it returns only that object's.
func Recorded(ctx context.Context, records Records, at Place, uid types.UID) ([]Ending, error) {
	all, err := records.ByName(ctx, at.Resource, at.Namespace, at.Name)
	if err != nil {
		return nil, err
	}
	seen := map[types.UID]bool{}
	var endings []Ending
	for _, record := range slices.Backward(all) { // the first record of each object
		if !seen[record.UID] && (uid == "" || record.UID == uid) {
			seen[record.UID] = true
			endings = append(endings, Ending{Record: record, Recorded: true})
		}
	}
	slices.Reverse(endings)
	return endings, nil
}

// Endings returns the deletions of the objects that had a name, the latest first. With a UID it
// returns only that object's. The last deletion may have no record: a crash loses the last records of
// the garbage collector, and an update that removes the last finalizer writes none. Endings reads that
// deletion from the history. If the history fails, it returns the recorded deletions and the error.
func Endings(ctx context.Context, records Records, history History, at Place, uid types.UID) ([]Ending, error) {
	endings, err := Recorded(ctx, records, at, uid)
	if err != nil || uid != "" && len(endings) > 0 && !endings[0].Record.IsCollected() {
		return endings, err
	}
	end, err := history.LastDeletion(ctx, at.Resource, at.Namespace, at.Name)
	if apierrors.IsNotFound(err) {
		return endings, nil
	}
	if err != nil || uid != "" && end.Object.GetUID() != uid {
		return endings, err
	}
	known := slices.IndexFunc(endings, func(e Ending) bool { return e.Record.UID == end.Object.GetUID() })
	switch {
	case known >= 0:
		last := endings[known]
		last.End = end
		endings = slices.Delete(endings, known, known+1)
		return insert(endings, last), nil
	default:
		return insert(endings, Ending{Record: at.unrecorded(end), End: end}), nil
	}
}

// insert inserts an ending that the history found at its place by revision, the latest first.
func insert(endings []Ending, found Ending) []Ending {
	i := slices.IndexFunc(endings, func(e Ending) bool { return e.Record.revision() <= found.End.Revision })
	if i < 0 {
		i = len(endings)
	}
	return slices.Insert(endings, i, found)
}

// unrecorded returns a record with what the history shows of a deletion.
func (at Place) unrecorded(end *End) Record {
	record := Record{
		Resource: at.Resource, Namespace: at.Namespace, Name: at.Name, UID: end.Object.GetUID(),
		ResourceVersion: end.Object.GetResourceVersion(), Revision: end.Revision,
	}
	if !end.Time.IsZero() {
		record.Time = metav1.NewMicroTime(end.Time)
	}
	return record
}

// IsCollected reports whether the garbage collector deleted the object.
func (r *Record) IsCollected() bool { return len(r.Owners) > 0 }

// revision returns the revision of the deletion. For the collector's records, which are written
// later, it returns the last revision at which the object is known to have existed.
func (r *Record) revision() int64 {
	if !r.IsCollected() {
		return r.Revision
	}
	version, _ := strconv.ParseInt(r.ResourceVersion, 10, 64)
	return version
}
