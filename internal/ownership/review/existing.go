// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// objectName identifies an object by resource, namespace and name.
type objectName struct {
	resource        graph.Resource
	namespace, name string
}

const (
	// fewNames is the number of names of a resource up to which they are looked up one by one.
	fewNames = 20
	// listLimit is the page size of lists.
	listLimit = 500
)

// existing returns the names of deleted objects that existing objects have.
func (q *question) existing(ctx context.Context, ended []ending) (map[objectName]bool, error) {
	wanted := make([]objectName, len(ended))
	for i, e := range ended {
		wanted[i] = e.name()
	}
	existing := map[objectName]bool{}
	for name := range q.live(ctx, wanted) {
		existing[name] = true
	}
	return existing, ctx.Err()
}

// live returns the UIDs of the objects that exist, by their names. It ignores resources that cannot be read, for example because a
// conversion fails: an undeletion will report the error.
func (q *question) live(ctx context.Context, wanted []objectName) map[objectName]types.UID {
	live := map[objectName]types.UID{}
	names := map[graph.Resource]map[objectName]bool{}
	for _, name := range wanted {
		if names[name.resource] == nil {
			names[name.resource] = map[objectName]bool{}
		}
		names[name.resource][name] = true
	}
	for r, wanted := range names {
		look := q.getEach
		if len(wanted) > fewNames {
			look = q.listAll
		}
		look(ctx, r, wanted, live)
	}
	return live
}

// getEach looks objects up one by one.
func (q *question) getEach(ctx context.Context, r graph.Resource, wanted map[objectName]bool, live map[objectName]types.UID) {
	for name := range wanted {
		if o, err := q.Metadata.Resource(r.GroupVersionResource).Namespace(name.namespace).Get(ctx, name.name, metav1.GetOptions{}); err == nil {
			live[name] = o.UID
		}
	}
}

// listAll lists the objects of a resource page by page, in one namespace if all wanted names are in
// it.
func (q *question) listAll(ctx context.Context, r graph.Resource, wanted map[objectName]bool, live map[objectName]types.UID) {
	client := q.Metadata.Resource(r.GroupVersionResource).Namespace(commonNamespace(wanted))
	for options := (metav1.ListOptions{Limit: listLimit}); ; {
		list, err := client.List(ctx, options)
		if err != nil {
			return
		}
		for i := range list.Items {
			if name := (objectName{r, list.Items[i].Namespace, list.Items[i].Name}); wanted[name] {
				live[name] = list.Items[i].UID
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return
		}
	}
}

// commonNamespace returns the namespace that all names are in, or "" if they are in several.
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
