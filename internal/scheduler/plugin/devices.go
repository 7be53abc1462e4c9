// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/kindred-project/kindred/internal/scheduler/model"

// devices rejects pods with resource claims (KEP-4381): Kindred does not allocate devices, and a
// pod must not run without them.
type devices struct{}

func (devices) Name() string { return "DynamicResources" }

var unallocated = rejectUnresolvable("cannot allocate all claims")

func (devices) For(_ *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil, nil
	}
	return nil, unallocated
}

// Wakes returns false: a pod's claims never change.
func (devices) Wakes(*model.Cluster, *Event, *model.Pod) bool { return false }
