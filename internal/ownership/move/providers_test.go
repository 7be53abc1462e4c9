// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
)

const inventoryVersion = "clusterctl.cluster.x-k8s.io/v1alpha3"

// entry is an entry of clusterctl's inventory.
func entry(kind, name, version string) *unstructured.Unstructured {
	o := object(inventoryVersion, "Provider", kind+name+version)
	o.Object["type"], o.Object["providerName"], o.Object["version"] = kind, name, version
	return o
}

// servingProviders returns a cluster with objects of the kinds that the checks of providers read.
func servingProviders(name string, objects ...runtime.Object) *Cluster {
	lists, known := map[schema.GroupVersionResource]string{}, &kinds{served: map[schema.GroupVersionKind]kind{}}
	for _, k := range []struct{ apiVersion, kind, resource string }{
		{inventoryVersion, "Provider", "providers"}, {"apiextensions.k8s.io/v1", definitionKind.Kind, "customresourcedefinitions"},
		{infraVersion, "Identity", "identities"}, {coreVersion, "Cluster", "clusters"}, {coreVersion, "Machine", "machines"},
	} {
		gvk := schema.FromAPIVersionAndKind(k.apiVersion, k.kind)
		k := kind{GroupVersionResource: gvk.GroupVersion().WithResource(k.resource), GroupVersionKind: gvk, namespaced: gvk.Kind != definitionKind.Kind}
		lists[k.GroupVersionResource] = k.Kind + "List"
		known.served[k.GroupVersionKind] = k
		known.preferred = append(known.preferred, k)
	}
	return &Cluster{Name: name, dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...), kinds: known}
}

// TestProviders: a move to a cluster without a provider, or with an older one, is refused, as clusterctl refuses it.
func TestProviders(t *testing.T) {
	core := entry("CoreProvider", "cluster-api", "v1.14.2")
	for name, tt := range map[string]struct {
		here, there []runtime.Object
		want        []string
	}{
		"the same":           {[]runtime.Object{core}, []runtime.Object{core}, nil},
		"newer":              {[]runtime.Object{core}, []runtime.Object{entry("CoreProvider", "cluster-api", "v1.9.0"), entry("CoreProvider", "cluster-api", "v1.15.0")}, nil},
		"older":              {[]runtime.Object{core}, []runtime.Object{entry("CoreProvider", "cluster-api", "v1.14.1")}, []string{"there has CoreProvider cluster-api v1.14.1, and here v1.14.2: upgrade it there"}},
		"none":               {[]runtime.Object{core}, nil, []string{"there does not have CoreProvider cluster-api, which here has: install it there"}},
		"of another type":    {[]runtime.Object{core}, []runtime.Object{entry("BootstrapProvider", "cluster-api", "v1.14.2")}, []string{"there does not have CoreProvider cluster-api, which here has: install it there"}},
		"not of clusterctl":  {nil, nil, nil},
		"without a version":  {[]runtime.Object{entry("CoreProvider", "cluster-api", "latest")}, []runtime.Object{core}, []string{`here has CoreProvider cluster-api with the version "latest", which cannot be compared: could not parse "latest" as version`}},
		"more at the target": {nil, []runtime.Object{core}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Mover{
				Options: Options{Source: servingProviders("here", tt.here...), Target: servingProviders("there", tt.there...)},
				graph:   Assemble([]*unstructured.Unstructured{capi("Cluster", "c")}, rootsOfTest("c")), plan: &Plan{},
			}
			if err := m.checkProviders(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, m.plan.Problems); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestProvidersOfOthers: a move without objects of Cluster API needs no providers.
func TestProvidersOfOthers(t *testing.T) {
	m := &Mover{
		Options: Options{Source: servingProviders("here", entry("CoreProvider", "cluster-api", "v1.14.2")), Target: servingProviders("there")},
		graph:   Assemble([]*unstructured.Unstructured{object("v1", "ConfigMap", "c")}, rootsOfTest("c")), plan: &Plan{},
	}
	if err := m.checkProviders(t.Context()); err != nil || len(m.plan.Problems) > 0 {
		t.Errorf("%v, %q", err, m.plan.Problems)
	}
}

// TestIdentities: objects that clusterctl would move by the labels of their definition, and that are not named, are noted.
func TestIdentities(t *testing.T) {
	definition := with(with(object("apiextensions.k8s.io/v1", definitionKind.Kind, "identities"), "infrastructure.cluster.x-k8s.io", "spec", "group"), "Identity", "spec", "names", "kind")
	definition.SetNamespace("")
	labelled := definition.DeepCopy()
	labelled.SetLabels(map[string]string{"clusterctl.cluster.x-k8s.io/move-hierarchy": ""})
	used, elsewhere := object(infraVersion, "Identity", "used"), object(infraVersion, "Identity", "elsewhere")
	elsewhere.SetNamespace("other")
	const note = "identity.infrastructure.cluster.x-k8s.io/used in namespace ns does not move; clusterctl would move it, as the labels of its definition say: name it too if there does not have it"
	for name, tt := range map[string]struct {
		definition *unstructured.Unstructured
		moved      []*unstructured.Unstructured
		want       []string
	}{
		"labelled":     {labelled, []*unstructured.Unstructured{capi("Cluster", "c")}, []string{note}},
		"not labelled": {definition, []*unstructured.Unstructured{capi("Cluster", "c")}, nil},
		"named":        {labelled, []*unstructured.Unstructured{capi("Cluster", "c"), used}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Mover{
				Options: Options{Source: servingProviders("here", tt.definition, used, elsewhere)},
				graph:   Assemble(tt.moved, rootsOfTest("c", "used")), plan: &Plan{To: "there"},
			}
			if err := m.noteIdentities(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, m.plan.Notes); diff != "" {
				t.Error(diff)
			}
		})
	}
}
