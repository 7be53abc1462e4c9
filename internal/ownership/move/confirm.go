// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

// confirmLimit is the time that Cluster API's controllers at the target get to resume what has moved.
const confirmLimit = time.Minute

// confirm waits until the target has what has moved of Cluster API, with its owners, and its controllers have resumed. Until then the move
// is not complete, and the same command continues here.
func (m *Mover) confirm(ctx context.Context) error {
	roots := slices.DeleteFunc(slices.Clone(m.roots), func(r Ref) bool { return !clusterapi.Has(r.Group) })
	if len(roots) == 0 {
		return nil
	}
	target := &live{m.Target, roots, clusterapi.Has}
	var wrong []string
	err := wait.PollUntilContextTimeout(ctx, gonePoll, confirmLimit, true, func(context.Context) (bool, error) { // a reading is not cut off by the limit
		m.Progress(fmt.Sprintf("waiting until the controllers of %s have resumed", m.Target.Name))
		g, missing, err := target.read(ctx)
		if err != nil {
			return false, err
		}
		if wrong, err = m.differs(ctx, g, missing); err != nil {
			return false, err
		}
		return len(wrong) == 0, nil
	})
	if ctx.Err() == nil && wait.Interrupted(err) {
		return fmt.Errorf("%s has the objects, but after %s not as they were: %s; run the same command again, which checks it again", m.Target.Name, confirmLimit, strings.Join(wrong, "; "))
	}
	return err
}

// differs says what of the graph at the target is not as it was at the source.
func (m *Mover) differs(ctx context.Context, g *Graph, missing []Ref) (wrong []string, err error) {
	for _, ref := range missing {
		wrong = append(wrong, ref.String()+" does not exist")
	}
	if g == nil {
		return wrong, nil
	}
	lost, err := m.lost(ctx)
	if err != nil {
		return nil, err
	}
	wrong = append(wrong, lost...)
	for _, item := range g.moved() {
		if !clusterapi.Has(item.kind().Group) {
			continue
		}
		if rests := conditionOf(item.Object, "Paused") == string(metav1.ConditionTrue); rests && !g.mayRest(item) {
			wrong = append(wrong, fmt.Sprintf("the controller of %s has not resumed", item))
		}
		stale, err := m.staleOwners(ctx, item)
		if err != nil {
			return nil, err
		}
		wrong = append(wrong, stale...)
	}
	return wrong, nil
}

// lost says which copies of Cluster API are gone, and which have lost owners. Controllers may add owners.
func (m *Mover) lost(ctx context.Context) (wrong []string, err error) {
	for _, object := range m.copies {
		if !clusterapi.Has(object.GroupVersionKind().Group) {
			continue
		}
		now, err := m.Target.get(ctx, object)
		if err != nil {
			return nil, err
		}
		if now == nil || now.GetUID() != object.GetUID() {
			wrong = append(wrong, describe(object)+" does not exist any more")
			continue
		}
		owners := ownerUIDs(now)
		for _, ref := range object.GetOwnerReferences() {
			if !slices.Contains(owners, ref.UID) {
				wrong = append(wrong, fmt.Sprintf("%s has lost its owner %s %s", describe(now), ref.Kind, ref.Name))
			}
		}
	}
	return wrong, nil
}

// mayRest reports whether somebody has paused an item on purpose: itself, or what owns it.
func (g *Graph) mayRest(item *Item) bool {
	return g.atOrAbove(item, func(i *Item) bool { return clusterapi.IsPaused(i.Object) })
}

// staleOwners says which owners of an item outside of the graph do not exist.
func (m *Mover) staleOwners(ctx context.Context, item *Item) (wrong []string, err error) {
	for _, ref := range item.Outside {
		if item.Object.GetDeletionTimestamp() != nil {
			break
		}
		like := &unstructured.Unstructured{}
		like.SetAPIVersion(ref.APIVersion)
		like.SetKind(ref.Kind)
		like.SetNamespace(item.Object.GetNamespace())
		like.SetName(ref.Name)
		owner, err := m.Target.get(ctx, like)
		if err != nil {
			return nil, err
		}
		if owner == nil || owner.GetUID() != ref.UID {
			wrong = append(wrong, fmt.Sprintf("%s names an owner that does not exist: %s %s", item, ref.Kind, ref.Name))
		}
	}
	return wrong, nil
}

// checkListing adds a problem for each kind that confirm may not list at the target.
func (m *Mover) checkListing(ctx context.Context, known *kinds, checked map[string]bool) {
	if !m.graph.hasClusterAPI() {
		return
	}
	namespaces := namespacesOf(m.roots)
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, k := range known.preferred {
		for _, namespace := range namespaces {
			if clusterapi.Has(k.GroupVersionKind.Group) && k.namespaced && k.can("list") {
				m.checkAccess(ctx, m.Target, k, namespace, checked, "list")
			}
		}
	}
}
