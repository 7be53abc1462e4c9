// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterapi has the names in Cluster API that the ownership commands know: its groups and those of its providers, some kinds,
// labels and annotations.
package clusterapi

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The groups. Providers have the last three, for kinds whose names end as their contracts ask for: *ControlPlane, *Config, *Machine.
const (
	Core           = "cluster.x-k8s.io"
	Addons         = "addons." + Core
	Runtime        = "runtime." + Core
	Bootstrap      = "bootstrap." + Core
	ControlPlane   = "controlplane." + Core
	Infrastructure = "infrastructure." + Core
)

// Labels and annotations.
const (
	// ClusterNameLabel has the name of the Cluster that an object belongs to.
	ClusterNameLabel = Core + "/cluster-name"
	// ControlPlaneLabel is on the Machines of a control plane.
	ControlPlaneLabel = Core + "/control-plane"
	// DeploymentNameLabel, SetNameLabel, PoolNameLabel and ControlPlaneNameLabel have, on a Machine, the name of what has created it, and the
	// first, on a MachineSet, that of its MachineDeployment.
	DeploymentNameLabel   = Core + "/deployment-name"
	SetNameLabel          = Core + "/set-name"
	PoolNameLabel         = Core + "/pool-name"
	ControlPlaneNameLabel = Core + "/control-plane-name"
	// TopologyOwnedLabel is on the objects of a Cluster that is made from a ClusterClass.
	TopologyOwnedLabel = "topology." + Core + "/owned"
	// PausedAnnotation pauses the controllers of Cluster API and its providers for an object. The
	// providers' contract requires them to honor it.
	PausedAnnotation = Core + "/paused"
)

// Kinds.
var (
	Cluster      = schema.GroupKind{Group: Core, Kind: "Cluster"}
	ClusterClass = schema.GroupKind{Group: Core, Kind: "ClusterClass"}
	Machine      = schema.GroupKind{Group: Core, Kind: "Machine"}
	// Binding names the objects that ClusterResourceSets have brought to a Cluster.
	Binding = schema.GroupKind{Group: Addons, Kind: "ClusterResourceSetBinding"}
)

// IsPaused reports whether an object says itself that its controllers rest, which pauses those of all objects of a Cluster.
func IsPaused(object *unstructured.Unstructured) bool {
	_, annotated := object.GetAnnotations()[PausedAnnotation]
	paused, _, _ := unstructured.NestedBool(object.Object, "spec", "paused")
	return annotated || paused && object.GroupVersionKind().GroupKind() == Cluster
}

// Has reports whether a group is one of Cluster API or its providers.
func Has(group string) bool { return group == Core || strings.HasSuffix(group, "."+Core) }
