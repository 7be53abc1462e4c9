// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An anchor is a ConfigMap at the target that exists from the verification of all copies until the
// last mark is removed. It tells the next run how to continue when the source no longer has the
// roots. Its name is derived from the roots' names, because nothing else is known of them then.
const (
	anchorLabel  = "ownership.kindred.dev/move"
	anchorPrefix = "kindred-move-"
)

var configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// anchorRef returns the reference to the anchor of some roots, whether it exists or not.
func anchorRef(roots []Ref) Ref {
	var texts []string
	namespace := ""
	for _, root := range roots {
		texts = append(texts, nameKey(root.GroupKind(), root.Namespace, root.Name))
		if namespace == "" || root.Namespace != "" && root.Namespace < namespace {
			namespace = root.Namespace
		}
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	slices.Sort(texts)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(texts), "\n")))
	return Ref{configMapKind, namespace, anchorPrefix + hex.EncodeToString(sum[:])[:16]}
}

// anchor is the content of an anchor; zero if there is none.
type anchor struct {
	move  string
	stage Stage
	// roots are the roots of the move, as describe formats them.
	roots []string
}

func readAnchor(object *unstructured.Unstructured) anchor {
	if object == nil {
		return anchor{}
	}
	data, _, _ := unstructured.NestedStringMap(object.Object, "data")
	return anchor{object.GetLabels()[anchorLabel], Stage(data["stage"]), strings.Split(data["roots"], "\n")}
}

// findAnchor reads the anchor of this move. If there is none and roots are missing at the source,
// it checks whether they belong to the anchor of another set of roots.
func (m *Mover) findAnchor(ctx context.Context, roots, missing []Ref) (anchor, error) {
	object, err := m.Target.get(ctx, anchorRef(roots).object())
	if err != nil || object != nil || len(missing) == 0 {
		return readAnchor(object), err
	}
	k, err := m.Target.served(ctx, anchorRef(roots).object())
	if err != nil {
		return anchor{}, err
	}
	list, err := m.Target.objects(k, anchorRef(roots).Namespace).List(ctx, metav1.ListOptions{LabelSelector: anchorLabel})
	if err != nil {
		return anchor{}, m.Target.wrapError(err)
	}
	for i := range list.Items {
		other := readAnchor(&list.Items[i])
		for _, ref := range missing {
			if slices.Contains(other.roots, ref.String()) {
				return anchor{}, fmt.Errorf("%s was moved together with other roots, and that move is not finished: run it again with all its roots: %s", ref, strings.Join(other.roots, ", "))
			}
		}
	}
	return anchor{}, nil
}

// setStage writes the stage to the anchor. The next run starts at this stage.
func (m *Mover) setStage(ctx context.Context, stage Stage) error {
	object := anchorRef(m.roots).object()
	stored, err := m.Target.get(ctx, object)
	if err != nil {
		return err
	}
	if stored == nil {
		var names []string
		for _, root := range m.roots {
			names = append(names, root.String())
		}
		object.SetLabels(map[string]string{anchorLabel: m.plan.ID})
		object.Object["data"] = map[string]any{"stage": string(stage), "roots": strings.Join(names, "\n")}
		_, err = m.create(ctx, object)
		return err
	}
	old := readAnchor(stored)
	if old.stage == stage && old.move == m.plan.ID {
		return nil
	}
	if old.move != m.plan.ID {
		left, err := m.marked(ctx, old.move, namespacesOf(m.roots))
		if err != nil {
			return err
		}
		if len(left.copies) > 0 {
			return fmt.Errorf("%s: %s belongs to another, unfinished move, %s, of objects with the same names: %d objects there are its copies, for example %s, and may be the only ones left; nothing was removed at the source", m.Target.Name, describe(stored), old.move, len(left.copies), describe(left.copies[0]))
		}
		// The other move has released its copies, and was interrupted before it removed its anchor.
	}
	_, err = m.patch(ctx, m.Target, stored, map[string]any{
		"metadata": map[string]any{"labels": map[string]any{anchorLabel: m.plan.ID}},
		"data":     map[string]any{"stage": string(stage)},
	})
	return err
}

// deleteAnchor deletes the anchor, which ends the move.
func (m *Mover) deleteAnchor(ctx context.Context) error {
	stored, err := m.Target.get(ctx, anchorRef(m.roots).object())
	if err != nil || stored == nil {
		return err
	}
	return m.delete(ctx, m.Target, stored, metav1.DeletePropagationBackground)
}

// resumes returns the stage at which a move continues. Until a root is deleted or being deleted at
// the source, or copies are being released, everything is copied and verified again.
func (a anchor) resumes(g *Graph, missing []Ref) Stage {
	begun := len(missing) > 0 || a.move == g.ID() && len(g.leavingRoots()) > 0
	if a.stage == "" || a.stage == Removing && !begun {
		return Copying
	}
	return a.stage
}
