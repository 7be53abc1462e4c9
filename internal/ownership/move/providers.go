// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

var (
	// inventoryKind is the kind of the entries in clusterctl's inventory: the providers of a cluster.
	inventoryKind  = schema.GroupKind{Group: "clusterctl.cluster.x-k8s.io", Kind: "Provider"}
	definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	// moveLabels are on the definitions of kinds whose objects clusterctl moves although no Cluster owns them: what providers sign in
	// with, for example.
	moveLabels = []string{"clusterctl.cluster.x-k8s.io/move", "clusterctl.cluster.x-k8s.io/move-hierarchy"}
)

// hasClusterAPI reports whether anything of Cluster API moves.
func (g *Graph) hasClusterAPI() bool {
	return slices.ContainsFunc(g.moved(), func(item *Item) bool { return clusterapi.Has(item.kind().Group) })
}

// checkProviders adds a problem for each provider of Cluster API that the target lacks, or has in an older version: nothing would manage
// the machines there. clusterctl refuses that too. Clusters whose providers clusterctl has not installed cannot be compared.
func (m *Mover) checkProviders(ctx context.Context) error {
	if m.Target == nil || !m.graph.hasClusterAPI() {
		return nil
	}
	here, err := m.Source.all(ctx, inventoryKind, metav1.NamespaceAll)
	if err == nil && len(here) > 0 {
		var there []unstructured.Unstructured
		if there, err = m.Target.all(ctx, inventoryKind, metav1.NamespaceAll); err == nil {
			m.plan.compareProviders(m.Source.Name, here, m.Target.Name, there)
		}
	}
	if apierrors.IsForbidden(err) {
		m.plan.note("the providers of Cluster API are not compared: %v", err)
		return nil
	}
	return err
}

// provider is an entry of clusterctl's inventory. The same provider may have several entries.
type provider struct{ kind, name, version string }

func providerOf(entry *unstructured.Unstructured) (p provider) {
	for field, value := range map[string]*string{"type": &p.kind, "providerName": &p.name, "version": &p.version} {
		*value, _, _ = unstructured.NestedString(entry.Object, field)
	}
	return p
}

// compareProviders adds the problems of checkProviders.
func (p *Plan) compareProviders(source string, here []unstructured.Unstructured, target string, there []unstructured.Unstructured) {
	for i := range here {
		needed := providerOf(&here[i])
		least, err := version.ParseSemantic(needed.version)
		if err != nil {
			p.problem("%s has %s %s with the version %q, which cannot be compared: %v", source, needed.kind, needed.name, needed.version, err)
			continue
		}
		latest := latestOf(there, needed)
		switch {
		case latest == nil:
			p.problem("%s does not have %s %s, which %s has: install it there", target, needed.kind, needed.name, source)
		case latest.LessThan(least):
			p.problem("%s has %s %s v%s, and %s v%s: upgrade it there", target, needed.kind, needed.name, latest, source, least)
		}
	}
}

// latestOf returns the latest version of a provider, or nil.
func latestOf(entries []unstructured.Unstructured, of provider) (latest *version.Version) {
	for i := range entries {
		p := providerOf(&entries[i])
		v, err := version.ParseSemantic(p.version)
		if err == nil && p.kind == of.kind && p.name == of.name && (latest == nil || latest.LessThan(v)) {
			latest = v
		}
	}
	return latest
}

// noteIdentities notes the objects that clusterctl would move as well, by the labels of their kinds, and that do not move: the controllers at
// the target may need them.
func (m *Mover) noteIdentities(ctx context.Context) error {
	if !m.graph.hasClusterAPI() {
		return nil
	}
	definitions, err := m.Source.all(ctx, definitionKind, metav1.NamespaceAll)
	for i := range definitions {
		if err == nil && hasMoveLabel(&definitions[i]) {
			err = m.noteObjects(ctx, definedKind(&definitions[i]))
		}
	}
	if apierrors.IsForbidden(err) {
		m.plan.note("what clusterctl would move too is not known: %v", err)
		return nil
	}
	return err
}

// noteObjects notes the objects of a kind that clusterctl would move: those in the namespaces of the move, and without a namespace.
func (m *Mover) noteObjects(ctx context.Context, kind schema.GroupKind) error {
	objects, err := m.Source.all(ctx, kind, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	namespaces := map[string]bool{"": true}
	for _, item := range m.graph.moved() {
		namespaces[item.Object.GetNamespace()] = true
	}
	for i := range objects {
		if o := &objects[i]; namespaces[o.GetNamespace()] && !m.graph.copied(o.GetUID()) {
			m.plan.note("%s does not move; clusterctl would move it, as the labels of its definition say: name it too if %s does not have it", describe(o), m.plan.To)
		}
	}
	return nil
}

// definedKind returns the kind that a CustomResourceDefinition defines.
func definedKind(definition *unstructured.Unstructured) schema.GroupKind {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	return schema.GroupKind{Group: group, Kind: kind}
}

func hasMoveLabel(definition *unstructured.Unstructured) bool {
	return slices.ContainsFunc(moveLabels, func(label string) bool { _, has := definition.GetLabels()[label]; return has })
}
