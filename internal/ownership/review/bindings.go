// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// addBindings adds deletions for the ClusterResourceSetBindings of the Clusters that are deleted, and reports whether there are any. The
// ClusterResourceSets own a binding, and they stay; Cluster API's controller of bindings deletes it when the Cluster that it names is being
// deleted, or is gone (core/reconcilers/clusterresourcesetbinding).
func (p *prediction) addBindings(ctx context.Context) (added bool, err error) {
	r, served := p.resource(clusterapi.Binding)
	if !served || !r.Watched {
		return false, nil
	}
	gone := map[types.UID]bool{}
	clusters := map[string]map[string]types.UID{} // by namespace and name
	for _, f := range p.forecasts {
		gone[f.UID] = f.Fate == graph.Deleted
		if kindOfObject(f.Object) != clusterapi.Cluster || f.Fate != graph.Deleted && f.Fate != graph.Blocked {
			continue
		}
		if clusters[f.Namespace] == nil {
			clusters[f.Namespace] = map[string]types.UID{}
		}
		clusters[f.Namespace][f.Name] = f.UID
	}
	for namespace, named := range clusters {
		// Any state that the server has cached is recent enough.
		list, err := p.Objects.Resource(r.GroupVersionResource).Namespace(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		for i := range list.Items {
			binding := &list.Items[i]
			name, _, _ := unstructured.NestedString(binding.Object, "spec", "clusterName")
			if cluster := named[name]; cluster != "" && !gone[binding.GetUID()] {
				p.causes[binding.GetUID()], added = cluster, true
				p.deletions = append(p.deletions, graph.Deletion{UID: binding.GetUID(), Policy: metav1.DeletePropagationBackground})
			}
		}
	}
	return added, nil
}

// cause returns the object with which a controller deletes an object, if the caller may read it.
func (p *prediction) cause(ctx context.Context, id types.UID) *ownership.ObjectReference {
	cluster, caused := p.objects[p.causes[id]]
	if !caused || !p.access.mayGet(ctx, cluster.Resource, cluster.Namespace, cluster.Name) {
		return nil
	}
	named := referenceOf(cluster)
	return &named
}
