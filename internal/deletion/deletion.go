// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deletion has the records of deletions and undeletions, and the interfaces to them. The
// API server provides the caller of a deletion, the store writes the record in the same
// transaction, the garbage collector adds the objects that it deletes, and reviews read the
// records.
package deletion

import (
	"context"
	"iter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Record is the record of the deletion of one object. It describes the request, whether the object
// was deleted at once or had to wait for finalizers.
type Record struct {
	// Resource, Namespace, Name and UID identify the object.
	Resource        schema.GroupResource
	Namespace, Name string
	UID             types.UID
	// ResourceVersion is the resourceVersion of the object's last state before the deletion.
	ResourceVersion string
	Time            metav1.MicroTime
	// By is the client that requested the deletion.
	By Caller
	// Policy is the propagation policy.
	Policy metav1.DeletionPropagation
	// Owners is set for an object that the garbage collector deleted: its owners, which were
	// absent or waited for it.
	Owners []metav1.OwnerReference
	// InOtherNamespace has the UIDs of those Owners that are in another namespace. References to them
	// are not followed.
	InOtherNamespace []types.UID
	// References is set for an object that another client deleted: its owner references at that
	// time.
	References []metav1.OwnerReference
	// Revision is the revision of the record. For a request it is also the revision of the
	// deletion, or of the deletion timestamp.
	Revision int64
}

// Caller is the sender of a request.
type Caller struct {
	User    string    `json:"user"`
	Agent   string    `json:"agent,omitempty"`
	AuditID types.UID `json:"auditID,omitempty"`
	// Collector is true for the garbage collector, which writes its own records.
	Collector bool `json:"-"`
}

// Records stores the records of deletions and undeletions.
type Records interface {
	Restorations
	// ByName returns the records of the objects that had a name, the latest first.
	ByName(ctx context.Context, resource schema.GroupResource, namespace, name string) ([]Record, error)
	// Requested returns the records that were written at or after a revision, except those of the
	// garbage collector, the latest first.
	Requested(ctx context.Context, since int64) ([]Record, error)
	// AddCollected adds records of the garbage collector, at most BatchLimit.
	AddCollected(ctx context.Context, records []Record) error
}

// History reads past states from the store. It returns an error with the reason Expired for
// revisions that are no longer retained.
type History interface {
	// Newest returns the revision of the latest write.
	Newest(ctx context.Context) (int64, error)
	// Oldest returns the oldest revision that can be read.
	Oldest(ctx context.Context) (int64, error)
	// Time returns when a revision was written, to the minute: the write was at that time or in
	// the minute after.
	Time(revision int64) time.Time
	// RevisionAt returns the last revision that is known to have been written by a time; 0 if none
	// is.
	RevisionAt(at time.Time) int64
	// Pin protects a revision from compaction until unpin is called, as long as there is disk
	// space for it. Without a call of unpin, the pin expires after two minutes.
	Pin(ctx context.Context, revision int64) (unpin func(), err error)
	// At returns the state of an object at a revision.
	At(ctx context.Context, resource schema.GroupResource, namespace, name string, revision int64) (*unstructured.Unstructured, error)
	// List returns the objects of a resource at a revision, in one namespace if it is given.
	List(ctx context.Context, resource schema.GroupResource, namespace string, revision int64) iter.Seq2[*unstructured.Unstructured, error]
	// First returns the earliest retained state of each existing object of a resource that has
	// changed since its creation. wanted selects objects by namespace and name.
	First(ctx context.Context, resource schema.GroupResource, namespace string, wanted func(namespace, name string) bool) iter.Seq2[*unstructured.Unstructured, error]
	// LastDeletion finds the end of the last deleted object of a name, with or without a record.
	// It reads the revisions at the start of each minute and at requested deletions, and misses
	// objects that existed only between two of them.
	LastDeletion(ctx context.Context, resource schema.GroupResource, namespace, name string) (*End, error)
}

// End is the end of an object in the history.
type End struct {
	// Object is the object's last state.
	Object *unstructured.Unstructured
	// Revision is the revision of the deletion. At the revision before, the object still existed.
	Revision int64
	// Time is when the object was deleted, to the minute.
	Time time.Time
}

// BatchLimit is the maximum number of records in one call of AddCollected.
const BatchLimit = 1000

type callerKey struct{}

// WithCaller returns a context that carries the caller on whose behalf objects are deleted.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns the caller that WithCaller set.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}
