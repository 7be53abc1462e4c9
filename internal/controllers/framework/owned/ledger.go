// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ledger gives a controller read-your-writes consistency over an informer cache that lags
// behind the API: it records the writes for each owner until the cache has them, and lays
// them over what the cache lists.
//
// It replaces the expectations of upstream's controllers (ControllerExpectations): a
// Reconcile never waits for its own events, does not create a child twice because the
// first is not cached yet, and does not delete a second pod because the first still looks
// active.
//
// An entry is dropped when the cache has caught up with it. Resource versions of a kind
// are ordered (KEP-5504): a child that is not cached was written after the version that
// the cache has reached, or else it was deleted. So the ledger needs no events and no
// timeouts.
type Ledger[T client.Object] struct {
	seen func() string

	mu     sync.Mutex
	owners map[types.NamespacedName]map[types.UID]write[T]
}

type write[T client.Object] struct {
	obj     T
	deleted bool
	// terminating is set if obj is being deleted and listed until it is removed.
	terminating bool
}

// NewLedger returns a ledger over a cache. The function seen returns the resource version
// that the cache has reached, or "" before it has one.
func NewLedger[T client.Object](seen func() string) *Ledger[T] {
	return &Ledger[T]{seen: seen, owners: map[types.NamespacedName]map[types.UID]write[T]{}}
}

// Wrote records obj as the API returned it from a create, update or patch.
func (l *Ledger[T]) Wrote(owner client.Object, obj T) {
	l.record(owner, write[T]{obj: obj})
}

// Deleted records that the API has accepted the deletion of obj, which may be the cached
// version.
func (l *Ledger[T]) Deleted(owner client.Object, obj T) {
	l.record(owner, write[T]{obj: obj, deleted: true})
}

// Terminating is like Deleted, for an owner that counts terminating children: the child is
// listed with a deletion timestamp of now, and not left out.
func (l *Ledger[T]) Terminating(owner client.Object, obj T, now time.Time) {
	child := obj.DeepCopyObject().(T)
	since := metav1.NewTime(now)
	child.SetDeletionTimestamp(&since)
	l.record(owner, write[T]{obj: child, terminating: true})
}

func (l *Ledger[T]) record(owner client.Object, w write[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := client.ObjectKeyFromObject(owner)
	if l.owners[key] == nil {
		l.owners[key] = map[types.UID]write[T]{}
	}
	l.owners[key][w.obj.GetUID()] = w
}

// Forget drops the records of an owner that does not exist any more.
func (l *Ledger[T]) Forget(owner types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.owners, owner)
}

// Read lists children from the cache and lays the writes for the owner over them: updated
// children are returned in the newer version, created ones are added, and deleted ones are
// left out or listed as terminating, until the cache has caught up.
func (l *Ledger[T]) Read(owner client.Object, list func() ([]T, error)) ([]T, error) {
	// The version is read first, so that the list is at least as new.
	seen := l.seen()
	cached, err := list()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := client.ObjectKeyFromObject(owner)
	writes := l.owners[key]
	if len(writes) == 0 {
		return cached, nil
	}
	out := make([]T, 0, len(cached)+len(writes))
	listed := make(map[types.UID]bool, len(cached))
	for _, obj := range cached {
		uid := obj.GetUID()
		listed[uid] = true
		w, pending := writes[uid]
		switch {
		case !pending:
			out = append(out, obj)
		case w.deleted && obj.GetDeletionTimestamp() == nil:
			// The cache does not have the deletion yet.
		case w.terminating && obj.GetDeletionTimestamp() == nil:
			out = append(out, w.obj)
		case !w.deleted && newer(w.obj, obj):
			out = append(out, w.obj)
		default:
			delete(writes, uid)
			out = append(out, obj)
		}
	}
	for uid, w := range writes {
		switch {
		case listed[uid]:
		case Reached(seen, w.obj.GetResourceVersion()):
			delete(writes, uid)
		case !w.deleted && metav1.IsControlledBy(w.obj, owner):
			out = append(out, w.obj)
		}
	}
	if len(writes) == 0 {
		delete(l.owners, key)
	}
	return out, nil
}

// Newest returns an object as this process wrote it, if the cached version is older. It is for the
// ledger of a kind whose objects are recorded as their own owners.
func (l *Ledger[T]) Newest(cached T) T {
	found, err := l.Read(cached, func() ([]T, error) { return []T{cached}, nil })
	if err != nil || len(found) == 0 {
		return cached
	}
	return found[0]
}

func newer(a, b client.Object) bool {
	c, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && c > 0
}

// Reached reports whether a cache at version seen ("" before it has one) has reached
// version rv. A version that cannot be compared counts as reached: trusting the cache is
// better than keeping an entry forever.
func Reached(seen, rv string) bool {
	if seen == "" {
		return false
	}
	c, err := resourceversion.CompareResourceVersion(seen, rv)
	return err != nil || c >= 0
}
