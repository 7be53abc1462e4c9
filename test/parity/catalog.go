// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is a resource that upstream serves, with its subresources by name.
type resource struct {
	gv           schema.GroupVersion
	api          metav1.APIResource
	subresources map[string]metav1.APIResource
}

// String returns the resource's name in reports and in the -kinds flag: "pods", "jobs.batch". It
// contains the version if the group has several.
func (r *resource) String() string {
	name := r.api.Name
	if r.gv.Group != "" {
		name += "." + r.gv.Group
	}
	if r.gv.Version != "v1" {
		name += "/" + r.gv.Version
	}
	return name
}

// group returns the group's name in directories of manifests and in the -kinds flag: its first
// label, and "core" for the group without a name.
func (r *resource) group() string {
	if r.gv.Group == "" {
		return "core"
	}
	group, _, _ := strings.Cut(r.gv.Group, ".")
	return group
}

// gvk returns the kind of the resource's objects.
func (r *resource) gvk() schema.GroupVersionKind { return r.gv.WithKind(r.api.Kind) }

// serves reports whether the resource has a verb.
func (r *resource) serves(verb string) bool { return slices.Contains(r.api.Verbs, verb) }

// collection returns the path under which objects are created.
func (r *resource) collection(namespace string) string {
	path := root(r.gv)
	if r.api.Namespaced {
		path += "/namespaces/" + namespace
	}
	return path + "/" + r.api.Name
}

// root returns the path of a group and version.
func root(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.String()
}

// catalog has the resources of a server by group, version and name, in discovery's order.
type catalog struct {
	order  []*resource
	byName map[schema.GroupVersionResource]*resource
}

// ga matches the versions that are generally available.
var ga = regexp.MustCompile(`^v\d+$`)

// discover reads all generally available resources.
func discover(ctx context.Context, s *server) (*catalog, error) {
	var groups metav1.APIGroupList
	if err := s.get(ctx, "/apis", &groups); err != nil {
		return nil, err
	}
	versions := []schema.GroupVersion{{Version: "v1"}}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			if ga.MatchString(v.Version) {
				versions = append(versions, schema.GroupVersion{Group: g.Name, Version: v.Version})
			}
		}
	}
	c := &catalog{byName: map[schema.GroupVersionResource]*resource{}}
	for _, gv := range versions {
		var list metav1.APIResourceList
		if err := s.get(ctx, root(gv), &list); err != nil {
			return nil, err
		}
		c.add(gv, list.APIResources)
	}
	return c, nil
}

func (c *catalog) add(gv schema.GroupVersion, apis []metav1.APIResource) {
	for _, api := range apis {
		if !strings.Contains(api.Name, "/") {
			r := &resource{gv: gv, api: api, subresources: map[string]metav1.APIResource{}}
			c.order = append(c.order, r)
			c.byName[gv.WithResource(api.Name)] = r
		}
	}
	for _, api := range apis {
		parent, name, found := strings.Cut(api.Name, "/")
		if r := c.byName[gv.WithResource(parent)]; found && r != nil {
			r.subresources[name] = api
		}
	}
}

// find returns the resource with the same name in this catalog.
func (c *catalog) find(r *resource) *resource { return c.byName[r.gv.WithResource(r.api.Name)] }

// selects reports whether a name of the -kinds flag selects the resource: its name, with or without
// group, its kind, or its group.
func selects(name string, r *resource) bool {
	name = strings.ToLower(name)
	return name == r.api.Name || name == r.String() || name == r.api.Name+"."+r.gv.Group ||
		name == strings.ToLower(r.api.Kind) || name == r.group() || name == r.gv.Group || name == r.gv.String()
}

// choose returns the selected resources.
func (c *catalog) choose(names []string) ([]*resource, error) {
	if len(names) == 0 {
		return c.order, nil
	}
	var chosen []*resource
	for _, name := range names {
		found := false
		for _, r := range c.order {
			if selects(name, r) {
				found = true
				if !slices.Contains(chosen, r) {
					chosen = append(chosen, r)
				}
			}
		}
		if !found {
			return nil, fmt.Errorf("-kinds: upstream serves no %q", name)
		}
	}
	return chosen, nil
}

// notIn returns the resources that the other catalog does not have.
func (c *catalog) notIn(other *catalog) []string {
	var names []string
	for _, r := range c.order {
		if other.find(r) == nil {
			names = append(names, r.String())
		}
	}
	return names
}

// description returns the discovery of a resource, in comparable lines.
func description(r *resource) []string {
	lines := []string{describe(r.api)}
	for name, api := range r.subresources {
		lines = append(lines, name+": "+describe(api))
	}
	slices.Sort(lines)
	return lines
}

func describe(api metav1.APIResource) string {
	return fmt.Sprintf("kind=%s/%s/%s singular=%s namespaced=%t verbs=%v short=%v categories=%v",
		api.Group, api.Version, api.Kind, api.SingularName, api.Namespaced, sorted(api.Verbs), sorted(api.ShortNames), sorted(api.Categories))
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
