// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"slices"
	"sort"

	"go.etcd.io/etcd/api/v3/mvccpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred/internal/deletion"
)

// LastDeletion implements deletion.History. It finds the last deleted object of this name among
// those that existed at a mark or at a recorded deletion.
func (h *History) LastDeletion(ctx context.Context, resource schema.GroupResource, namespace, name string) (*deletion.End, error) {
	stored, err := h.backend.open.find(resource)
	if err != nil {
		return nil, err
	}
	key, err := stored.key(namespace, name)
	if err != nil {
		return nil, err
	}
	seen, gone, err := h.lastSeen(ctx, key)
	if err != nil {
		return nil, err
	}
	if seen == 0 {
		return nil, apierrors.NewNotFound(resource, name)
	}
	last, gone, err := h.end(ctx, key, seen, gone)
	if err != nil {
		return nil, err
	}
	object, err := h.read(ctx, resource, stored, last)
	if err != nil {
		return nil, err
	}
	return &deletion.End{Object: object, Revision: gone, Time: h.Time(gone)}, nil
}

// lastSeen goes back from mark to mark to a revision at which a key existed that has been
// deleted since. It returns that revision and a later one at which the key was gone; 0 if it
// finds none.
func (h *History) lastSeen(ctx context.Context, key string) (seen, gone int64, err error) {
	if gone, err = h.Newest(ctx); err != nil {
		return 0, 0, err
	}
	living, err := h.get(ctx, key, gone)
	if err != nil {
		return 0, 0, err
	}
	if living != nil {
		gone = living.CreateRevision - 1
	}
	oldest, err := h.Oldest(ctx)
	if err != nil {
		return 0, 0, err
	}
	visited, err := h.visited(ctx, oldest, gone)
	if err != nil {
		return 0, 0, err
	}
	for _, revision := range visited {
		kv, err := h.get(ctx, key, revision)
		if err != nil {
			return 0, 0, err
		}
		if kv != nil {
			return revision, gone, nil
		}
		gone = revision
	}
	return 0, 0, nil
}

// visitedLimit is how many recorded deletions lastSeen goes back to.
const visitedLimit = 1000

// visited returns the revisions for lastSeen to look at, latest first: the marks, the oldest
// revision, and the revision before each recorded deletion. A dependent that a cascade deleted
// existed when its root was deleted, however short-lived it was.
func (h *History) visited(ctx context.Context, oldest, before int64) ([]int64, error) {
	revisions := []int64{oldest}
	for _, m := range h.backend.compactor.marks.all() {
		revisions = append(revisions, m.revision)
	}
	recorded, err := h.backend.records.Requested(ctx, oldest)
	if err != nil {
		return nil, err
	}
	for _, r := range recorded[:min(len(recorded), visitedLimit)] {
		revisions = append(revisions, r.Revision-1)
	}
	slices.Sort(revisions)
	revisions = slices.DeleteFunc(slices.Compact(revisions), func(r int64) bool { return r < oldest || r >= before })
	slices.Reverse(revisions)
	return revisions, nil
}

// end returns the last state of an object whose key existed at revision seen and was gone at
// revision gone, and the revision at which it was deleted. It searches between the two.
func (h *History) end(ctx context.Context, key string, seen, gone int64) (last *mvccpb.KeyValue, deleted int64, err error) {
	if last, err = h.get(ctx, key, seen); err != nil {
		return nil, 0, err
	}
	created := last.CreateRevision
	n := sort.Search(int(gone-seen), func(i int) bool {
		kv, failed := h.get(ctx, key, seen+int64(i))
		if err = errors.Join(err, failed); kv == nil || kv.CreateRevision != created {
			return true
		}
		if kv.ModRevision > last.ModRevision {
			last = kv
		}
		return false
	})
	return last, seen + int64(n), err
}
