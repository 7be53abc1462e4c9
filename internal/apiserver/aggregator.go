// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
)

// Priorities of groups in discovery, by which kubectl resolves short names. Custom groups follow
// all built-in ones.
const (
	extensionsGroupPriority = 16700
	customGroupPriority     = 1000
	customVersionPriority   = 100
	builtInVersionPriority  = 15
)

// newAggregator returns the aggregation layer, the first server of the chain: it serves
// APIServices, merges discovery and OpenAPI of all servers, and proxies requests to extension API
// servers.
func (s *Server) newAggregator(g genericapiserver.Config, c Config, next genericapiserver.DelegationTarget, crds crdinformers.SharedInformerFactory) (*aggregatorapiserver.APIAggregator, error) {
	services := apiregistrationv1.Resource("apiservices")
	if err := c.Backend.Readable(services, services.Group+"/"+services.Resource); err != nil {
		return nil, err // k8s.io/apiserver would panic
	}
	// The aggregator reloads the files.
	kept, err := c.PKI.Keep(c.PKI.FrontProxyClient, nil)
	if err != nil {
		return nil, err
	}
	proxy := kept.Pair()
	g.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	s.describe(&g, aggregatoropenapi.GetOpenAPIDefinitions)
	g.SkipOpenAPIInstallation = true
	g.MergedResourceConfig = aggregatorapiserver.DefaultAPIResourceConfigSource()
	g.RESTOptionsGetter = libraryResources(c.Backend, g, aggregatorscheme.Codecs.LegacyCodec(apiregistrationv1.SchemeGroupVersion), apiregistrationv1.SchemeGroupVersion)
	config := &aggregatorapiserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: g, SharedInformerFactory: s.informers},
		ExtraConfig: aggregatorapiserver.ExtraConfig{
			ProxyClientCertFile: proxy.CertFile,
			ProxyClientKeyFile:  proxy.KeyFile,
			ServiceResolver:     s.services.resolver,
		},
	}
	if s.mixed != nil {
		config.ExtraConfig.PeerProxy = s.mixed
	}
	server, err := config.Complete().NewWithDelegate(next)
	if err != nil {
		return nil, err
	}
	if err := s.mixed.register(s, server); err != nil {
		return nil, err
	}
	client, err := clientset.NewForConfig(g.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	registration := autoregister.NewAutoRegisterController(server.APIRegistrationInformers.Apiregistration().V1().APIServices(), client.ApiregistrationV1())
	builtIn := s.registerBuiltIn(g, registration)
	if err := server.GenericAPIServer.AddBootSequenceHealthChecks(registrationCheck(builtIn, server.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister())); err != nil {
		return nil, err
	}
	if err := s.serveMetrics(server.GenericAPIServer, server.APIRegistrationInformers.Apiregistration().V1().APIServices(), client); err != nil {
		return nil, err
	}
	custom := &customGroups{crds: crds, registration: registration}
	if err := custom.watch(); err != nil {
		return nil, err
	}
	err = server.GenericAPIServer.AddPostStartHook("kube-apiserver-autoregistration", func(hook genericapiserver.PostStartHookContext) error {
		go func() {
			// Before the existing CRDs are known, their APIServices would be removed as obsolete.
			if cache.WaitForCacheSync(hook.Done(), custom.synced) {
				registration.Run(5, hook.Done())
			}
		}()
		return nil
	})
	return server, err
}

// registerBuiltIn registers APIServices for the groups that this process serves, and returns their names.
func (s *Server) registerBuiltIn(g genericapiserver.Config, registration autoregister.AutoAPIServiceRegistration) []string {
	var names []string
	announce := func(gv schema.GroupVersion, group, version int32) {
		if !isReplaceable(gv.Group) {
			service := apiService(gv, group, version)
			registration.AddAPIServiceToSyncOnStart(service)
			names = append(names, service.Name)
		}
		g.AggregatedDiscoveryGroupManager.SetGroupVersionPriority(metav1.GroupVersion(gv), int(group), int(version))
	}
	for _, group := range s.groups {
		for i, version := range group.Versions {
			if gv := (schema.GroupVersion{Group: group.Name, Version: version.Name}); s.installed.Has(gv) {
				announce(gv, group.Priority, int32(builtInVersionPriority-i))
			}
		}
	}
	announce(apiextensionsv1.SchemeGroupVersion, extensionsGroupPriority, builtInVersionPriority)
	return names
}

// isElsewhere reports whether an APIService delegates a built-in group version to another server.
func (s *Server) isElsewhere(gv schema.GroupVersion) bool {
	service, err := s.aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister().Get(gv.Version + "." + gv.Group)
	return err == nil && service.Spec.Service != nil
}

func apiService(gv schema.GroupVersion, group, version int32) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: group, VersionPriority: version,
		},
	}
}

// customGroups maintains an APIService for each group version that CRDs serve, so that custom
// groups appear in discovery and in the merged OpenAPI.
type customGroups struct {
	crds         crdinformers.SharedInformerFactory
	registration autoregister.AutoAPIServiceRegistration
	handled      cache.ResourceEventHandlerRegistration
}

func (c *customGroups) watch() (err error) {
	c.handled, err = c.crds.Apiextensions().V1().CustomResourceDefinitions().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.register(obj) },
		UpdateFunc: func(old, obj any) { c.register(old); c.register(obj) },
		DeleteFunc: func(obj any) { c.register(obj) },
	})
	return err
}

func (c *customGroups) synced() bool { return c.handled.HasSynced() }

// register registers the versions of the CRD's group that any CRD serves, and removes those of this
// CRD that none serves.
func (c *customGroups) register(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return
	}
	served := c.served(crd.Spec.Group)
	for _, version := range crd.Spec.Versions {
		gv := schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name}
		service := apiService(gv, customGroupPriority, customVersionPriority)
		if served.Has(version.Name) {
			c.registration.AddAPIServiceToSync(service)
		} else {
			c.registration.RemoveAPIServiceToSync(service.Name)
		}
	}
}

func (c *customGroups) served(group string) sets.Set[string] {
	versions := sets.New[string]()
	all, err := c.crds.Apiextensions().V1().CustomResourceDefinitions().Lister().List(labels.Everything())
	if err != nil { // a lister of a cache returns none
		return versions
	}
	for _, crd := range all {
		if crd.Spec.Group != group {
			continue
		}
		for _, version := range crd.Spec.Versions {
			if version.Served {
				versions.Insert(version.Name)
			}
		}
	}
	return versions
}
