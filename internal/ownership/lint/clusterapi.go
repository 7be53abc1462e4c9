// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// ProfileOf returns the table of a profile, or nil if there is none.
func ProfileOf(name ownership.LintProfile) *Profile {
	if name == ownership.ProfileClusterAPI {
		return clusterAPI
	}
	return nil
}

// The kinds that own others. The kinds of providers end as their contracts ask for.
var (
	cluster           = kind{clusterapi.Core, "Cluster"}
	clusterClass      = kind{clusterapi.Core, "ClusterClass"}
	machine           = kind{clusterapi.Core, "Machine"}
	machineSet        = kind{clusterapi.Core, "MachineSet"}
	machineDeployment = kind{clusterapi.Core, "MachineDeployment"}
	machinePool       = kind{clusterapi.Core, "MachinePool"}
	resourceSet       = kind{clusterapi.Addons, "ClusterResourceSet"}
	controlPlane      = kind{clusterapi.ControlPlane, "*ControlPlane"}
	bootstrapConfig   = kind{clusterapi.Bootstrap, "*Config"}
	infraMachinePool  = kind{clusterapi.Infrastructure, "*MachinePool"}
)

// ofCluster are the owners of what a Cluster names or creates, and ofTopology those of what Cluster API makes from a ClusterClass for it.
var (
	ofCluster  = owners{{kind: cluster}}
	ofTopology = owners{{kind: cluster, role: controller}}
)

// ofPool are the owners of what a provider has for a MachinePool. With a topology, the Cluster is one as well.
var (
	ofPool           = owners{{kind: machinePool, role: controller}}
	ofPoolOfTopology = owners{{kind: machinePool, role: controller}, {kind: cluster}}
)

// The owners of templates: the classes that name one, or the Clusters with parts that do. Clusters have no part that names a template of
// a control plane, of a cluster or of a pool.
var (
	ofClass    = []owners{{{kind: clusterClass, several: true}}}
	ofTemplate = []owners{{{kind: cluster, several: true}}, {{kind: clusterClass, several: true}}}
)

// clusterAPI is the table of Cluster API's document "Owner References" as v1.14's controllers keep it: docs/cluster-api.md lists the
// differences. What a user creates without its usual owner, as a MachineSet without a MachineDeployment, is owned by the Cluster.
var clusterAPI = &Profile{
	project: "Cluster API", root: cluster, rootLabel: clusterapi.ClusterNameLabel,
	rows: []row{
		{kind: kind{clusterapi.Runtime, "ExtensionConfig"}, alternatives: []owners{{}}},
		{kind: clusterClass, alternatives: []owners{{}}},
		{kind: cluster, alternatives: []owners{{}}},
		{kind: machineDeployment, alternatives: []owners{ofCluster}},

		// The labels say what has created a MachineSet or a Machine. With one of them, the Cluster does not adopt it.
		{kind: machineSet, label: clusterapi.DeploymentNameLabel, alternatives: []owners{{{kind: machineDeployment, role: controller}}}},
		{kind: machineSet, alternatives: []owners{{{kind: machineDeployment, role: controller}}, ofCluster}},
		{kind: machine, label: clusterapi.SetNameLabel, alternatives: []owners{{{kind: machineSet, role: controller}}}},
		{kind: machine, label: clusterapi.PoolNameLabel, alternatives: []owners{{{kind: machinePool, role: controller}}}},
		{kind: machine, label: clusterapi.ControlPlaneNameLabel, alternatives: []owners{{{kind: controlPlane, role: controller}}}},
		{kind: machine, alternatives: []owners{
			{{kind: machineSet, role: controller}}, {{kind: controlPlane, role: controller}}, {{kind: machinePool, role: controller}}, ofCluster,
		}},
		{kind: kind{clusterapi.Core, "MachineHealthCheck"}, alternatives: []owners{ofCluster}},
		{kind: machinePool, alternatives: []owners{ofCluster}},

		{kind: resourceSet, alternatives: []owners{{}}},
		{kind: kind{clusterapi.Addons, "ClusterResourceSetBinding"}, alternatives: []owners{{{kind: resourceSet, several: true}}}},

		{kind: controlPlane, label: clusterapi.TopologyOwnedLabel, alternatives: []owners{ofTopology}},
		{kind: controlPlane, alternatives: []owners{ofCluster}},
		{kind: kind{clusterapi.ControlPlane, "*ControlPlaneTemplate"}, alternatives: ofClass, optional: true},

		{kind: bootstrapConfig, label: clusterapi.TopologyOwnedLabel, alternatives: []owners{{{kind: machine, role: controller}}, ofPoolOfTopology}},
		{kind: bootstrapConfig, alternatives: []owners{{{kind: machine, role: controller}}, ofPool}},
		{kind: kind{clusterapi.Bootstrap, "*ConfigTemplate"}, alternatives: ofTemplate, optional: true},

		{kind: kind{clusterapi.Infrastructure, "*Cluster"}, label: clusterapi.TopologyOwnedLabel, alternatives: []owners{ofTopology}},
		{kind: kind{clusterapi.Infrastructure, "*Cluster"}, alternatives: []owners{ofCluster}},
		{kind: kind{clusterapi.Infrastructure, "*ClusterTemplate"}, alternatives: ofClass, optional: true},
		{kind: infraMachinePool, label: clusterapi.TopologyOwnedLabel, alternatives: []owners{ofPoolOfTopology}},
		{kind: infraMachinePool, alternatives: []owners{ofPool}},
		{kind: kind{clusterapi.Infrastructure, "*MachinePoolTemplate"}, alternatives: ofClass, optional: true},
		{kind: kind{clusterapi.Infrastructure, "*Machine"}, alternatives: []owners{
			{{kind: machine, role: controller}}, {{kind: machine, role: controller}, {kind: infraMachinePool}},
		}},
		{kind: kind{clusterapi.Infrastructure, "*Template"}, alternatives: ofTemplate, optional: true},

		{kind: kind{"", "Secret"}, shared: true, optional: true, alternatives: []owners{
			{{kind: controlPlane, role: controller}}, {{kind: bootstrapConfig, role: controller}},
			{{kind: cluster, role: either, once: true}}, // a kubeconfig without a control plane's provider, or what a provider keeps there
			{{kind: resourceSet, several: true}},
		}},
		{kind: kind{"", "ConfigMap"}, shared: true, optional: true, alternatives: []owners{
			{{kind: resourceSet, several: true}},
			{{kind: cluster, once: true}}, // the lock of the first machine's initialization
		}},
	},
}

// gives reports whether the controller of what names a template sets a reference on it: that of a ClusterClass one to the class, and those of
// MachineDeployments, MachineSets and control planes one to their Cluster.
func (n Namer) gives(ref graph.Owner) bool {
	return (n.Kind == clusterClass.name) == clusterClass.matches(ownerKind(ref))
}
