// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

// Cluster API's controllers act on machines outside of the cluster, so that those of both clusters must never work at once. Its objects
// are paused at the source before they are copied: Clusters first, which pauses all that belongs to them, and then other roots. Their
// copies have the content from before the pause.
const (
	// pauseMark has the ID of the move that has paused an object of the source.
	pauseMark = "ownership.kindred.dev/paused-by-move"
	// blockMove is set by controllers on objects that cannot move yet, as clusterctl's contract says.
	blockMove = "clusterctl.cluster.x-k8s.io/block-move"
	// pauseLimit limits the wait for controllers to stop. clusterctl's limit is about the same.
	pauseLimit = 2 * time.Minute
	// resumeLimit is for the requests that resume the source, which are also made after an interrupt.
	resumeLimit = 30 * time.Second
)

// isPausable reports whether the source pauses an item itself.
func isPausable(item *Item) bool {
	return clusterapi.Has(item.kind().Group) && (item.Root || item.kind() == clusterapi.Cluster)
}

// pausable returns the items to pause, Clusters first.
func (g *Graph) pausable() (items []*Item) {
	for _, item := range g.moved() {
		if isPausable(item) {
			items = append(items, item)
		}
	}
	slices.SortStableFunc(items, kindFirst(clusterapi.Cluster))
	return items
}

// kindFirst returns a comparison that sorts the items of a kind before all others.
func kindFirst(kind schema.GroupKind) func(a, b *Item) int {
	return func(a, b *Item) int {
		switch isA, isB := a.kind() == kind, b.kind() == kind; {
		case isA == isB:
			return 0
		case isA:
			return -1
		default:
			return 1
		}
	}
}

// kindLast is the reverse of kindFirst.
func kindLast(kind schema.GroupKind) func(a, b *Item) int {
	first := kindFirst(kind)
	return func(a, b *Item) int { return first(b, a) }
}

// rests reports whether the controllers of an item are paused during the move: it is paused itself, or belongs to a Cluster that is.
func (g *Graph) rests(item *Item) bool {
	return clusterapi.Has(item.kind().Group) && (isPausable(item) || g.atOrAbove(item, func(i *Item) bool { return i.kind() == clusterapi.Cluster }))
}

// pausedBy returns the ID of the move that has paused an object, or "".
func pausedBy(object *unstructured.Unstructured) string { return object.GetAnnotations()[pauseMark] }

// pauseOf returns the merge patch that pauses an item for a move, and, without a move, the one that resumes it.
func pauseOf(item *Item, move string) map[string]any {
	h, _ := holdOf(item.kind())
	changes, by := map[string]any{}, any(move)
	if move == "" {
		by = nil
	}
	for path, held := range h.fields {
		if move == "" {
			held = nil
		}
		_ = unstructured.SetNestedField(changes, held, fieldsOf(path)...)
	}
	_ = unstructured.SetNestedField(changes, by, "metadata", "annotations", pauseMark)
	return changes
}

// withoutPause returns an object as it was before a move has paused it.
func withoutPause(object *unstructured.Unstructured) *unstructured.Unstructured {
	if pausedBy(object) == "" {
		return object
	}
	object = object.DeepCopy()
	h, _ := holdOf(object.GroupVersionKind().GroupKind())
	for path := range h.fields {
		unstructured.RemoveNestedField(object.Object, fieldsOf(path)...)
	}
	return object
}

// pause pauses the objects of Cluster API at the source, waits until their controllers have stopped, and reads the graph that they have
// left.
func (m *Mover) pause(ctx context.Context) error {
	if m.Source == nil {
		return nil
	}
	items := m.graph.pausable()
	if len(items) == 0 {
		return nil
	}
	for i, item := range items {
		m.Progress(fmt.Sprintf("pausing %d of %d at the source: %s", i+1, len(items), item))
		if pausedBy(item.Object) == m.plan.ID {
			continue // by a run that was interrupted
		}
		if _, err := m.patch(ctx, m.Source, item.Object, pauseOf(item, m.plan.ID)); err != nil {
			return err
		}
	}
	return m.awaitPaused(ctx)
}

func (m *Mover) awaitPaused(ctx context.Context) error {
	active := ""
	err := wait.PollUntilContextTimeout(ctx, gonePoll, pauseLimit, true, func(limited context.Context) (bool, error) {
		g, missing, err := m.source.read(limited)
		if err != nil {
			return false, err
		}
		if len(missing) > 0 {
			return false, notFound(m.source.String(), missing)
		}
		if active = g.active(); active != "" {
			m.Progress("waiting: " + active)
			return false, nil
		}
		m.graph = g
		return true, nil
	})
	if ctx.Err() == nil && wait.Interrupted(err) {
		return fmt.Errorf("%s: after %s, %s", m.source, pauseLimit, active)
	}
	return err
}

// active says which object is still being worked on, or returns "". Controllers say by the condition Paused that they have stopped; those of
// older providers have no such condition.
func (g *Graph) active() string {
	for _, item := range g.moved() {
		if !clusterapi.Has(item.kind().Group) {
			continue
		}
		if _, blocked := item.Object.GetAnnotations()[blockMove]; blocked {
			return fmt.Sprintf("%s has the annotation %s, which its controller removes when it can move", item, blockMove)
		}
		if g.rests(item) && conditionOf(item.Object, "Paused") == string(metav1.ConditionFalse) {
			return fmt.Sprintf("the controller of %s has not paused", item)
		}
	}
	return ""
}

// resume undoes pause at the source, also after an interrupt.
func (m *Mover) resume(ctx context.Context) error {
	if m.Source == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeLimit)
	defer cancel()
	items := m.graph.pausable()
	slices.Reverse(items) // as clusterctl does: ClusterClasses before the Clusters that use them
	var failed []error
	for _, item := range items {
		now, err := m.Source.get(ctx, item.Object)
		if err == nil && now != nil && now.GetUID() == item.UID() && pausedBy(now) == m.plan.ID {
			_, err = m.patch(ctx, m.Source, now, pauseOf(item, ""))
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s is still paused: %w", item, err))
		}
	}
	return errors.Join(failed...)
}
