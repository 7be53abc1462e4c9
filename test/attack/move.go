// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// move moves namespace a and all racks to a second server. It runs the verb again if the first run was
// interrupted. At no time may an object be lost, and at the end none may be in both clusters. move is
// the last step of a round.
func (w *world) move(ctx context.Context, s step) (err error) {
	before, err := w.observe(ctx)
	if err != nil {
		return err
	}
	args := []string{"move", "--namespace", w.run + "-a", "--drop-outside-owners", "--drop-finalizers", "--yes"}
	roots := w.movable(before)
	if len(roots) == 0 {
		return nil
	}
	for _, n := range roots {
		args = append(args, w.argument(n))
	}
	other, err := w.targetServer(ctx)
	if err != nil {
		return err
	}
	target := &world{server: other, run: w.run, graph: w.graph, uids: w.uids}
	defer func() { err = errors.Join(err, target.remove(ctx)) }()
	v := verb{config: w.adminConfig(), args: append(args, "--to", other.adminConfig())}
	for {
		r, err := w.attempt(ctx, s, v)
		if err != nil {
			return err
		}
		moved, err := w.checkNothingLost(ctx, target, before)
		if err != nil {
			return fmt.Errorf("%w; kindred %q: %s", err, v.args, r)
		}
		switch {
		case r.code == 0:
			return w.checkMoved(ctx, target, before, roots, moved)
		case s.kill == noVictim && len(moved) == 0 && strings.Contains(r.err, "refused"):
			return w.restored(ctx, before)
		case s.kill == noVictim:
			return fmt.Errorf("kindred %q: %s", v.args, r)
		}
		s.kill = noVictim
	}
}

// movable returns the roots of a move: nodes in namespace a and cluster-scoped ones.
func (w *world) movable(found map[int]seen) (roots []node) {
	for _, n := range w.graph {
		if s, exists := found[n.id]; exists && !s.terminating && n.namespace != "b" {
			roots = append(roots, n)
		}
	}
	return roots
}

// checkNothingLost checks that every object is in one of the clusters, and returns those at the target.
func (w *world) checkNothingLost(ctx context.Context, target *world, before map[int]seen) (map[int]seen, error) {
	// In this order an object that moves meanwhile is seen twice rather than missed.
	source, err := w.observe(ctx)
	if err != nil {
		return nil, err
	}
	moved, err := target.observe(ctx)
	if err != nil {
		return nil, err
	}
	for id := range before {
		_, here := source[id]
		if _, there := moved[id]; !here && !there {
			return nil, fmt.Errorf("n%02d is in neither cluster", id)
		}
	}
	return moved, nil
}

// checkMoved checks the result of a move.
func (w *world) checkMoved(ctx context.Context, target *world, before map[int]seen, roots []node, moved map[int]seen) error {
	source, err := w.observe(ctx)
	if err != nil {
		return err
	}
	for _, n := range roots {
		if _, stays := source[n.id]; stays {
			return fmt.Errorf("n%02d was moved and is at the source: %s", n.id, source[n.id])
		}
	}
	for id, s := range moved {
		if _, stays := source[id]; stays {
			return fmt.Errorf("n%02d is in both clusters", id)
		}
		if s.held {
			return fmt.Errorf("n%02d is on hold at the target", id)
		}
		want := slices.DeleteFunc(slices.Clone(before[id].owners), func(o string) bool { return !ownerMoved(o, moved) })
		if !slices.Equal(s.owners, want) {
			return fmt.Errorf("n%02d has owners %q at the target, want %q", id, s.owners, want)
		}
	}
	return nil
}

// ownerMoved reports whether the owner of a reference is among the moved objects. An absent owner is
// not, even if its node exists again with another UID.
func ownerMoved(reference string, moved map[int]seen) bool {
	if strings.HasSuffix(reference, goneSuffix) {
		return false
	}
	for id := range moved {
		if strings.HasPrefix(reference, fmt.Sprintf("n%02d", id)) {
			return true
		}
	}
	return false
}
