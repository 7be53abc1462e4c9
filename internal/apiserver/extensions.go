// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/apiserver/pkg/util/webhook"

	"github.com/kindred-project/kindred/internal/storage"
)

// newExtensions returns the server of CustomResourceDefinitions and custom resources, the last of
// the chain.
func (s *Server) newExtensions(g genericapiserver.Config, c Config) (*apiextensions.CustomResourceDefinitions, error) {
	g.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	s.describe(&g, apiextensionsopenapi.GetOpenAPIDefinitions)
	g.MergedResourceConfig = apiextensions.DefaultAPIResourceConfigSource()
	g.RESTOptionsGetter = libraryResources(c.Backend, g, apiextensions.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion), apiextensionsv1.SchemeGroupVersion)
	extensions := &apiextensions.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: g, SharedInformerFactory: s.informers},
		ExtraConfig: apiextensions.ExtraConfig{
			CRDRESTOptionsGetter: c.Backend.CustomResources(g.StorageObjectCountTracker),
			MasterCount:          1,
			ServiceResolver:      s.services.resolver,
			AuthResolverWrapper:  webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, g.LoopbackClientConfig, g.TracerProvider),
		},
	}
	notFound := notfoundhandler.New(g.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	server, err := extensions.Complete().New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, err
	}
	s.definitions = server.Informers.Apiextensions().V1().CustomResourceDefinitions()
	return server, establishInterrupted(server.GenericAPIServer, s.definitions)
}

// libraryResources returns the storage options of kinds that a library serves with its own codec.
// They are stored under group and resource, as upstream.
func libraryResources(backend *storage.Backend, g genericapiserver.Config, codec runtime.Codec, version schema.GroupVersion) storage.Resources {
	config := storagebackend.NewDefaultConfig(storage.Prefix, codec)
	config.EncodeVersioner = runtime.NewMultiGroupVersioner(version, schema.GroupKind{Group: version.Group})
	config.StorageObjectCountTracker = g.StorageObjectCountTracker
	return storage.Resources{
		Backend: backend,
		Factory: &genericoptions.SimpleStorageFactory{StorageConfig: *config},
		Counts:  g.StorageObjectCountTracker,
	}
}
