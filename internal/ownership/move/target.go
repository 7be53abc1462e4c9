// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/ownership/finalizer"
)

// planSource adds to the plan what depends on the source: the originals that stay, and missing
// permissions.
func (m *Mover) planSource(ctx context.Context) error {
	if m.KeepSource {
		return nil
	}
	dependents := m.graph.dependents()
	checked := map[string]bool{}
	for i, item := range m.graph.Items {
		verbs := verbsAtSource(item, dependents)
		if len(verbs) == 0 {
			continue
		}
		k, err := m.Source.served(ctx, item.Object)
		if err != nil {
			return err
		}
		m.checkAccess(ctx, m.Source, k, item.Object.GetNamespace(), checked, verbs...)
		if item.Fate != Moved {
			continue
		}
		if m.plan.Objects[i].Keep, err = keepAtSource(ctx, m.Source, item.Object); err != nil {
			return err
		}
		if reason := m.plan.Objects[i].Keep; reason != "" {
			m.plan.note("the source keeps %s: %s", item, reason)
		}
	}
	return nil
}

// verbsAtSource returns the verbs that the removal of an item needs. A Remade item is deleted with
// its owner, unless the owner has other dependents and is deleted with the policy Orphan.
func verbsAtSource(item *Item, dependents map[types.UID][]*Item) []string {
	if item.Fate == Remade {
		for _, uid := range ownerUIDs(item.Object) {
			if slices.ContainsFunc(dependents[uid], func(other *Item) bool { return other.Fate == Moved }) {
				return []string{"delete", "patch"}
			}
		}
		return nil
	}
	if len(finalizer.Foreign(item.Object)) > 0 || isPausable(item) {
		return []string{"delete", "patch"}
	}
	return []string{"delete"}
}

// checkAccess adds a problem for each verb that a cluster does not allow the caller, once.
func (m *Mover) checkAccess(ctx context.Context, c *Cluster, k kind, namespace string, checked map[string]bool, verbs ...string) {
	for _, verb := range verbs {
		verb, sub, _ := strings.Cut(verb, "/")
		resource := k.GroupResource().String()
		if sub != "" {
			resource += "/" + sub
		}
		key := strings.Join([]string{verb, resource, namespace}, " ")
		if checked[key] {
			continue
		}
		checked[key] = true
		if c.allows(ctx, verb, k, sub, namespace) {
			continue
		}
		where := "cluster-wide"
		if namespace != "" {
			where = "in namespace " + namespace
		}
		m.plan.problem("%s does not allow you to %s %s %s: grant that there", c.Name, verb, resource, where)
	}
}

// planTarget adds to the plan what depends on the target: kinds that it does not serve, objects
// that it already has, missing namespaces and permissions, and objects that it rejects.
func (m *Mover) planTarget(ctx context.Context) error {
	known, err := m.Target.knownKinds(ctx)
	if err != nil {
		return err
	}
	checked, unserved := map[string]bool{}, map[string]bool{}
	at := anchorRef(m.roots)
	m.checkAccess(ctx, m.Target, known.served[at.GroupVersionKind], at.Namespace, checked, "get", "create", "patch", "delete")
	for i, item := range m.graph.Items {
		if item.Fate != Moved {
			continue
		}
		gvk := item.Object.GroupVersionKind()
		k, served := known.served[gvk]
		if !served {
			if key := gvk.GroupVersion().String() + " " + gvk.Kind; !unserved[key] {
				unserved[key] = true
				m.plan.problem("%s does not serve kind %s of %s%s", m.Target.Name, gvk.Kind, gvk.GroupVersion(), remedy(gvk))
			}
			continue
		}
		m.checkAccess(ctx, m.Target, k, item.Object.GetNamespace(), checked, "get", "create", "update", "patch")
		if k.status && statusOf(item.Object) != nil {
			m.checkAccess(ctx, m.Target, k, item.Object.GetNamespace(), checked, "update/status")
		}
		stored, err := m.Target.get(ctx, item.Object)
		if err != nil {
			return err
		}
		if stored != nil {
			m.plan.Objects[i].Copied = m.checkStored(item, stored)
		}
	}
	m.checkListing(ctx, known, checked)
	if len(m.plan.Problems) > 0 {
		return nil
	}
	if err := m.planNamespaces(ctx); err != nil {
		return err
	}
	m.Progress("dry run at the target")
	if len(m.plan.Namespaces) > 0 {
		m.plan.note("objects in a namespace that does not exist yet are tried after its creation, before anything else is written")
	}
	return m.dryRun(ctx, func(namespace string) bool { return !slices.Contains(m.plan.Namespaces, namespace) })
}

func remedy(gvk schema.GroupVersionKind) string {
	if strings.Contains(gvk.Group, ".") && !strings.HasSuffix(gvk.Group, ".k8s.io") {
		return "; apply its CustomResourceDefinition there first"
	}
	return ""
}

// checkStored reports whether the target's object of an item's name is a copy of the item. If it is
// not, it adds a problem.
func (m *Mover) checkStored(item *Item, stored *unstructured.Unstructured) bool {
	own := markOf(stored)
	switch {
	case stored.GetUID() == item.UID():
		m.plan.Problems = []string{fmt.Sprintf("%s is the same cluster as %s: %s has the same UID there", m.Target.Name, m.source, item)}
	case stored.GetDeletionTimestamp() != nil:
		m.plan.problem("%s is being deleted at the target; wait until it is gone", item)
	case m.isCopy(own, item), m.isMadeByCopy(stored):
		m.uids[item.UID()] = stored.GetUID()
		return true
	case own.Move != "":
		m.plan.problem("%s exists at the target, where it came with another move, %s", item, own.Move)
	default:
		m.plan.problem("%s exists at the target and is not a copy of this move: compare the two, since an earlier move may have left either behind, and rename one or remove the one that is not needed", item)
	}
	return false
}

func (m *Mover) isCopy(own mark, item *Item) bool {
	return own.Move == m.plan.ID && own.from == item.UID()
}

// isMadeByCopy reports whether a controller at the target created an object for one of the copies
// before the object was copied. That happens to ControllerRevisions, whose names depend only on
// their content.
func (m *Mover) isMadeByCopy(stored *unstructured.Unstructured) bool {
	controller := metav1.GetControllerOfNoCopy(stored)
	if controller == nil {
		return false
	}
	for _, uid := range m.uids {
		if uid == controller.UID {
			return true
		}
	}
	return false
}

var namespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

func namespaceRef(name string) Ref { return Ref{GroupVersionKind: namespaceKind, Name: name} }

func (m *Mover) planNamespaces(ctx context.Context) error {
	var wanted []string
	for _, item := range m.graph.moved() {
		if namespace := item.Object.GetNamespace(); namespace != "" {
			wanted = append(wanted, namespace)
		}
	}
	slices.Sort(wanted)
	for _, name := range slices.Compact(wanted) {
		stored, err := m.Target.get(ctx, namespaceRef(name).object())
		switch {
		case err != nil:
			return err
		case stored == nil:
			m.plan.Namespaces = append(m.plan.Namespaces, name)
		case stored.GetDeletionTimestamp() != nil:
			m.plan.problem("namespace %s is being deleted at the target; wait until it is gone", name)
		}
	}
	return nil
}

// makeNamespaces creates the missing namespaces with their labels at the source, which Pod Security
// admission uses. It then dry-runs the objects in them, which was not possible before, and deletes
// the namespaces again if that fails.
func (m *Mover) makeNamespaces(ctx context.Context) error {
	if len(m.plan.Namespaces) == 0 {
		return nil
	}
	var made []*unstructured.Unstructured
	for _, name := range m.plan.Namespaces {
		namespace := namespaceRef(name).object()
		if m.Source != nil {
			// A caller who may not read namespaces at the source gets one without labels.
			if original, err := m.Source.get(ctx, namespace); err == nil && original != nil {
				namespace.SetLabels(original.GetLabels())
			}
		}
		namespace.SetAnnotations(map[string]string{namespaceMark: m.plan.ID})
		stored, err := m.create(ctx, namespace)
		if err != nil {
			return err
		}
		made = append(made, stored)
	}
	err := m.dryRun(ctx, func(namespace string) bool { return slices.Contains(m.plan.Namespaces, namespace) })
	if err == nil && len(m.plan.Problems) > 0 {
		err = fmt.Errorf("%w except for namespaces that were created and removed again: %s", ErrRefused, strings.Join(m.plan.Problems, "; "))
	}
	if err == nil {
		return nil
	}
	for _, namespace := range made {
		if failed := m.delete(ctx, m.Target, namespace, metav1.DeletePropagationBackground); failed != nil {
			return fmt.Errorf("%w; and namespace %s could not be removed again: %w", err, namespace.GetName(), failed)
		}
	}
	return err
}

// dryRun creates the missing copies in some namespaces as a dry run, and adds a problem for each
// that the target rejects. The copies have the owners' UIDs at the source, because API servers do
// not check that owners exist.
func (m *Mover) dryRun(ctx context.Context, in func(namespace string) bool) error {
	for _, item := range m.graph.moved() {
		if m.uids[item.UID()] != "" || !in(item.Object.GetNamespace()) {
			continue
		}
		k, err := m.Target.served(ctx, item.Object)
		if err != nil {
			return err
		}
		object := Clean(item.Object, m.graph.moves)
		_, err = m.Target.objects(k, object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}})
		switch status := apierrors.APIStatus(nil); {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "dry run"):
			m.plan.note("%s could not be tried: %v", item, err)
		case asStatus(err, &status):
			m.plan.problem("%s rejects %s: %v", m.Target.Name, item, err)
		default:
			return m.Target.wrapError(err)
		}
	}
	return nil
}

// planRest plans the rest of a move whose copies are verified, from the marks at the target.
func (m *Mover) planRest(ctx context.Context, begun anchor, stage Stage) (*Plan, error) {
	m.plan = &Plan{ID: begun.move, From: m.source.String(), To: m.Target.Name, Stage: stage, Objects: []Planned{}}
	if err := m.findCopies(ctx, namespacesOf(m.roots)); err != nil {
		return nil, err
	}
	for _, object := range m.copies {
		m.plan.Objects = append(m.plan.Objects, Planned{
			APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(),
			UID: markOf(object).from, Root: slices.Contains(begun.roots, describe(object)), Action: Moved, Copied: true,
		})
	}
	return m.plan, nil
}

// planStale adds problems for copies of an interrupted run whose originals are no longer part of
// the graph: nothing would release them.
func (m *Mover) planStale(ctx context.Context) error {
	if m.Source == nil || !slices.ContainsFunc(m.plan.Objects, func(o Planned) bool { return o.Copied }) {
		return nil
	}
	found, err := m.marked(ctx, m.plan.ID, namespacesOf(m.roots))
	if err != nil {
		return err
	}
	for _, object := range found.copies {
		own := markOf(object)
		if m.graph.copied(own.from) {
			continue
		}
		like := object.DeepCopy()
		like.SetAPIVersion(own.APIVersion)
		reason, err := m.whyNotMoved(ctx, like, own.from)
		if err != nil {
			return err
		}
		m.plan.problem("%s", reason)
	}
	return nil
}

// marked has the objects at the target with marks of a move.
type marked struct {
	copies []*unstructured.Unstructured
	// touched are other objects, to which controllers copied marks.
	touched    []*unstructured.Unstructured
	namespaces []string
}

// marked lists the objects at the target with marks of a move.
func (m *Mover) marked(ctx context.Context, move string, namespaces []string) (found marked, err error) {
	listed, err := m.Target.list(ctx, namespaces, anyGroup)
	if err != nil {
		return found, err
	}
	seen := map[types.UID]bool{}
	for _, object := range listed {
		known, err := metadataOf(object)
		if err != nil {
			return found, err
		}
		switch {
		case seen[object.GetUID()]: // It is listed under two groups.
		case markOf(known).Move == move:
			found.copies = append(found.copies, known)
		case object.Annotations[namespaceMark] == move:
			found.namespaces = append(found.namespaces, object.Name)
		case hasInheritedMark(known, move):
			found.touched = append(found.touched, known)
		}
		seen[object.GetUID()] = true
	}
	return found, nil
}

// findCopies finds the copies of this move at the target, owners first.
func (m *Mover) findCopies(ctx context.Context, namespaces []string) error {
	found, err := m.marked(ctx, m.plan.ID, namespaces)
	if err != nil {
		return err
	}
	m.copies, m.touched, m.namespaces = nil, found.touched, found.namespaces
	for _, item := range Assemble(found.copies, nil).Items {
		m.copies = append(m.copies, item.Object)
	}
	return nil
}
