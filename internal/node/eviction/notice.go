// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// notice returns a sentence about a condition of the node that begins to hold: its consequence for pods, and which thresholds are
// met. It is for people who run the node, and may not look at its conditions.
func notice(condition v1.NodeConditionType, met []Threshold, seen Observations) string {
	consequence := "no pod is placed on it"
	if condition == v1.NodeMemoryPressure {
		consequence = "no pod without requests is placed on it" // of the class BestEffort
	}
	var short, amounts []string
	for _, t := range met {
		if t.Signal.condition() != condition {
			continue
		}
		observed := seen[t.Signal]
		least := t.Value.Of(observed.Capacity)
		least.Format = observed.Available.Format
		amount := inMebibytes(observed.Available) + ", less than " + inMebibytes(least)
		if slices.Contains(amounts, amount) {
			continue // another signal of the same file system, or a soft threshold beside a hard one
		}
		amounts, short = append(amounts, amount), append(short, string(t.Signal)+" is "+amount)
	}
	return fmt.Sprintf("has %s: %s until more is free, and pods may be evicted (%s; evictionHard and evictionSoft of a KubeletConfiguration set the limits)",
		condition, consequence, strings.Join(short, ", "))
}

// inMebibytes returns a quantity of bytes rounded down to mebibytes, and a smaller or another one as it is.
func inMebibytes(q resource.Quantity) string {
	if q.Format == resource.BinarySI && q.Value() >= 1<<20 {
		q.Set(q.Value() &^ (1<<20 - 1))
	}
	return q.String()
}
