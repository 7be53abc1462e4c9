// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// undelete undoes the last deletion, target by target in the order of the step, and compares the
// graph with the one before the deletion.
func (w *world) undelete(ctx context.Context, s step) error {
	if w.deleted == nil {
		return nil
	}
	deleted := w.deleted
	w.deleted = nil
	targets := slices.Clone(deleted.targets)
	slices.SortStableFunc(targets, func(a, b node) int { return slices.Index(s.targets, a.id) - slices.Index(s.targets, b.id) })
	said, err := w.undeleteAll(ctx, s, targets)
	if err != nil {
		return err
	}
	// A target that needs another one may have been refused, and an interrupted undeletion is
	// resumed by the same command.
	for range 2 {
		if w.restored(ctx, deleted.before) == nil {
			break
		}
		again, err := w.undeleteAll(ctx, step{}, targets)
		if err != nil {
			return err
		}
		said = append(said, again...)
	}
	if _, err := w.await(ctx, "after the undeletion", func(found map[int]seen) error { return w.sameGraph(deleted.before, found) }); err != nil {
		return fmt.Errorf("%w\nbefore there was\n%s\nthe verb said\n%s", err, describe(deleted.before), strings.Join(said, "\n"))
	}
	return nil
}

// undeleteAll runs the verb for each target in order, and returns its output. In a step by two
// clients, a second one does the same in the opposite order at the same time.
func (w *world) undeleteAll(ctx context.Context, s step, targets []node) ([]string, error) {
	if !s.together {
		return w.undeleteInOrder(ctx, s, targets)
	}
	var second []string
	var failed error
	var running sync.WaitGroup
	running.Go(func() {
		opposite := slices.Clone(targets)
		slices.Reverse(opposite)
		second, failed = w.undeleteInOrder(ctx, step{}, opposite)
	})
	said, err := w.undeleteInOrder(ctx, s, targets)
	running.Wait()
	for _, text := range second {
		said = append(said, "the second client, "+text)
	}
	return said, errors.Join(err, failed)
}

// undeleteInOrder runs the verb for each target, and kills the victim of the step during the first.
func (w *world) undeleteInOrder(ctx context.Context, s step, targets []node) (said []string, err error) {
	for _, n := range targets {
		r, err := w.attempt(ctx, s, verb{config: w.adminConfig(), args: append([]string{"undelete", w.argument(n)}, w.inNamespace(n)...)})
		if err != nil {
			return said, err
		}
		said = append(said, fmt.Sprintf("n%02d: %s", n.id, r))
		s.kill = noVictim
	}
	return said, nil
}

func (w *world) restored(ctx context.Context, before map[int]seen) error {
	found, err := w.observe(ctx)
	if err != nil {
		return err
	}
	return w.sameGraph(before, found)
}

// sameGraph compares two states of a graph, except for UIDs.
func (w *world) sameGraph(before, after map[int]seen) error {
	for _, id := range slices.Sorted(maps.Keys(before)) {
		found, exists := after[id]
		if !exists {
			return fmt.Errorf("n%02d is not back", id)
		}
		a, b := w.comparable(id, found), w.comparable(id, before[id])
		if a.String() != b.String() {
			return fmt.Errorf("n%02d came back with %s; it was %s", id, a, b)
		}
	}
	for id := range after {
		if _, existed := before[id]; !existed {
			return fmt.Errorf("n%02d is there and was not", id)
		}
	}
	return nil
}

// comparable returns the part of a node's state that an undeletion restores: without its UID,
// without references to owners that did not exist, which it leaves out and reports, and without
// invalid references, which keep former UIDs in objects that were not deleted.
func (w *world) comparable(id int, s seen) seen {
	n, _ := w.graph.find(id)
	s.uid = ""
	s.owners = slices.DeleteFunc(slices.Clone(s.owners), func(o string) bool {
		if strings.HasPrefix(o, owner{to: absent}.String()) {
			return true
		}
		var to int
		_, err := fmt.Sscanf(o, "n%d", &to)
		return err == nil && (o == absentNode(to) || !mayOwn(w.graph, to, n))
	})
	return s
}
