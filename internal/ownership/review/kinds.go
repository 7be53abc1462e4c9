// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
	"github.com/kindred-project/kindred/internal/ownership/lint"
)

// kinds returns the served kinds. The graph knows one version of each; discovery has the others.
func (in *inspection) kinds(ctx context.Context) map[schema.GroupKind]lint.Kind {
	versions := in.versions(ctx)
	kinds := map[schema.GroupKind]lint.Kind{}
	for gk, r := range in.served {
		kinds[gk] = lint.Kind{
			Namespaced: r.Namespaced,
			Collected:  r.Watched,
			Complete:   r.Watched && !slices.Contains(in.unlisted, r),
			Versions:   versions[gk],
		}
	}
	return kinds
}

func (in *inspection) versions(ctx context.Context) map[schema.GroupKind][]string {
	groups, lists, err := discovery.ToServerResourcesInterfaceWithContext(in.Discovery).ServerGroupsAndResourcesWithContext(ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		in.warn("the served versions are not known, so versions in references are not checked: %v", err)
		return nil
	}
	for gv := range failed {
		in.warn("%s does not respond: versions in references to its group are not checked", gv)
	}
	return versionsOf(groups, lists, failed)
}

// versionsOf returns the versions of each kind in discovery's order of preference. It omits groups
// of which a version failed discovery, because the versions of their kinds are not known.
func versionsOf(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, failed map[schema.GroupVersion]error) map[schema.GroupKind][]string {
	silent := map[string]bool{}
	for gv := range failed {
		silent[gv.Group] = true
	}
	served := map[string][]metav1.APIResource{}
	for _, list := range lists {
		served[list.GroupVersion] = list.APIResources
	}
	versions := map[schema.GroupKind][]string{}
	for _, group := range groups {
		if silent[group.Name] {
			continue
		}
		for _, version := range preferredFirst(group) {
			for _, r := range served[version.GroupVersion] {
				gk := graph.Current(schema.GroupKind{Group: group.Name, Kind: r.Kind})
				if !strings.Contains(r.Name, "/") && !slices.Contains(versions[gk], version.GroupVersion) {
					versions[gk] = append(versions[gk], version.GroupVersion)
				}
			}
		}
	}
	return versions
}

func preferredFirst(group *metav1.APIGroup) []metav1.GroupVersionForDiscovery {
	return append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions...)
}

// label reads the labels and ages that the rules need, which the graph does not have: those of the objects to compare with their
// siblings, and of the objects of the profile.
func (in *inspection) label(ctx context.Context, objects []*lint.Object) {
	if in.profile == nil && len(in.spec.Rules) > 0 && !slices.Contains(in.spec.Rules, ownership.RuleNoOwner) {
		return
	}
	compared := slices.DeleteFunc(slices.Clone(objects), func(o *lint.Object) bool {
		return in.spec.Namespace != "" && o.Namespace != in.spec.Namespace
	})
	needed := lint.NeedsLabels(compared)
	places := map[place]map[types.UID]*lint.Object{}
	for _, o := range compared {
		if !needed(o) && (in.profile == nil || !in.profile.Of(o)) {
			continue
		}
		p := place{o.Resource, o.Namespace}
		if places[p] == nil {
			places[p] = map[types.UID]*lint.Object{}
		}
		places[p][o.UID] = o
	}
	for p, objects := range places {
		in.labelAt(ctx, p, objects)
	}
	slices.Sort(in.warnings)
}

// labelAt reads the labels of objects in one place. Those that do not exist any more have been deleted since the graph was copied.
func (in *inspection) labelAt(ctx context.Context, p place, objects map[types.UID]*lint.Object) {
	list, err := in.Metadata.Resource(p.GroupVersionResource).Namespace(p.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		in.warn("the labels of %s cannot be read, so they are compared neither with siblings nor with a profile: %v", p.GroupResource(), err)
		for _, o := range objects {
			o.Unlabelled = true
		}
		return
	}
	existing := map[types.UID]*metav1.PartialObjectMetadata{}
	for i := range list.Items {
		existing[list.Items[i].UID] = &list.Items[i]
	}
	for id, o := range objects {
		if now, ok := existing[id]; ok {
			o.Labels, o.Created = now.Labels, now.CreationTimestamp.Time
		} else {
			o.Deleting = true
		}
	}
}
