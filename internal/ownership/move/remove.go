// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/finalizer"
)

const (
	// goneLimit limits the wait for deletions, which may take a pod's grace period or the garbage
	// collector's time.
	goneLimit = 2 * time.Minute
	gonePoll  = 200 * time.Millisecond
)

// removal is the removal of the originals at the source, according to the marks of the copies.
type removal struct {
	*Mover
	graph *Graph
	// dependents has the items by the UIDs of their owners.
	dependents map[types.UID][]*Item
	// copies has the copies by the UIDs of the originals.
	copies map[types.UID]*unstructured.Unstructured
	names  map[string]bool
	// leaving are objects that were not copied and whose owner is deleted with the policy Orphan.
	leaving []*unstructured.Unstructured
	// resting are the UIDs of the originals whose controllers are paused.
	resting map[types.UID]bool
	// kept has the UIDs of originals that stay, with all their dependents.
	kept map[types.UID]bool
	// gone are the deleted originals.
	gone []*unstructured.Unstructured
}

// remove removes the remaining originals. An original that has changed since it was copied stays.
func (m *Mover) remove(ctx context.Context) error {
	r := &removal{Mover: m, copies: map[types.UID]*unstructured.Unstructured{}, names: map[string]bool{}, kept: map[types.UID]bool{}}
	var refs []Ref
	for _, object := range m.copies {
		r.copies[markOf(object).from] = object
		r.names[nameKey(object.GroupVersionKind().GroupKind(), object.GetNamespace(), object.GetName())] = true
		refs = append(refs, Ref{object.GroupVersionKind(), object.GetNamespace(), object.GetName()})
	}
	r.resting = m.resting()
	if err := r.read(ctx, namespacesOf(refs)); err != nil {
		return err
	}
	items := slices.Clone(r.graph.Items)
	slices.SortStableFunc(items, kindLast(clusterapi.ClusterClass))
	for i, item := range items {
		m.Progress(fmt.Sprintf("removing %d of %d at the source: %s", i+1, len(items), item))
		// A webhook refuses to remove a class that a Cluster uses.
		if item.kind() == clusterapi.ClusterClass {
			if err := r.settle(ctx); err != nil {
				return err
			}
		}
		if err := r.removeItem(ctx, item); err != nil {
			return err
		}
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	for _, object := range r.leaving {
		if err := m.delete(ctx, m.Source, object, metav1.DeletePropagationBackground); err != nil {
			return err
		}
	}
	r.gone = r.leaving
	_, err := r.awaitGone(ctx)
	return err
}

// settle waits until what was deleted is gone, and counts it.
func (r *removal) settle(ctx context.Context) error {
	left, err := r.awaitGone(ctx)
	if err != nil {
		return err
	}
	r.report.Removed += len(r.gone) - left
	r.gone = nil
	return nil
}

// resting returns the UIDs of the originals whose controllers are paused, which the copies tell.
func (m *Mover) resting() map[types.UID]bool {
	roots := map[types.UID]bool{}
	for _, object := range m.copies {
		if slices.ContainsFunc(m.roots, func(ref Ref) bool { return ref.String() == describe(object) }) {
			roots[object.GetUID()] = true
		}
	}
	resting := map[types.UID]bool{}
	g := Assemble(m.copies, roots)
	for _, item := range g.Items {
		if g.rests(item) {
			resting[markOf(item.Object).from] = true
		}
	}
	return resting
}

// read finds the rest of the graph at the source: the originals, their dependents, and the objects
// that an interrupted run had marked as leaving.
func (r *removal) read(ctx context.Context, namespaces []string) error {
	listed, err := r.Source.list(ctx, namespaces, anyGroup)
	if err != nil {
		return err
	}
	all := make([]metav1.Object, len(listed))
	left := map[types.UID]bool{}
	for i, object := range listed {
		all[i] = object
		if r.copies[object.GetUID()] != nil {
			left[object.GetUID()] = true
		}
	}
	members := Members(all, left)
	var objects []*unstructured.Unstructured
	for _, object := range listed {
		known, err := metadataOf(object)
		switch {
		case err != nil:
			return err
		case members[object.GetUID()]:
			delete(members, object.GetUID())
			objects = append(objects, known)
		case object.Annotations[leavingMark] == r.plan.ID:
			r.leaving = append(r.leaving, known)
		}
	}
	r.graph = Assemble(objects, nil)
	r.dependents = r.graph.dependents()
	return nil
}

func (r *removal) keep(item *Item, reason string) {
	r.kept[item.UID()] = true
	r.report.Kept = append(r.report.Kept, Kept{item.String(), reason})
}

func (r *removal) removeItem(ctx context.Context, item *Item) error {
	object := r.copies[item.UID()]
	for _, uid := range ownerUIDs(item.Object) {
		if r.kept[uid] {
			r.keep(item, "its owner stays")
			return nil
		}
	}
	if object == nil && item.Fate == Remade {
		return nil // It is deleted with its owner.
	}
	if object == nil {
		r.keep(item, "it was created after the copy")
		return nil
	}
	var reason string
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		reason, err = r.removeCopied(ctx, item, object)
		return err
	})
	if err == nil && reason != "" {
		r.keep(item, reason)
	}
	return err
}

// removeCopied removes an original whose content is the copied one, with the state that it has
// compared as a precondition. Otherwise it returns why the original stays.
func (r *removal) removeCopied(ctx context.Context, item *Item, object *unstructured.Unstructured) (string, error) {
	own := markOf(object)
	like := item.Object.DeepCopy()
	like.SetAPIVersion(own.APIVersion)
	now, err := r.Source.get(ctx, like)
	if err != nil || now == nil || now.GetUID() != item.UID() {
		return "", err
	}
	if digest(now, r.wasCopied) != own.Digest {
		return "it changed after it was copied: compare it with the copy", nil
	}
	if reason, err := keepAtSource(ctx, r.Source, now); err != nil || reason != "" {
		return reason, err
	}
	foreign := finalizer.Foreign(now)
	resting := r.resting[item.UID()]
	if len(foreign) > 0 && !r.DropFinalizers && !resting {
		return "it now has the finalizer " + strings.Join(foreign, ", "), nil
	}
	policy, err := r.propagation(ctx, item)
	if err != nil {
		return "", err
	}
	if len(foreign) > 0 && !resting {
		if now, err = r.dropFinalizers(ctx, now); err != nil || now == nil {
			return "", err
		}
	}
	if err := r.delete(ctx, r.Source, now, policy); err != nil {
		return "", err
	}
	r.gone = append(r.gone, now)
	if len(foreign) == 0 || !resting {
		return "", nil
	}
	// Controllers that are paused set finalizers that they miss, and do not act on a deletion. So the finalizers go last: none can be
	// added to an object that is being deleted.
	return "", retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		latest, err := r.Source.get(ctx, now)
		if err == nil && latest != nil && latest.GetUID() == item.UID() {
			_, err = r.dropFinalizers(ctx, latest)
		}
		return err
	})
}

// dropFinalizers removes the finalizers that are not Kubernetes' own. It returns nil if the object is gone.
func (r *removal) dropFinalizers(ctx context.Context, now *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	foreign := finalizer.Foreign(now)
	kept := slices.DeleteFunc(now.GetFinalizers(), func(f string) bool { return slices.Contains(foreign, f) })
	return r.patch(ctx, r.Source, now, map[string]any{"metadata": map[string]any{"resourceVersion": now.GetResourceVersion(), "finalizers": kept}})
}

func (r *removal) wasCopied(kind schema.GroupKind, namespace, name string) bool {
	return r.names[nameKey(kind, namespace, name)]
}

// propagation returns the policy to delete an owner with. It is Background if all dependents are
// Remade, so that the garbage collector also deletes those that the controller is just creating.
// Otherwise it is Orphan, and propagation first marks the dependents that were not copied: after
// the owner's deletion, nothing else would show that they belong to the graph.
func (r *removal) propagation(ctx context.Context, owner *Item) (metav1.DeletionPropagation, error) {
	var remade []*unstructured.Unstructured
	others := false
	for _, item := range r.dependents[owner.UID()] {
		if item.Fate == Remade {
			remade = append(remade, item.Object)
		} else {
			others = true
		}
	}
	if !others {
		return metav1.DeletePropagationBackground, nil
	}
	for _, object := range remade {
		if object.GetAnnotations()[leavingMark] == r.plan.ID {
			r.leaving = append(r.leaving, object)
			continue
		}
		marked, err := r.annotate(ctx, r.Source, object, map[string]any{leavingMark: r.plan.ID})
		if err != nil {
			return "", err
		}
		if marked != nil {
			r.leaving = append(r.leaving, marked)
		}
	}
	return metav1.DeletePropagationOrphan, nil
}

// awaitGone waits until all deleted objects are gone. After goneLimit it reports which objects
// still exist, and why, and returns their number.
func (r *removal) awaitGone(ctx context.Context) (int, error) {
	waiting := r.gone
	err := wait.PollUntilContextTimeout(ctx, gonePoll, goneLimit, true, func(limited context.Context) (_ bool, err error) {
		r.Progress(fmt.Sprintf("waiting until %d objects are gone at the source", len(waiting)))
		waiting, err = r.present(limited, waiting)
		return len(waiting) == 0, err
	})
	if ctx.Err() != nil || err != nil && !wait.Interrupted(err) {
		return 0, errors.Join(err, ctx.Err())
	}
	if err == nil {
		return 0, nil
	}
	// The timeout may have interrupted the last reading.
	if waiting, err = r.present(ctx, waiting); err != nil {
		return 0, err
	}
	for _, object := range waiting {
		r.report.Kept = append(r.report.Kept, Kept{describe(object), lingering(object)})
	}
	return len(waiting), nil
}

// present returns the current state of the objects that the source still has. On an error it
// returns all given objects except those that it found deleted.
func (r *removal) present(ctx context.Context, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for i, object := range objects {
		now, err := r.Source.get(ctx, object)
		if err != nil {
			return append(found, objects[i:]...), err
		}
		if now != nil && now.GetUID() == object.GetUID() {
			found = append(found, now)
		}
	}
	return found, nil
}

// lingering explains what the deletion of an object waits for.
func lingering(object *unstructured.Unstructured) string {
	if object.GetDeletionTimestamp() == nil {
		return "it exists again, or the source has not started to delete it"
	}
	message := fmt.Sprintf("it is being deleted, but still exists after %s: ", goneLimit)
	var waits []string
	for _, name := range object.GetFinalizers() {
		switch remover, manager := finalizer.Remover(name), finalizer.SetBy(object, name); {
		case remover != "":
			waits = append(waits, fmt.Sprintf("finalizer %s: %s", name, remover))
		case manager != "":
			waits = append(waits, fmt.Sprintf("finalizer %s, which %s set: the controller that must remove it does not, or does not run", name, manager))
		default:
			waits = append(waits, fmt.Sprintf("finalizer %s, which its controller must remove", name))
		}
	}
	node, _, _ := unstructured.NestedString(object.Object, "spec", "nodeName")
	switch {
	case len(waits) > 0:
		return message + "it waits for " + strings.Join(waits, "; and for ")
	case object.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Pod"} && node != "":
		return message + "node " + node + " must stop its containers"
	default:
		return message + "it has no finalizer, so the source's API server must remove it"
	}
}

// delete deletes an object with its UID and resourceVersion as preconditions. Objects that change
// all the time, because their controller will recreate them, are deleted with the UID only.
func (m *Mover) delete(ctx context.Context, c *Cluster, object *unstructured.Unstructured, policy metav1.DeletionPropagation) error {
	k, err := c.served(ctx, object)
	if err != nil {
		return err
	}
	uid, version := object.GetUID(), object.GetResourceVersion()
	conditions := &metav1.Preconditions{UID: &uid}
	if !isRecreatable(object) {
		conditions.ResourceVersion = &version
	}
	err = c.objects(k, object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{Preconditions: conditions, PropagationPolicy: &policy})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return c.wrapError(err)
}

// patch applies a merge patch to the object with the same UID. It returns nil if that was deleted.
func (m *Mover) patch(ctx context.Context, c *Cluster, object *unstructured.Unstructured, changes map[string]any) (*unstructured.Unstructured, error) {
	k, err := c.served(ctx, object)
	if err != nil {
		return nil, err
	}
	_ = unstructured.SetNestedField(changes, string(object.GetUID()), "metadata", "uid")
	body, err := json.Marshal(changes)
	if err != nil {
		return nil, err
	}
	patched, err := c.objects(k, object.GetNamespace()).Patch(ctx, object.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot change %s: %w", c.Name, describe(object), err)
	}
	return patched, nil
}

func (m *Mover) annotate(ctx context.Context, c *Cluster, object *unstructured.Unstructured, changes map[string]any) (*unstructured.Unstructured, error) {
	return m.patch(ctx, c, object, map[string]any{"metadata": map[string]any{"annotations": changes}})
}

// release removes holds and marks, owners first, because a Deployment scales its ReplicaSets and
// copies its marks to them; but Clusters last, because they pause their dependents. It removes the anchor last, when Cluster API's controllers have resumed.
func (m *Mover) release(ctx context.Context) error {
	copies := slices.Clone(m.copies)
	last := kindLast(clusterapi.Cluster)
	slices.SortStableFunc(copies, func(a, b *unstructured.Unstructured) int { return last(&Item{Object: a}, &Item{Object: b}) })
	for i, object := range copies {
		m.Progress(fmt.Sprintf("releasing %d of %d: %s", i+1, len(copies), describe(object)))
		own, changes := markOf(object), map[string]any{}
		if own.Held != "" {
			if err := json.Unmarshal([]byte(own.Held), &changes); err != nil {
				return fmt.Errorf("%s: annotation %s: %w", describe(object), own.key(), err)
			}
		}
		_ = unstructured.SetNestedField(changes, nil, "metadata", "annotations", own.key())
		if _, err := m.patch(ctx, m.Target, object, changes); err != nil {
			return err
		}
	}
	if err := m.sweep(ctx); err != nil {
		return err
	}
	if err := m.releaseNamespaces(ctx); err != nil {
		return err
	}
	if err := m.confirm(ctx); err != nil {
		return err
	}
	return m.deleteAnchor(ctx)
}

// sweep removes marks that controllers copied to dependents. The owners no longer have marks, so no
// more are copied.
func (m *Mover) sweep(ctx context.Context) error {
	for _, object := range append(slices.Clone(m.copies), m.touched...) {
		if len(object.GetOwnerReferences()) == 0 {
			continue
		}
		stored, err := m.Target.get(ctx, object)
		if err != nil {
			return err
		}
		if stored == nil {
			continue
		}
		changes := map[string]any{}
		for key := range stored.GetAnnotations() {
			if isMark(key) {
				changes[key] = nil
			}
		}
		if len(changes) == 0 {
			continue
		}
		if _, err := m.annotate(ctx, m.Target, stored, changes); err != nil {
			return err
		}
	}
	return nil
}

// releaseNamespaces removes the marks of the namespaces that were created for the move.
func (m *Mover) releaseNamespaces(ctx context.Context) error {
	names := slices.Clone(m.namespaces)
	for _, object := range m.copies {
		names = append(names, object.GetNamespace())
	}
	for _, root := range m.roots {
		names = append(names, root.Namespace)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == "" {
			continue
		}
		namespace, err := m.Target.get(ctx, namespaceRef(name).object())
		if apierrors.IsForbidden(err) {
			continue // A caller who may not read it has not created it.
		}
		if err != nil {
			return err
		}
		if namespace == nil || namespace.GetAnnotations()[namespaceMark] != m.plan.ID {
			continue
		}
		if _, err := m.annotate(ctx, m.Target, namespace, map[string]any{namespaceMark: nil}); err != nil {
			return err
		}
	}
	return nil
}
