// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// deletion is a deletion that was carried out, and the graph before it.
type deletion struct {
	targets []node
	before  map[int]seen
	// crashed reports whether the server was killed meanwhile; it may have lost collection records.
	crashed bool
}

// fate is the outcome of a node in a preview.
type fate struct {
	ownership.DeletionOutcome
	heldUp bool
}

// delete previews a deletion, carries it out, and compares the result with the preview.
func (w *world) delete(ctx context.Context, s step) error {
	before, err := w.observe(ctx)
	if err != nil {
		return err
	}
	targets := w.deletable(s, before)
	if len(targets) == 0 {
		return nil
	}
	args := append([]string{"delete", "--cascade", s.cascade}, w.inNamespace(w.widest(targets))...)
	for _, n := range targets {
		args = append(args, w.argument(n))
	}
	fates, err := w.preview(ctx, args)
	if err != nil {
		return err
	}
	yes := append(args, "--yes", "--wait=false")
	r, err := w.attempt(ctx, s, verb{config: w.adminConfig(), args: yes})
	if err != nil {
		return err
	}
	if s.kill == noVictim && r.code != 0 {
		return fmt.Errorf("kindred %q: %s", yes, r)
	}
	if s.kill != noVictim {
		if err := w.complete(ctx, s, targets); err != nil {
			return err
		}
	}
	w.deleted = &deletion{targets: targets, before: before, crashed: s.kill == theServer}
	// Between the deletions of several targets, the collector may release one from a dependent that
	// is deleted next.
	if err := w.awaitFates(ctx, before, fates, s.kill == noVictim && len(targets) == 1); err != nil {
		return err
	}
	for _, f := range fates {
		if f.DeletionOutcome == ownership.OutcomeBlocked {
			return errEnd
		}
	}
	return w.why(ctx, fates)
}

// deletable returns the targets that one command can name: those in one namespace and cluster-scoped
// ones.
func (w *world) deletable(s step, found map[int]seen) (targets []node) {
	namespace := ""
	for _, n := range w.targets(s, found) {
		if found[n.id].terminating || n.namespace != "" && namespace != "" && n.namespace != namespace {
			continue
		}
		targets, namespace = append(targets, n), max(namespace, n.namespace)
	}
	return targets
}

// widest returns a namespaced target if there is one.
func (w *world) widest(targets []node) node {
	return slices.MaxFunc(targets, func(a, b node) int { return strings.Compare(a.namespace, b.namespace) })
}

func (w *world) preview(ctx context.Context, args []string) (map[int]fate, error) {
	r, err := w.server.run(ctx, verb{config: w.adminConfig(), args: append(args, "--preview", "-o", "json")})
	if err != nil {
		return nil, err
	}
	if r.code != 0 {
		return nil, fmt.Errorf("kindred %q --preview: %s", args, r)
	}
	fates := map[int]fate{}
	for decoder := json.NewDecoder(bytes.NewReader([]byte(r.out))); ; {
		var preview ownership.DeletionPreview
		if err := decoder.Decode(&preview); errors.Is(err, io.EOF) {
			return fates, nil
		} else if err != nil {
			return nil, err
		}
		for _, o := range preview.Status.Objects {
			if id, ok := w.uids[o.UID]; ok {
				fates[id] = fate{o.Outcome, len(o.BlockedBy) > 0}
			}
		}
	}
}

// complete deletes the targets that an interrupted deletion did not reach.
func (w *world) complete(ctx context.Context, s step, targets []node) error {
	found, err := w.observe(ctx)
	if err != nil {
		return err
	}
	for _, n := range targets {
		if seen, exists := found[n.id]; !exists || seen.terminating {
			continue
		}
		args := append([]string{"delete", "--yes", "--wait=false", "--cascade", s.cascade, w.argument(n)}, w.inNamespace(n)...)
		r, err := w.server.run(ctx, verb{config: w.adminConfig(), args: args})
		if err != nil {
			return err
		}
		// The collector may have been faster.
		if r.code != 0 && !strings.Contains(r.err, "not found") {
			return fmt.Errorf("kindred %q: %s", args, r)
		}
	}
	return nil
}

// awaitFates waits until the preview has come true: first while finalizers block deletions, then
// without them.
func (w *world) awaitFates(ctx context.Context, before map[int]seen, fates map[int]fate, undisturbed bool) error {
	_, err := w.await(ctx, "after the deletion", func(found map[int]seen) error {
		for id := range before {
			f, _ := fates[id]
			_, exists := found[id]
			goes := f.DeletionOutcome == ownership.OutcomeDeleted
			switch {
			case exists && goes && !f.heldUp && !awaitsDependent(id, found):
				return fmt.Errorf("n%02d should go and exists", id)
			case !exists && !goes:
				return fmt.Errorf("n%02d is gone, and %q was foretold", id, f.DeletionOutcome)
			case !exists && f.heldUp && undisturbed:
				return fmt.Errorf("n%02d is gone, and should be held up", id)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = w.await(ctx, "after the deletion, without finalizers", func(found map[int]seen) error {
		if err := w.release(ctx, found); err != nil {
			return err
		}
		for id := range before {
			s, exists := found[id]
			switch goes := fates[id].DeletionOutcome == ownership.OutcomeDeleted; {
			case exists == goes:
				return fmt.Errorf("n%02d exists: %t, and %q was foretold", id, exists, fates[id].DeletionOutcome)
			case exists && !s.terminating && w.dangles(id, s):
				return fmt.Errorf("n%02d keeps a reference to an owner that is gone: %s", id, s)
			}
		}
		return nil
	})
	return err
}

// awaitsDependent reports whether a node that is deleted in the foreground waits for a dependent. The
// collector deletes a dependent in the foreground only while its owner waits; whether the owner still
// does depends on timing, and the preview has one of both outcomes.
func awaitsDependent(id int, found map[int]seen) bool {
	if !slices.Contains(found[id].finalizers, metav1.FinalizerDeleteDependents) {
		return false
	}
	reference := fmt.Sprintf("n%02d ", id)
	for _, s := range found {
		if slices.ContainsFunc(s.owners, func(o string) bool { return strings.HasPrefix(o, reference) && strings.HasSuffix(o, "block") }) {
			return true
		}
	}
	return false
}

// dangles reports whether a node has a dangling reference that the collector should have removed.
func (w *world) dangles(id int, s seen) bool {
	n, _ := w.graph.find(id)
	_, known := standing(w.graph, settle(w.graph), n, n.owners)
	return known && slices.ContainsFunc(s.owners, func(o string) bool { return strings.HasSuffix(o, "gone") })
}

// release removes the finalizers of the graph from terminating objects.
func (w *world) release(ctx context.Context, found map[int]seen) error {
	for id, s := range found {
		n, _ := w.graph.find(id)
		if !s.terminating || !slices.ContainsFunc(s.finalizers, func(f string) bool { return slices.Contains(finalizers, f) }) {
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(s.finalizers), func(f string) bool { return slices.Contains(finalizers, f) })
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": rest, "uid": s.uid}})
		if err != nil {
			return err
		}
		if err := patch(ctx, w.objects(n), w.name(n), string(text)); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// why checks the explanation of each object that is gone.
func (w *world) why(ctx context.Context, fates map[int]fate) error {
	for id, f := range fates {
		if f.DeletionOutcome != ownership.OutcomeDeleted {
			continue
		}
		n, _ := w.graph.find(id)
		answer := &ownership.OwnershipExplanation{}
		if err := w.ask(ctx, answer, []int{0}, append([]string{"why", w.argument(n)}, w.inNamespace(n)...)...); err != nil {
			return err
		}
		isTarget := slices.ContainsFunc(w.deleted.targets, func(t node) bool { return t.id == id })
		if err := w.explained(answer.Status, isTarget); err != nil {
			return fmt.Errorf("why n%02d: %w; %+v", id, err, answer.Status)
		}
	}
	return nil
}

func (w *world) explained(s ownership.OwnershipExplanationStatus, target bool) error {
	switch {
	case s.State != ownership.StateGone:
		return fmt.Errorf("it is %s", s.State)
	case len(s.Deletions) == 0:
		return errors.New("no deletion is told")
	case w.deleted.crashed && !target:
		return nil // the last second of collections before a crash may be unrecorded
	}
	first, last := s.Deletions[0], s.Deletions[len(s.Deletions)-1]
	for i, d := range s.Deletions[1:] {
		if d.Time != nil && s.Deletions[i].Time != nil && s.Deletions[i].Time.Before(d.Time) {
			return errors.New("an effect is told as earlier than its cause")
		}
	}
	if byUser := last.By.Kind == ownership.AgentUser; !byUser {
		return fmt.Errorf("it goes back to %s, by %s", last.Object.Name, last.By.Kind)
	}
	if byUser := first.By.Kind == ownership.AgentUser; byUser != target && !target {
		return fmt.Errorf("a user is said to have deleted it")
	}
	return nil
}
