// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/server/resourceconfig"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsapi "k8s.io/metrics/pkg/apis/metrics"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/auth/rbac"
	"github.com/kindred-project/kindred/internal/ownership/review"
	"github.com/kindred-project/kindred/internal/registry"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// optionalGroups are the groups that no part of the process needs. Controllers, admission,
// authorizers and the node agent need all others: without them, their informers would never sync.
// Without autoscaling/v2, the controller of its HorizontalPodAutoscalers is not started.
var optionalGroups = sets.New("autoscaling", metricsapi.GroupName, ownership.GroupName)

// CheckRuntimeConfig validates a --runtime-config, without a server.
func CheckRuntimeConfig(config map[string]string) error {
	groups := registry.Groups(registry.Dependencies{Escalation: &rbac.Escalation{}})
	groups = append(groups, (&Server{}).ownershipGroup(&review.Reviews{}, nil), metricsGroup(nil))
	_, err := enabledResources(groups, config)
	return err
}

// enabledResources returns which of the groups' versions and resources are served, as upstream's
// --runtime-config (k8s.io/apiserver/pkg/server/resourceconfig).
func enabledResources(groups []generic.Group, config map[string]string) (*serverstorage.ResourceConfig, error) {
	versions, off := versionsOf(groups), offByDefault(groups)
	config = maps.Clone(config)
	if value, ok := config["v1"]; ok { // the core group, which the parser below accepts only with a slash
		delete(config, "v1")
		config["/v1"] = value
	}
	options := genericoptions.APIEnablementOptions{RuntimeConfig: config}
	if err := errors.Join(options.Validate(versions)...); err != nil {
		return nil, err
	}
	if err := versions.checkVersions(config); err != nil {
		return nil, err
	}
	enabled := serverstorage.NewResourceConfig()
	enabled.EnableVersions(slices.DeleteFunc(slices.Clone(versions), off.Has)...)
	enabled, err := resourceconfig.MergeAPIResourceConfigs(enabled, config, versions)
	if err != nil {
		return nil, err
	}
	if needed := versions.neededBut(enabled, off); len(needed) > 0 {
		return nil, fmt.Errorf("%s cannot be turned off: controllers, admission or the node work with it", strings.Join(needed, ", "))
	}
	return enabled, nil
}

// groupVersions are the versions of the built-in groups, preferred ones first: the registry by
// which k8s.io/apiserver validates a configuration.
type groupVersions []schema.GroupVersion

var _ resourceconfig.GroupVersionRegistry = groupVersions{}

func versionsOf(groups []generic.Group) groupVersions {
	versions := groupVersions{apiextensionsv1.SchemeGroupVersion, {Group: apiregistrationv1.GroupName, Version: "v1"}}
	for _, group := range groups {
		for _, version := range group.Versions {
			versions = append(versions, schema.GroupVersion{Group: group.Name, Version: version.Name})
		}
	}
	return versions
}

// IsGroupRegistered reports whether there is a built-in group of that name.
func (v groupVersions) IsGroupRegistered(group string) bool {
	return len(v.PrioritizedVersionsForGroup(group)) > 0
}

// IsVersionRegistered reports whether a version of a built-in group can be served.
func (v groupVersions) IsVersionRegistered(gv schema.GroupVersion) bool {
	return slices.Contains(v, gv)
}

// PrioritizedVersionsAllGroups returns all versions.
func (v groupVersions) PrioritizedVersionsAllGroups() []schema.GroupVersion { return v }

// PrioritizedVersionsForGroup returns the versions of one group.
func (v groupVersions) PrioritizedVersionsForGroup(group string) []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, gv := range v {
		if gv.Group == group {
			versions = append(versions, gv)
		}
	}
	return versions
}

// checkVersions returns an error for unknown versions, which names the known ones.
func (v groupVersions) checkVersions(config map[string]string) error {
	asked, err := resourceconfig.ParseGroupVersions(config)
	if err != nil {
		return err
	}
	slices.SortFunc(asked, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	for _, gv := range asked {
		if v.IsVersionRegistered(gv) {
			continue
		}
		var served []string
		for _, gv := range v.PrioritizedVersionsForGroup(gv.Group) {
			served = append(served, gv.String())
		}
		return fmt.Errorf("unknown api version %s; this server knows %s", gv, strings.Join(served, ", "))
	}
	return nil
}

// neededBut returns the disabled resources that parts of the process need.
func (v groupVersions) neededBut(enabled *serverstorage.ResourceConfig, optional sets.Set[schema.GroupVersion]) []string {
	var off []string
	needed := func(gv schema.GroupVersion) bool { return !optionalGroups.Has(gv.Group) && !optional.Has(gv) }
	for _, gv := range v {
		if needed(gv) && !enabled.ResourceEnabled(gv.WithResource("*")) {
			off = append(off, gv.String())
		}
	}
	for gvr, on := range enabled.ResourceConfigs {
		if needed(gvr.GroupVersion()) && !on {
			off = append(off, gvr.GroupVersion().String()+"/"+gvr.Resource)
		}
	}
	slices.Sort(off)
	return off
}

// offByDefault returns the versions that are served only on request.
func offByDefault(groups []generic.Group) sets.Set[schema.GroupVersion] {
	off := sets.New[schema.GroupVersion]()
	for _, group := range groups {
		for _, version := range group.Versions {
			if version.OffByDefault {
				off.Insert(schema.GroupVersion{Group: group.Name, Version: version.Name})
			}
		}
	}
	return off
}

// withoutUnused returns the groups without the versions that are off by default and were not enabled,
// so that nothing is built for them.
func withoutUnused(groups []generic.Group, enabled *serverstorage.ResourceConfig) []generic.Group {
	var out []generic.Group
	for _, group := range groups {
		group.Versions = slices.DeleteFunc(slices.Clone(group.Versions), func(version generic.Version) bool {
			return version.OffByDefault && !isEnabled(enabled, schema.GroupVersion{Group: group.Name, Version: version.Name})
		})
		if len(group.Versions) > 0 {
			out = append(out, group)
		}
	}
	return out
}

// isEnabled reports whether a version, or a resource of it, is enabled.
func isEnabled(enabled *serverstorage.ResourceConfig, gv schema.GroupVersion) bool {
	for gvr, on := range enabled.ResourceConfigs {
		if on && gvr.GroupVersion() == gv {
			return true
		}
	}
	return enabled.ResourceEnabled(gv.WithResource("*"))
}

// keepEnabled removes disabled versions and resources from a group.
func keepEnabled(enabled *serverstorage.ResourceConfig, group string, info *genericapiserver.APIGroupInfo) {
	for version, endpoints := range info.VersionedResourcesStorageMap {
		gv := schema.GroupVersion{Group: group, Version: version}
		// Two versions may share one map.
		kept := maps.Clone(endpoints)
		maps.DeleteFunc(kept, func(name string, _ rest.Storage) bool {
			resource, _, _ := strings.Cut(name, "/")
			return !enabled.ResourceEnabled(gv.WithResource(resource))
		})
		info.VersionedResourcesStorageMap[version] = kept
	}
	info.PrioritizedVersions = slices.DeleteFunc(slices.Clone(info.PrioritizedVersions), func(gv schema.GroupVersion) bool {
		return len(info.VersionedResourcesStorageMap[gv.Version]) == 0
	})
}
