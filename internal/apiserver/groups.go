// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	aggregated "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// installer installs groups as GenericAPIServer.InstallAPIGroups and InstallLegacyAPIGroup do, except that the converter of
// their objects to the types of server-side apply is ours. k8s.io/apiserver makes one for each group while it starts, and
// that cannot be replaced.
type installer struct {
	*genericapiserver.GenericAPIServer
	config *genericapiserver.Config
}

// install installs groups whose objects the converter knows.
func (i *installer) install(types managedfields.TypeConverter, groups []*genericapiserver.APIGroupInfo) error {
	for _, info := range groups {
		if err := i.installGroup(types, info); err != nil {
			return err
		}
	}
	return nil
}

func (i *installer) installGroup(types managedfields.TypeConverter, info *genericapiserver.APIGroupInfo) error {
	group := info.PrioritizedVersions[0].Group
	root, discovered := genericapiserver.APIGroupPrefix, i.AggregatedDiscoveryGroupManager
	if group == "" {
		root, discovered = genericapiserver.DefaultLegacyAPIPrefix, i.AggregatedLegacyDiscoveryGroupManager
	}
	preferred := info.PrioritizedVersions[0]
	described := metav1.APIGroup{Name: group, PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: preferred.String(), Version: preferred.Version}}
	for _, gv := range info.PrioritizedVersions {
		if len(info.VersionedResourcesStorageMap[gv.Version]) == 0 {
			continue
		}
		version := i.version(info, gv)
		version.Root, version.TypeConverter = root, types
		resources, _, err := version.InstallREST(i.Handler.GoRestfulContainer)
		if err != nil {
			return fmt.Errorf("%s: %w", gv, err)
		}
		discovered.AddGroupVersion(group, apidiscoveryv2.APIVersionDiscovery{
			Version: gv.Version, Resources: resources, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		})
		described.Versions = append(described.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
	}
	i.describe(described)
	i.manageStorage(group, info)
	return nil
}

// version returns what k8s.io/apiserver calls an API group version: how its requests are decoded, admitted and answered.
func (i *installer) version(info *genericapiserver.APIGroupInfo, gv schema.GroupVersion) *endpoints.APIGroupVersion {
	served := map[string][]string{}
	for version, resources := range info.VersionedResourcesStorageMap {
		for resource := range resources {
			served[resource] = append(served[resource], schema.GroupVersion{Group: gv.Group, Version: version}.String())
		}
	}
	return &endpoints.APIGroupVersion{
		GroupVersion:                gv,
		Storage:                     info.VersionedResourcesStorageMap[gv.Version],
		AllServedVersionsByResource: served,
		OptionsExternalVersion:      info.OptionsExternalVersion,
		MetaGroupVersion:            info.MetaGroupVersion,
		ParameterCodec:              info.ParameterCodec,
		Serializer:                  info.NegotiatedSerializer,
		Creater:                     info.Scheme,
		Convertor:                   info.Scheme,
		ConvertabilityChecker:       info.Scheme,
		UnsafeConvertor:             runtime.UnsafeObjectConvertor(info.Scheme),
		Defaulter:                   info.Scheme,
		Typer:                       info.Scheme,
		Namer:                       runtime.Namer(meta.NewAccessor()),
		EquivalentResourceRegistry:  i.EquivalentResourceRegistry,
		Admit:                       i.config.AdmissionControl,
		MinRequestTimeout:           time.Duration(i.config.MinRequestTimeout) * time.Second,
		MaxRequestBodyBytes:         i.config.MaxRequestBodyBytes,
		Authorizer:                  i.Authorizer,
	}
}

// describe serves the discovery document of a group.
func (i *installer) describe(group metav1.APIGroup) {
	container := i.Handler.GoRestfulContainer
	if group.Name != "" {
		i.DiscoveryGroupManager.AddGroup(group)
		container.Add(discovery.NewAPIGroupHandler(i.Serializer, group).WebService())
		return
	}
	legacy := discovery.NewLegacyRootAPIHandler(i.config.DiscoveryAddresses, i.Serializer, genericapiserver.DefaultLegacyAPIPrefix)
	both := aggregated.WrapAggregatedDiscoveryToHandler(legacy, i.AggregatedLegacyDiscoveryGroupManager, i.AggregatedLegacyDiscoveryGroupManager)
	container.Add(both.GenerateWebService(genericapiserver.DefaultLegacyAPIPrefix, metav1.APIVersions{}))
}

// manageStorage makes the server wait for the group's storage before it is ready, and end it at its stop.
func (i *installer) manageStorage(group string, info *genericapiserver.APIGroupInfo) {
	for version, resources := range info.VersionedResourcesStorageMap {
		for resource, storage := range resources {
			i.RegisterDestroyFunc(storage.Destroy)
			if waits, ok := storage.(rest.StorageWithReadiness); ok {
				i.StorageReadinessHook.RegisterStorage(metav1.GroupVersionResource{Group: group, Version: version, Resource: resource}, waits)
			}
		}
	}
}
