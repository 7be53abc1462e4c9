// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
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

// ofCluster are the owners of what a Cluster names or creates.
var ofCluster = owners{{kind: cluster}}

// ofTemplate are the owners of a template: the Clusters whose parts name it, or the classes that do.
var ofTemplate = []owners{{{kind: cluster, several: true}}, {{kind: clusterClass, several: true}}}

// ofPool are the owners of what a provider has for a MachinePool. With a topology, the Cluster is one as well.
var ofPool = []owners{{{kind: machinePool, role: controller}}, {{kind: machinePool, role: controller}, {kind: cluster}}}

// clusterAPI is the table of Cluster API's document "Owner References" as v1.14's controllers keep it: docs/cluster-api.md lists the
// differences. What a user creates without its usual owner, as a MachineSet without a MachineDeployment, is owned by the Cluster.
var clusterAPI = &Profile{
	project: "Cluster API", root: cluster, rootLabel: clusterapi.ClusterNameLabel,
	rows: []row{
		{kind: kind{clusterapi.Runtime, "ExtensionConfig"}, alternatives: []owners{{}}},
		{kind: clusterClass, alternatives: []owners{{}}},
		{kind: cluster, alternatives: []owners{{}}},
		{kind: machineDeployment, alternatives: []owners{ofCluster}},
		{kind: machineSet, alternatives: []owners{{{kind: machineDeployment, role: controller}}, ofCluster}},
		{kind: machine, alternatives: []owners{
			{{kind: machineSet, role: controller}}, {{kind: controlPlane, role: controller}}, {{kind: machinePool, role: controller}}, ofCluster,
		}},
		{kind: kind{clusterapi.Core, "MachineHealthCheck"}, alternatives: []owners{ofCluster}},
		{kind: machinePool, alternatives: []owners{ofCluster}},

		{kind: resourceSet, alternatives: []owners{{}}},
		{kind: kind{clusterapi.Addons, "ClusterResourceSetBinding"}, alternatives: []owners{{{kind: resourceSet, several: true}}}},

		{kind: controlPlane, alternatives: []owners{{{kind: cluster, role: either}}}},
		{kind: kind{clusterapi.ControlPlane, "*ControlPlaneTemplate"}, alternatives: ofTemplate, optional: true},

		{kind: bootstrapConfig, alternatives: append([]owners{{{kind: machine, role: controller}}}, ofPool...)},
		{kind: kind{clusterapi.Bootstrap, "*ConfigTemplate"}, alternatives: ofTemplate, optional: true},

		{kind: kind{clusterapi.Infrastructure, "*Cluster"}, alternatives: []owners{{{kind: cluster, role: either}}}},
		{kind: infraMachinePool, alternatives: ofPool},
		{kind: kind{clusterapi.Infrastructure, "*Machine"}, alternatives: []owners{
			{{kind: machine, role: controller}}, {{kind: machine, role: controller}, {kind: infraMachinePool}},
			{{kind: machine}, {kind: infraMachinePool, role: controller}}, // Some providers create the machines of their pools.
		}},
		{kind: kind{clusterapi.Infrastructure, "*Template"}, alternatives: ofTemplate, optional: true},

		{kind: kind{"", "Secret"}, shared: true, optional: true, alternatives: []owners{
			{{kind: controlPlane, role: controller}}, {{kind: bootstrapConfig, role: controller}}, {{kind: cluster, role: either}},
			{{kind: resourceSet, several: true}},
		}},
		{kind: kind{"", "ConfigMap"}, shared: true, optional: true, alternatives: []owners{
			{{kind: resourceSet, several: true}}, ofCluster, // the lock of the first machine's initialization
		}},
	},
}
