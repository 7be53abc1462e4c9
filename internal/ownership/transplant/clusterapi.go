// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package transplant

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ClusterAPIPause is the annotation that pauses the controllers of Cluster API and its providers
// for an object. Cluster API's provider contract requires them to honor it.
const (
	ClusterAPIPause = clusterAPI + "/paused"
	clusterAPI      = "cluster.x-k8s.io"
)

// IsClusterAPI reports whether a kind belongs to Cluster API or one of its providers.
func IsClusterAPI(kind schema.GroupKind) bool {
	return kind.Group == clusterAPI || strings.HasSuffix(kind.Group, "."+clusterAPI)
}
