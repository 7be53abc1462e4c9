// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// ending is the deletion of an object.
type ending struct {
	resource graph.Resource
	record   deletion.Record
}

func (e ending) name() objectName {
	return objectName{e.resource, e.record.Namespace, e.record.Name}
}

// objectName is what an object is called.
type objectName struct {
	resource        graph.Resource
	namespace, name string
}

const (
	// fewNames of a resource are looked for one by one, more by a list of what there is.
	fewNames = 20
	// thereLimit is how many objects are read of a list at a time: a cluster may have very many.
	thereLimit = 500
)

// there are those names of what was deleted that objects have today. Of a resource that cannot
// be read (the conversion of its versions fails, for instance) none is known: who undeletes such
// an object is told why that cannot be done.
func (q *question) there(ctx context.Context, ended []ending) (map[objectName]bool, error) {
	there := map[objectName]bool{}
	names := map[graph.Resource]map[objectName]bool{}
	for _, e := range ended {
		if names[e.resource] == nil {
			names[e.resource] = map[objectName]bool{}
		}
		names[e.resource][e.name()] = true
	}
	for r, wanted := range names {
		look := q.lookFor
		if len(wanted) > fewNames {
			look = q.lookThrough
		}
		look(ctx, r, wanted, there)
	}
	return there, ctx.Err()
}

// lookFor reads objects one by one.
func (q *question) lookFor(ctx context.Context, r graph.Resource, wanted, there map[objectName]bool) {
	for name := range wanted {
		_, err := q.Metadata.Resource(r.GroupVersionResource).Namespace(name.namespace).Get(ctx, name.name, metav1.GetOptions{})
		there[name] = err == nil
	}
}

// lookThrough reads the objects of a resource page by page, those of one namespace if all that
// are wanted are in it.
func (q *question) lookThrough(ctx context.Context, r graph.Resource, wanted, there map[objectName]bool) {
	client := q.Metadata.Resource(r.GroupVersionResource).Namespace(commonNamespace(wanted))
	for options := (metav1.ListOptions{Limit: thereLimit}); ; {
		list, err := client.List(ctx, options)
		if err != nil {
			return
		}
		for i := range list.Items {
			if name := (objectName{r, list.Items[i].Namespace, list.Items[i].Name}); wanted[name] {
				there[name] = true
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return
		}
	}
}

// commonNamespace is the namespace that all names are in, "" if they are in several.
func commonNamespace(names map[objectName]bool) string {
	var common *string
	for name := range names {
		if common != nil && *common != name.namespace {
			return ""
		}
		common = &name.namespace
	}
	return *common
}
