// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/framework"
)

// The owners of the objects of a Cluster with Kindred's providers.
var (
	ofCluster = owner(clusterv1.GroupVersion.String(), "Cluster", false)
	ofClass   = owner(clusterv1.GroupVersion.String(), "ClusterClass", false)
	// What these own, they control.
	ofMachine      = owner(clusterv1.GroupVersion.String(), "Machine", true)
	ofMachineSet   = owner(clusterv1.GroupVersion.String(), "MachineSet", true)
	ofControlPlane = owner("controlplane.cluster.x-k8s.io/v1alpha1", "KindredControlPlane", true)
	ofConfig       = owner("bootstrap.cluster.x-k8s.io/v1alpha1", "KindredConfig", true)
)

func owner(apiVersion, kind string, controls bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Controller: &controls}
}

// kindredOwners are the owners of all kinds in a Cluster with Kindred's providers, in the form of upstream's assertions: its own for the kinds of the
// core, except those which providers own.
func kindredOwners(topology bool) []ownerAssertions {
	ofWhole := ofCluster // what a Cluster names
	if topology {
		ofWhole = owner(clusterv1.GroupVersion.String(), "Cluster", true)
	}
	core := maps.Clone(framework.CoreOwnerReferenceAssertion)
	delete(core, "Machine")
	return []ownerAssertions{core, framework.ExpOwnerReferenceAssertions, {
		"Machine": ownedBy(ofMachineSet, ofControlPlane),
		// The certificates and the kubeconfig of the cluster; the bootstrap data of a machine.
		"Secret": ownedBy(ofControlPlane, ofConfig),

		"KindredCluster":              ownedBy(ofWhole),
		"KindredClusterTemplate":      ownedBy(ofClass),
		"KindredMachine":              ownedBy(ofMachine),
		"KindredMachineTemplate":      ownedBy(ofCluster, ofClass),
		"KindredConfig":               ownedBy(ofMachine),
		"KindredConfigTemplate":       ownedBy(ofCluster, ofClass),
		"KindredControlPlane":         ownedBy(ofWhole),
		"KindredControlPlaneTemplate": ownedBy(ofClass),
	}}
}

// ownedBy asserts that one of these is the only owner.
func ownedBy(owners ...metav1.OwnerReference) func(types.NamespacedName, []metav1.OwnerReference) error {
	var each [][]metav1.OwnerReference
	for _, o := range owners {
		each = append(each, []metav1.OwnerReference{o})
	}
	return func(_ types.NamespacedName, refs []metav1.OwnerReference) error {
		return framework.HasOneOfExactOwners(refs, each...)
	}
}

// kindredFinalizers are those of Kindred's kinds. The others have none.
var kindredFinalizers = map[string]func(types.NamespacedName) []string{
	"KindredCluster":      finalizer("infrastructure.cluster.x-k8s.io/kindredcluster"),
	"KindredMachine":      finalizer("infrastructure.cluster.x-k8s.io/kindredmachine"),
	"KindredControlPlane": finalizer("controlplane.cluster.x-k8s.io/kindredcontrolplane"),
	"KindredConfig":       finalizer("bootstrap.cluster.x-k8s.io/kindredconfig"),
}

func finalizer(name string) func(types.NamespacedName) []string {
	return func(types.NamespacedName) []string { return []string{name} }
}
