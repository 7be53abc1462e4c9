// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
)

// errMissed is the error when versions cannot be read any more.
var errMissed = errors.New("versions were missed")

// fill records the versions that a watch does not have: a server that has started again serves watches from the revision of its start on. Lists at
// former revisions show what the resource was until then. What was created and deleted between two writes of other objects may be missed.
func (f *follower) fill(ctx context.Context) error {
	newest, err := f.list(ctx, 0)
	if err != nil {
		return err
	}
	f.record.mu.Lock()
	known := state{f.now.revision, maps.Clone(f.now.objects)}
	f.record.mu.Unlock()
	err = f.between(ctx, known, newest)
	if isExpired(err) {
		return fmt.Errorf("%w of %s, after revision %d: %w", errMissed, f.resource.Resource, f.revision(), err)
	}
	return err
}

// between records the versions after one state and up to another one.
func (f *follower) between(ctx context.Context, from, to state) error {
	switch {
	case from.equals(to):
		f.reach(to.revision)
		return nil
	case to.revision <= from.revision+1:
		f.change(from, to)
		return nil
	}
	middle, err := f.list(ctx, from.revision+(to.revision-from.revision)/2)
	if err != nil {
		return err
	}
	if err := f.between(ctx, from, middle); err != nil {
		return err
	}
	return f.between(ctx, middle, to)
}

// change records what one write has changed.
func (f *follower) change(from, to state) {
	for id, v := range to.objects {
		if before, existed := from.objects[id]; !existed || before.revision != v.revision {
			f.add(v)
		}
	}
	for id, v := range from.objects {
		if _, exists := to.objects[id]; !exists {
			v.gone, v.revision = true, to.revision
			f.add(v)
		}
	}
	f.reach(to.revision)
}
