// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestLookUp(t *testing.T) {
	things := func(version string, names ...string) *metav1.APIResourceList {
		list := &metav1.APIResourceList{GroupVersion: version}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, SingularName: "thing", Kind: "Thing", Namespaced: true, Verbs: []string{"list", "watch"}})
		}
		return list
	}
	server := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}
	for _, test := range []struct {
		name   string
		served []*metav1.APIResourceList
		wanted schema.GroupResource
		want   string // the kind, or "" if not served
	}{
		{"the preferred version", []*metav1.APIResourceList{things("example.com/v2", "things"), things("example.com/v1", "things")},
			schema.GroupResource{Group: "example.com", Resource: "things"}, "example.com/v2, Kind=Thing"},
		{"the only version with the resource", []*metav1.APIResourceList{things("example.com/v2", "others"), things("example.com/v1", "things")},
			schema.GroupResource{Group: "example.com", Resource: "things"}, "example.com/v1, Kind=Thing"},
		{"removed", []*metav1.APIResourceList{things("example.com/v2", "others")}, schema.GroupResource{Group: "example.com", Resource: "things"}, ""},
		{"another group", []*metav1.APIResourceList{things("example.org/v1", "things")}, schema.GroupResource{Group: "example.com", Resource: "things"}, ""},
		{"the singular", []*metav1.APIResourceList{things("example.com/v1", "things")}, schema.GroupResource{Group: "example.com", Resource: "thing"}, ""},
		{"the core group", []*metav1.APIResourceList{things("v1", "things")}, schema.GroupResource{Resource: "things"}, "/v1, Kind=Thing"},
	} {
		server.Resources = test.served
		found, err := LookUp(server, test.wanted)
		if err != nil {
			t.Fatal(err)
		}
		if (found != nil) != (test.want != "") {
			t.Errorf("%s: %+v", test.name, found)
			continue
		}
		if found != nil && (found.Kind.String() != test.want || !found.Namespaced || !found.Can("list", "watch") || found.Can("list", "create")) {
			t.Errorf("%s: %+v", test.name, found)
		}
	}
}
