// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package transplant

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Cluster API has one convention for all its groups, and its provider contract obliges
// controllers to it: what has this annotation is left alone.
const (
	ClusterAPIPause = clusterAPI + "/paused"
	clusterAPI      = "cluster.x-k8s.io"
)

// IsClusterAPI is whether a kind is one of Cluster API's or of its providers'.
func IsClusterAPI(kind schema.GroupKind) bool {
	return kind.Group == clusterAPI || strings.HasSuffix(kind.Group, "."+clusterAPI)
}
