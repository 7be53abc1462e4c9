// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// install installs the enabled versions and resources of all groups, and returns their endpoints.
func (s *Server) install(main *genericapiserver.GenericAPIServer, g *genericapiserver.Config, env generic.Environment) (generic.Built, error) {
	built := generic.Built{}
	i := installer{main, g}
	for _, groups := range together(s.groups) {
		var infos []*genericapiserver.APIGroupInfo
		for _, group := range groups {
			if err := group.Build(env, built); err != nil {
				return nil, fmt.Errorf("group %q: %w", group.Name, err)
			}
			info := s.groupInfo(group, built)
			if len(info.PrioritizedVersions) == 0 {
				continue
			}
			if err := s.deletions.add(main, g.AdmissionControl, info); err != nil {
				return nil, fmt.Errorf("group %q: %w", group.Name, err)
			}
			infos = append(infos, info)
		}
		types := newFieldTypes(func() (map[string]*spec.Schema, error) { return models(g.OpenAPIV3Config, infos) })
		for _, info := range infos {
			if err := s.writes.add(main, g.AdmissionControl, info, types); err != nil {
				return nil, fmt.Errorf("group %q: %w", info.PrioritizedVersions[0].Group, err)
			}
		}
		if err := i.install(types, infos); err != nil {
			return nil, fmt.Errorf("group %q: %w", groups[0].Name, err)
		}
	}
	return built, nil
}

// together returns each group with the groups that serve its objects in other versions. They are
// installed together: server-side apply then knows the types of all versions, and keeps the fields
// that were applied in another one.
func together(groups []generic.Group) [][]generic.Group {
	var out [][]generic.Group
	for _, group := range groups {
		at := slices.IndexFunc(out, func(batch []generic.Group) bool {
			return slices.ContainsFunc(group.Versions, func(v generic.Version) bool { return !v.As.Empty() && v.As.Group == batch[0].Name })
		})
		if at < 0 {
			out = append(out, []generic.Group{group})
			continue
		}
		out[at] = append(out[at], group)
	}
	return out
}

// groupInfo describes the enabled versions and resources of a group.
func (s *Server) groupInfo(group generic.Group, built generic.Built) *genericapiserver.APIGroupInfo {
	codecs := serializer.NewCodecFactory(s.scheme)
	info := genericapiserver.NewDefaultAPIGroupInfo(group.Name, s.scheme, runtime.NewParameterCodec(s.scheme), codecs)
	info.NegotiatedSerializer = statedVersions{info.NegotiatedSerializer, s.scheme}
	for _, version := range group.Versions {
		info.VersionedResourcesStorageMap[version.Name] = built[schema.GroupVersion{Group: group.Name, Version: version.Name}]
	}
	keepEnabled(s.enabled, group.Name, &info)
	s.installed.Insert(info.PrioritizedVersions...)
	return &info
}

// storedAs returns the resource as which a resource is stored, if another group serves it too: webhooks
// and policies for one match requests for the other (matchPolicy Equivalent).
func (s *Server) storedAs(resource schema.GroupResource) string {
	if resource.Group == "events.k8s.io" {
		resource.Group = ""
	}
	for _, group := range s.groups {
		for _, version := range group.Versions {
			if group.Name == resource.Group && !version.As.Empty() {
				resource.Group = version.As.Group
			}
		}
	}
	return resource.String()
}
