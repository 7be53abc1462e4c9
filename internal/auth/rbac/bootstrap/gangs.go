// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import "slices"

// addGangs adds the rules for PodGroups and Workloads (upstream: the feature gate GenericWorkload).
func (p *Policy) addGangs() {
	p.extend("system:aggregate-to-edit", on(scheduling, "workloads podgroups", write))
	p.extend("system:aggregate-to-view", on(scheduling, "workloads podgroups podgroups/status", read))
	p.extend("system:kube-scheduler", on(scheduling, "podgroups", read), on(scheduling, "podgroups/status", change))
	p.controller("podgroup-protection-controller",
		on(scheduling, "podgroups", read+" update"),
		on(core, "pods", read),
	)
	p.extend("system:controller:resource-claim-controller", on(scheduling, "podgroups", read), on(scheduling, "podgroups/status", change))
}

// extend adds rules to a ClusterRole of the policy.
func (p *Policy) extend(name string, rules ...rule) {
	for i := range p.ClusterRoles {
		if role := &p.ClusterRoles[i]; role.Name == name {
			role.Rules = slices.Concat(role.Rules, policyRules(rules))
		}
	}
}
