// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"

// ProfileOf returns the table of a profile, or nil if there is none.
func ProfileOf(name ownership.LintProfile) *Profile {
	if name == ownership.ProfileClusterAPI {
		return clusterAPI
	}
	return nil
}

// The groups of Cluster API and its providers.
const (
	core           = "cluster.x-k8s.io"
	addons         = "addons.cluster.x-k8s.io"
	runtimeHooks   = "runtime.cluster.x-k8s.io"
	bootstrap      = "bootstrap.cluster.x-k8s.io"
	controlPlanes  = "controlplane.cluster.x-k8s.io"
	infrastructure = "infrastructure.cluster.x-k8s.io"
)

// The kinds that own others. The kinds of providers end as their contracts ask for.
var (
	cluster           = kind{core, "Cluster"}
	clusterClass      = kind{core, "ClusterClass"}
	machine           = kind{core, "Machine"}
	machineSet        = kind{core, "MachineSet"}
	machineDeployment = kind{core, "MachineDeployment"}
	machinePool       = kind{core, "MachinePool"}
	resourceSet       = kind{addons, "ClusterResourceSet"}
	controlPlane      = kind{controlPlanes, "*ControlPlane"}
	bootstrapConfig   = kind{bootstrap, "*Config"}
	infraMachinePool  = kind{infrastructure, "*MachinePool"}
)

// ofCluster are the owners of what a Cluster names or creates.
var ofCluster = owners{{kind: cluster}}

// ofTemplate are the owners of a template: the Clusters whose parts name it, or the classes that do.
var ofTemplate = []owners{{{kind: cluster, several: true}}, {{kind: clusterClass, several: true}}}

// ofPool are the owners of what a provider has for a MachinePool.
var ofPool = owners{{kind: machinePool, role: controller}, {kind: cluster}}

// clusterAPI is the table of Cluster API's document "Owner References" as v1.14's controllers keep it: docs/cluster-api.md lists the
// differences. What a user creates without its usual owner, as a MachineSet without a MachineDeployment, is owned by the Cluster.
var clusterAPI = &Profile{
	project: "Cluster API", root: cluster, rootLabel: "cluster.x-k8s.io/cluster-name",
	rows: []row{
		{kind: kind{runtimeHooks, "ExtensionConfig"}, alternatives: []owners{{}}},
		{kind: clusterClass, alternatives: []owners{{}}},
		{kind: cluster, alternatives: []owners{{}}},
		{kind: machineDeployment, alternatives: []owners{ofCluster}},
		{kind: machineSet, alternatives: []owners{{{kind: machineDeployment, role: controller}}, ofCluster}},
		{kind: machine, alternatives: []owners{
			{{kind: machineSet, role: controller}}, {{kind: controlPlane, role: controller}}, {{kind: machinePool, role: controller}}, ofCluster,
		}},
		{kind: kind{core, "MachineHealthCheck"}, alternatives: []owners{ofCluster}},
		{kind: machinePool, alternatives: []owners{ofCluster}},

		{kind: resourceSet, alternatives: []owners{{}}},
		{kind: kind{addons, "ClusterResourceSetBinding"}, alternatives: []owners{{{kind: resourceSet, several: true}}}},

		{kind: controlPlane, alternatives: []owners{{{kind: cluster, role: either}}}},
		{kind: kind{controlPlanes, "*ControlPlaneTemplate"}, alternatives: ofTemplate, optional: true},

		{kind: bootstrapConfig, alternatives: []owners{{{kind: machine, role: controller}}, ofPool}},
		{kind: kind{bootstrap, "*ConfigTemplate"}, alternatives: ofTemplate, optional: true},

		{kind: kind{infrastructure, "*Cluster"}, alternatives: []owners{{{kind: cluster, role: either}}}},
		{kind: infraMachinePool, alternatives: []owners{ofPool}},
		{kind: kind{infrastructure, "*Machine"}, alternatives: []owners{
			{{kind: machine, role: controller}}, {{kind: machine, role: controller}, {kind: infraMachinePool}},
			{{kind: machine}, {kind: infraMachinePool, role: controller}}, // Some providers create the machines of their pools.
		}},
		{kind: kind{infrastructure, "*Template"}, alternatives: ofTemplate, optional: true},

		{kind: kind{"", "Secret"}, shared: true, optional: true, alternatives: []owners{
			{{kind: controlPlane, role: controller}}, {{kind: bootstrapConfig, role: controller}}, {{kind: cluster, role: either}},
			{{kind: resourceSet, several: true}},
		}},
		{kind: kind{"", "ConfigMap"}, shared: true, optional: true, alternatives: []owners{{{kind: resourceSet, several: true}}}},
	},
}
