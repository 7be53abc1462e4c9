// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/graph"
	"github.com/kindred-project/kindred/internal/ownership/lint"
)

// templates are templates by their names.
type templates map[clusterapi.Template]*lint.Object

// name finds what names the templates for which the rules need to know it. Mostly there are none.
func (in *inspection) name(ctx context.Context, objects []*lint.Object, kinds map[schema.GroupKind]lint.Kind) {
	if in.profile == nil {
		return
	}
	named := map[string]templates{} // by namespace
	for _, o := range objects {
		if !in.selected[o.UID] || o.Deleting || !in.profile.NeedsNames(o, kinds) {
			continue
		}
		if named[o.Namespace] == nil {
			named[o.Namespace] = templates{}
		}
		named[o.Namespace][clusterapi.Template{GroupKind: kindOfObject(o.Object), Name: o.Name}] = o
	}
	for namespace, templates := range named {
		for kind, r := range in.served {
			if clusterapi.NamesTemplates(kind) {
				in.nameAt(ctx, r, namespace, templates)
			}
		}
		for _, o := range templates {
			slices.SortFunc(o.NamedBy, func(a, b lint.Namer) int { return strings.Compare(a.Kind+" "+a.Name, b.Kind+" "+b.Name) })
		}
	}
}

// nameAt adds the objects of one resource and namespace that name templates. An object that has just changed does not count, because its
// controller may not have come to it yet.
func (in *inspection) nameAt(ctx context.Context, r graph.Resource, namespace string, templates templates) {
	// Any state that the server has cached is recent enough.
	list, err := in.Objects.Resource(r.GroupVersionResource).Namespace(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		in.warn("%s cannot be read, so it is not known which templates they name: %v", r.GroupResource(), err)
		return
	}
	for i := range list.Items {
		o := &list.Items[i]
		if o.GetDeletionTimestamp() != nil || in.Clock.Now().Sub(changed(o)) < lint.Settling || !in.access.mayGet(ctx, r, namespace, o.GetName()) {
			continue
		}
		namer := lint.Namer{Kind: r.Kind, Name: o.GetName()}
		for _, name := range clusterapi.TemplatesOf(o) {
			if template := templates[name]; template != nil && !slices.Contains(template.NamedBy, namer) {
				template.NamedBy = append(template.NamedBy, namer)
			}
		}
	}
}

// changed returns the time of an object's last change, apart from its status.
func changed(o *unstructured.Unstructured) time.Time {
	last := o.GetCreationTimestamp().Time
	for _, fields := range o.GetManagedFields() {
		if fields.Subresource == "" && fields.Time != nil && fields.Time.After(last) {
			last = fields.Time.Time
		}
	}
	return last
}
