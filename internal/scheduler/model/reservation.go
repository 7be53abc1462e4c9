// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import "k8s.io/apimachinery/pkg/types"

// Reservation is what must be written to the API, and take effect, before a pod is bound to its
// node (upstream: Reserve and PreBind).
type Reservation struct {
	Volumes VolumePlan
	Devices DevicePlan
}

// IsEmpty reports whether the pod can be bound at once.
func (r *Reservation) IsEmpty() bool { return r.Volumes.IsEmpty() && r.Devices.IsEmpty() }

// Reserve makes a reservation of a pod count for all later decisions.
func (c *Cluster) Reserve(r *Reservation, pod types.UID, node string) error {
	if err := c.Volumes.Assume(&r.Volumes, pod, node); err != nil {
		return err
	}
	c.Devices.assume(&r.Devices, pod, c.membership[pod])
	return nil
}

// Release undoes Reserve. What has been written remains.
func (c *Cluster) Release(r *Reservation, pod types.UID) {
	c.Volumes.Release(&r.Volumes, pod)
	c.Devices.release(&r.Devices, pod)
}
