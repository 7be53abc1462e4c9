// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

// roles are the parts of a Cluster in the order in which its users think of them.
var roles = []ownership.ClusterRole{ownership.RoleInfrastructure, ownership.RoleControlPlane, ownership.RoleWorkers}

var roleNames = map[ownership.ClusterRole]string{
	ownership.RoleInfrastructure: "infrastructure", ownership.RoleControlPlane: "control plane", ownership.RoleWorkers: "workers",
}

// rankOf puts the parts of a Cluster that have a role before its other dependents.
func rankOf(part *ownership.ClusterPart) int {
	if part == nil || part.Role == "" {
		return len(roles)
	}
	return slices.Index(roles, part.Role)
}

// roleNote names the role of a part, its version and its machines: "workers, v1.36.0, 2 of 3 ready, 1 up to date".
func roleNote(part *ownership.ClusterPart) string {
	words := []string{roleNames[part.Role], part.Version}
	if part.Node != "" {
		words = append(words, "node "+part.Node)
	}
	if part.Replicas != nil {
		wanted := *part.Replicas
		words = append(words, fmt.Sprintf("%d of %d ready", ptr.Deref(part.ReadyReplicas, 0), wanted))
		if current := ptr.Deref(part.UpToDateReplicas, wanted); current != wanted {
			words = append(words, fmt.Sprintf("%d up to date", current))
		}
	}
	return strings.Join(nonEmpty(words...), ", ")
}

// isUsual reports whether a finalizer is one that Cluster API and its providers have on all of their objects.
func isUsual(finalizer string) bool {
	domain, _, _ := strings.Cut(finalizer, "/")
	return clusterapi.Has(domain)
}

// conditionNotes names what the conditions of a part say, on one line each.
func conditionNotes(part *ownership.ClusterPart) []string {
	var notes []string
	for _, c := range part.Conditions {
		text := strings.Join(strings.Fields(cmp.Or(c.Message, c.Reason)), " ")
		note := c.Type
		if c.Status != "True" {
			note = "not " + c.Type
		}
		if text != "" {
			note += ": " + text
		}
		notes = append(notes, note)
	}
	return notes
}
