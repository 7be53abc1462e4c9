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

// Ledger gives a controller read-your-writes over an informer cache that lags
// behind the API: it remembers what was written for each owner until the cache
// shows it, and lays that over what the cache lists.
//
// It replaces the counted expectations of a classic controller: a Reconcile
// never has to wait for its own events, cannot create a child twice because the
// cache has not shown the first one, and cannot pick a second victim because
// the first one still looks alive.
//
// An entry leaves when the cache has caught up with it. Resource versions of
// one kind are ordered (KEP-5504), so a child which the cache does not list is
// still to come if it was written after the version the cache has reached, and
// gone if before. The ledger needs no events and no time-outs.
type Ledger[T client.Object] struct {
	seen func() string

	mu     sync.Mutex
	owners map[types.NamespacedName]map[types.UID]write[T]
}

type write[T client.Object] struct {
	obj     T
	deleted bool
	// ending says that obj was deleted and counts until it has gone.
	ending bool
}

// NewLedger returns a ledger over the cache that has reached the resource
// version which seen returns ("" while it has none).
func NewLedger[T client.Object](seen func() string) *Ledger[T] {
	return &Ledger[T]{seen: seen, owners: map[types.NamespacedName]map[types.UID]write[T]{}}
}

// Wrote records obj as the API returned it from a create, update or patch.
func (l *Ledger[T]) Wrote(owner client.Object, obj T) {
	l.record(owner, write[T]{obj: obj})
}

// Deleted records that the API accepted to delete obj, which may be the
// version that the cache holds.
func (l *Ledger[T]) Deleted(owner client.Object, obj T) {
	l.record(owner, write[T]{obj: obj, deleted: true})
}

// Ending is Deleted for an owner that counts a child which terminates: instead of being
// left out, it is listed as being deleted since now.
func (l *Ledger[T]) Ending(owner client.Object, obj T, now time.Time) {
	ending := obj.DeepCopyObject().(T)
	since := metav1.NewTime(now)
	ending.SetDeletionTimestamp(&since)
	l.record(owner, write[T]{obj: ending, ending: true})
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

// Forget drops what is remembered for an owner that no longer exists.
func (l *Ledger[T]) Forget(owner types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.owners, owner)
}

// Read lists children from the cache and lays the owner's own writes over
// them: written ones in the newer version, created ones added, deleted ones
// left out, or listed as terminating, until the cache shows them so.
func (l *Ledger[T]) Read(owner client.Object, list func() ([]T, error)) ([]T, error) {
	// First the version, then the list: the list is at least as new.
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
			// The cache does not know yet that it dies.
		case w.ending && obj.GetDeletionTimestamp() == nil:
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

func newer(a, b client.Object) bool {
	c, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && c > 0
}

// Reached reports whether a cache at version seen ("" while it has none) contains all of
// version rv.
// A version that cannot be compared counts as reached: better to believe the
// cache than to hold a ghost for ever.
func Reached(seen, rv string) bool {
	if seen == "" {
		return false
	}
	c, err := resourceversion.CompareResourceVersion(seen, rv)
	return err != nil || c >= 0
}
