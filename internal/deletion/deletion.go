// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deletion is what is remembered of a deletion. The API says who asks for one, the
// store writes the record along with it, the garbage collector adds what followed, and
// reviews read it.
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

// Record is what is remembered of the deletion of one object: of the moment when it was
// asked for, whether the object went then or had to wait for something.
type Record struct {
	// Resource, Namespace, Name and UID say which object it was.
	Resource        schema.GroupResource
	Namespace, Name string
	UID             types.UID
	// ResourceVersion is that of the object's last state before the deletion: the revision
	// to read it at.
	ResourceVersion string
	Time            metav1.MicroTime
	// By is who asked for the deletion.
	By Caller
	// Policy is what happens to dependents.
	Policy metav1.DeletionPropagation
	// Owners are, of an object that the garbage collector deleted, those that were absent or
	// waited for it.
	Owners []metav1.OwnerReference
	// Elsewhere are those of the Owners that are in another namespace: references to them are
	// never followed.
	Elsewhere []types.UID
	// References are, of an object whose deletion was asked for by a request, the owner
	// references that it had then.
	References []metav1.OwnerReference
	// Revision is that of the record itself. If the object's deletion was asked for by a
	// request, it is the revision of the deletion, or of its beginning.
	Revision int64
}

// Caller is who sent a request.
type Caller struct {
	User    string    `json:"user"`
	Agent   string    `json:"agent,omitempty"`
	AuditID types.UID `json:"auditID,omitempty"`
	// Collector is whether it is the garbage collector, which keeps records of its own.
	Collector bool `json:"-"`
}

// Records are what is remembered of deletions, and of undeletions.
type Records interface {
	Restorations
	// Of returns those of the objects that had a name, the latest first.
	Of(ctx context.Context, resource schema.GroupResource, namespace, name string) ([]Record, error)
	// Asked returns those that were written at or after a revision, without what the garbage
	// collector did, the latest first.
	Asked(ctx context.Context, since int64) ([]Record, error)
	// Collected adds what the garbage collector has deleted, BatchLimit objects at most.
	Collected(ctx context.Context, records []Record) error
}

// History is what the store still knows of the past. What was asked for and is not
// retained any more is refused with the reason Expired.
type History interface {
	// Newest is the revision of the latest write, Oldest the oldest that can be read.
	Newest(ctx context.Context) (int64, error)
	Oldest(ctx context.Context) (int64, error)
	// Time is when a revision was written, to a minute: then, or in the minute after.
	Time(revision int64) time.Time
	// RevisionAt is the last revision that was certainly written by then; 0 if none is known.
	RevisionAt(then time.Time) int64
	// Pin keeps a revision from being compacted until unpin is called, as long as there is room
	// for it; who does not call it holds it for two minutes.
	Pin(ctx context.Context, revision int64) (unpin func(), err error)
	// At is an object as it was at a revision, and List the objects of a resource, those of
	// one namespace if it is given.
	At(ctx context.Context, resource schema.GroupResource, namespace, name string, revision int64) (*unstructured.Unstructured, error)
	List(ctx context.Context, resource schema.GroupResource, namespace string, revision int64) iter.Seq2[*unstructured.Unstructured, error]
	// First goes through those of a resource's objects that are there and have changed since
	// they were created, as they were first: as they were created, or as far back as is
	// retained. wanted chooses them by namespace and name.
	First(ctx context.Context, resource schema.GroupResource, namespace string, wanted func(namespace, name string) bool) iter.Seq2[*unstructured.Unstructured, error]
	// LastDeletion finds how an object of a name ended that is not there any more, with
	// or without a record. It sees those that were there at the turn of a minute, or when the
	// deletion of another was asked for.
	LastDeletion(ctx context.Context, resource schema.GroupResource, namespace, name string) (*End, error)
}

// End is the end of an object.
type End struct {
	// Object is its last state.
	Object *unstructured.Unstructured
	// Revision is that of the deletion: one before, the object was still there.
	Revision int64
	// Time is when it was deleted, to a minute.
	Time time.Time
}

// BatchLimit is how many objects one call of Collected may be given.
const BatchLimit = 1000

type callerKey struct{}

// WithCaller says on whose behalf objects are deleted.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns who was given to WithCaller.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}
