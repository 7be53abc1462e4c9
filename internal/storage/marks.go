// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// ownPrefix begins the keys of everything that is not an object of the API.
	ownPrefix = "/kindred/"
	// markKey is written with the time once in markEvery. Its versions map revisions to times;
	// a compaction removes them along with those revisions.
	markKey   = ownPrefix + "history/time"
	markEvery = time.Minute
)

// mark is a revision and the time when it was written.
type mark struct {
	revision int64
	at       time.Time
}

func markOf(kv *mvccpb.KeyValue) (mark, error) {
	at, err := time.Parse(time.RFC3339Nano, string(kv.Value))
	if err != nil {
		return mark{}, fmt.Errorf("%s in etcd is not a time: %w", markKey, err)
	}
	return mark{kv.ModRevision, at}, nil
}

// marks are the marks of the retained history, oldest first.
type marks struct {
	mu   sync.Mutex
	list []mark
}

func (m *marks) add(latest mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.list); n == 0 || m.list[n-1].revision < latest.revision {
		m.list = append(m.list, latest)
	}
}

// forget drops the marks before a revision, except the last of them, which gives that revision
// its time.
func (m *marks) forget(before int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, _ := slices.BinarySearchFunc(m.list, before+1, func(a mark, revision int64) int { return int(a.revision - revision) })
	if i > 1 {
		m.list = slices.Clone(m.list[i-1:])
	}
}

// after returns the marks after a revision, up to a time.
func (m *marks) after(revision int64, until time.Time) []mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []mark
	for _, mark := range m.list {
		if mark.revision > revision && !mark.at.After(until) {
			found = append(found, mark)
		}
	}
	return found
}

// latest returns the last mark up to a time; the zero mark if there is none.
func (m *marks) latest(until time.Time) mark {
	if found := m.after(0, until); len(found) > 0 {
		return found[len(found)-1]
	}
	return mark{}
}

// timeOf returns when a revision was written, to markEvery: the time of the last mark up to it.
// A revision before all marks gets the time of the first, which is later.
func (m *marks) timeOf(revision int64) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	var at time.Time
	for i, mark := range m.list {
		if i > 0 && mark.revision > revision {
			break
		}
		at = mark.at
	}
	return at
}

// all returns a copy of all marks.
func (m *marks) all() []mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.list)
}

// readMarks reads the retained versions of the mark, oldest first.
func readMarks(ctx context.Context, client clientv3.KV) ([]mark, error) {
	var found []mark
	for revision := int64(0); ; {
		answer, err := client.Get(ctx, markKey, clientv3.WithRev(revision))
		if errors.Is(err, rpctypes.ErrCompacted) || err == nil && len(answer.Kvs) == 0 {
			break
		}
		if err != nil {
			return nil, err
		}
		m, err := markOf(answer.Kvs[0])
		if err != nil {
			return nil, err
		}
		found = append(found, m)
		if revision = m.revision - 1; revision == 0 {
			break
		}
	}
	slices.Reverse(found)
	return found, nil
}
