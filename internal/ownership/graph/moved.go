// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import "k8s.io/apimachinery/pkg/runtime/schema"

// moved holds the kinds that were in the group extensions first. An object is the same in both
// groups, so references to the old group are references to the new one, whether or not the old
// group is served.
var moved = map[string]string{
	"DaemonSet": "apps", "Deployment": "apps", "ReplicaSet": "apps",
	"Ingress": "networking.k8s.io", "NetworkPolicy": "networking.k8s.io",
}

// Current returns the group and kind that a kind has today.
func Current(kind schema.GroupKind) schema.GroupKind {
	if group, ok := moved[kind.Kind]; ok && kind.Group == "extensions" {
		kind.Group = group
	}
	return kind
}
