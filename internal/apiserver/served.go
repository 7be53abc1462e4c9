// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"maps"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/establish"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// establishLimit is the time that a start waits until stored definitions are established. Establishing
// is a write, which is refused if the disk is full: the cluster must start nevertheless.
const establishLimit = 10 * time.Second

// servedInterval is the interval at which AwaitServed checks.
const servedInterval = 10 * time.Millisecond

// AwaitServed returns once every resource that this server serves answers and is listed in
// discovery: the built-in ones and those of CustomResourceDefinitions. Definitions that are not
// established in time are logged and left out. OpenAPI of custom resources is not waited for:
// k8s.io/kube-aggregator collects it once a second, after a start as after a definition's creation.
func (s *Server) AwaitServed(ctx context.Context) error {
	client, err := discovery.NewDiscoveryClientForConfig(s.Config(apiserverUser))
	if err != nil {
		return err
	}
	// Establishing takes real time, even under a fake clock.
	wall := clock.RealClock{}
	began := wall.Now()
	ticker := wall.NewTicker(servedInterval)
	defer ticker.Stop()
	for {
		undecided := s.undecidedDefinitions()
		late := wall.Since(began) > establishLimit
		if (len(undecided) == 0 || late) && s.allListed(ctx, client) {
			if len(undecided) > 0 {
				klog.FromContext(ctx).Info("Definitions are not established, and their resources not served", "customresourcedefinitions", undecided)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
}

// AwaitDefinitions returns once the resources of all stored CustomResourceDefinitions are served, as
// AwaitServed does. Without definitions it returns at once: discovery is not polled during a start.
func (s *Server) AwaitDefinitions(ctx context.Context) error {
	ticker := clock.RealClock{}.NewTicker(servedInterval)
	defer ticker.Stop()
	for !s.definitions.Informer().HasSynced() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
	if len(s.allDefinitions()) == 0 {
		return nil
	}
	return s.AwaitServed(ctx)
}

// undecidedDefinitions returns the names of definitions whose conditions
// k8s.io/apiextensions-apiserver's controllers have not written yet. It returns none before the
// informer has synced; then discovery lists no custom resources either.
func (s *Server) undecidedDefinitions() []string {
	var names []string
	for _, definition := range s.allDefinitions() {
		if !isDecided(definition) {
			names = append(names, definition.Name)
		}
	}
	return names
}

// isDecided reports whether a definition is established, or will not be, because its names are taken
// or its webhook's CA bundle is invalid.
func isDecided(definition *apiextensionsv1.CustomResourceDefinition) bool {
	established := apihelpers.FindCRDCondition(definition, apiextensionsv1.Established)
	switch {
	case definition.DeletionTimestamp != nil:
		return true
	case established != nil && established.Status == apiextensionsv1.ConditionTrue:
		return true
	case apihelpers.IsCRDConditionFalse(definition, apiextensionsv1.NamesAccepted):
		return true
	}
	return established != nil && established.Reason == "InvalidCABundle"
}

// allListed reports whether discovery lists every resource that this server serves, in the list of
// groups and in the aggregated document. It ignores group versions that an APIService delegates to
// another server, which may be down.
func (s *Server) allListed(ctx context.Context, client discovery.DiscoveryInterface) bool {
	if !s.definitions.Informer().HasSynced() {
		return false
	}
	want := s.servedVersions()
	services, err := s.aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister().List(labels.Everything())
	if err != nil {
		return false
	}
	announced := sets.New[schema.GroupVersion]()
	for _, service := range services {
		gv := schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}
		announced.Insert(gv)
		if service.Spec.Service != nil {
			delete(want, gv)
		}
	}
	if delegates(s.aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices()) {
		maps.DeleteFunc(want, func(gv schema.GroupVersion, _ sets.Set[string]) bool { return isReplaceable(gv.Group) })
	}
	for gv := range want {
		if !announced.Has(gv) {
			return false
		}
	}
	// If the server of an APIService is down, this returns an error along with the lists.
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) || ctx.Err() != nil {
		return false
	}
	return areListed(want, lists)
}

// servedVersions returns the group versions that this server serves, each with the resources that
// must be listed.
func (s *Server) servedVersions() map[schema.GroupVersion]sets.Set[string] {
	versions := map[schema.GroupVersion]sets.Set[string]{apiextensionsv1.SchemeGroupVersion: nil}
	for gv := range s.installed {
		versions[gv] = nil
	}
	for _, definition := range s.allDefinitions() {
		if definition.DeletionTimestamp != nil || !apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) {
			continue
		}
		for _, version := range definition.Spec.Versions {
			if !version.Served {
				continue
			}
			gv := schema.GroupVersion{Group: definition.Spec.Group, Version: version.Name}
			versions[gv] = versions[gv].Union(sets.New(definition.Status.AcceptedNames.Plural))
		}
	}
	return versions
}

// areListed reports whether the lists have all wanted group versions and their wanted resources.
func areListed(want map[schema.GroupVersion]sets.Set[string], lists []*metav1.APIResourceList) bool {
	have := map[string]sets.Set[string]{}
	for _, list := range lists {
		resources := sets.New[string]()
		for _, resource := range list.APIResources {
			resources.Insert(resource.Name)
		}
		have[list.GroupVersion] = resources
	}
	for gv, resources := range want {
		found, ok := have[gv.String()]
		if !ok || !found.IsSuperset(resources) {
			return false
		}
	}
	return true
}

func (s *Server) allDefinitions() []*apiextensionsv1.CustomResourceDefinition {
	all, err := s.definitions.Lister().List(labels.Everything())
	if err != nil { // a lister of a cache returns none
		return nil
	}
	return all
}

// establishInterrupted establishes the definitions whose names were accepted when the process that
// served them ended. k8s.io/apiextensions-apiserver queues a definition for that when it sees it
// change; one that it finds at its start waits for the informer's resync, up to five minutes, and
// until then discovery of its group is "not found".
func establishInterrupted(server *genericapiserver.GenericAPIServer, definitions crdinformers.CustomResourceDefinitionInformer) error {
	client, err := extensionsclient.NewForConfig(server.LoopbackClientConfig)
	if err != nil {
		return err
	}
	controller := establish.NewEstablishingController(definitions, client.ApiextensionsV1())
	_, err = definitions.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		definition, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if ok && apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.NamesAccepted) && !isDecided(definition) {
			controller.QueueCRD(definition.Name, 0)
		}
	}})
	if err != nil {
		return err
	}
	return server.AddPostStartHook("crd-establish-interrupted", func(hook genericapiserver.PostStartHookContext) error {
		go controller.RunWithContext(hook)
		return nil
	})
}
