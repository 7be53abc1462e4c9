// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"slices"
	"strings"
)

// resourceSets are two ClusterResourceSets that bring an object each to a Cluster, so that its binding has two owners. No object has two, because
// upstream's assertions allow a ConfigMap one ClusterResourceSet, and a Secret none.
const resourceSets = `
apiVersion: v1
kind: ConfigMap
metadata: {name: brought}
data: {content: "{apiVersion: v1, kind: ConfigMap, metadata: {name: brought, namespace: default}}"}
---
apiVersion: addons.cluster.x-k8s.io/v1beta2
kind: ClusterResourceSet
metadata: {name: one}
spec: {strategy: ApplyOnce, clusterSelector: {matchLabels: {sets: "yes"}}, resources: [{kind: ConfigMap, name: brought}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: also-brought}
data: {content: "{apiVersion: v1, kind: ConfigMap, metadata: {name: also-brought, namespace: default}}"}
---
apiVersion: addons.cluster.x-k8s.io/v1beta2
kind: ClusterResourceSet
metadata: {name: two}
spec: {strategy: ApplyOnce, clusterSelector: {matchLabels: {sets: "yes"}}, resources: [{kind: ConfigMap, name: also-brought}]}
`

// broughtSecret is a Secret that ClusterResourceSets can bring.
const broughtSecret = `
apiVersion: v1
kind: Secret
metadata: {name: brought}
type: addons.cluster.x-k8s.io/resource-set
stringData: {content: "{apiVersion: v1, kind: Secret, metadata: {name: brought, namespace: default}}"}
`

// sharesResources lets both resourceSets bring the same ConfigMaps and the same Secret to a Cluster, and waits until each of these, and the binding,
// has both as its owners. The sets are changed one after another: upstream adds an owner by a patch that loses one which is added meanwhile.
func (m *management) sharesResources(cluster string) {
	m.Helper()
	m.apply(broughtSecret)
	m.bringsAll("one")
	m.ownedBySets("configmap/brought", "one")
	m.ownedBySets("configmap/also-brought", "one", "two")
	m.ownedBySets("secret/brought", "one")
	m.bringsAll("two")
	for _, object := range []string{"configmap/brought", "configmap/also-brought", "secret/brought", "clusterresourcesetbinding/" + cluster} {
		m.ownedBySets(object, "one", "two")
	}
}

// bringsAll lets a ClusterResourceSet bring all resources.
func (m *management) bringsAll(set string) {
	m.Helper()
	m.kubectl("patch", "clusterresourceset", set, "--type=merge", "-p",
		`{"spec":{"resources":[{"kind":"ConfigMap","name":"brought"},{"kind":"ConfigMap","name":"also-brought"},{"kind":"Secret","name":"brought"}]}}`)
}

// ownedBySets waits until ClusterResourceSets, and nothing else, own an object. They are sorted.
func (m *management) ownedBySets(object string, sets ...string) {
	m.Helper()
	var want []string
	for _, set := range sets {
		want = append(want, "ClusterResourceSet/"+set)
	}
	m.within(provisioning, object+" is owned by "+strings.Join(want, " and "), func() error {
		owners := strings.Fields(m.jsonpath("{range .metadata.ownerReferences[*]}{.kind}/{.name} {end}", object))
		slices.Sort(owners)
		if !slices.Equal(owners, want) {
			return fmt.Errorf("it is owned by %v", owners)
		}
		return nil
	})
}
