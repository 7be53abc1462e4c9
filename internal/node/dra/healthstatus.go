// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
)

// healthRetry is the pause after a stream of reports has ended.
const healthRetry = 5 * time.Second

// watchHealth takes a driver's reports until the driver is removed. It gives up if the driver has none.
func (m *Manager) watchHealth(d *driver) {
	for {
		err := m.receiveHealth(d)
		m.notify(d.name, m.health.clear(d.name))
		if d.ctx.Err() != nil || status.Code(err) == codes.Unimplemented {
			return
		}
		klog.FromContext(d.ctx).V(2).Info("The health reports of a DRA driver have ended, will retry", "driver", d.name, "err", err)
		select {
		case <-d.ctx.Done():
			return
		case <-m.options.Clock.After(healthRetry):
		}
	}
}

// receiveHealth takes the reports of one stream until it ends.
func (m *Manager) receiveHealth(d *driver) error {
	stream, err := d.health.NodeWatchResources(d.ctx, &healthv1.NodeWatchResourcesRequest{})
	if err != nil {
		return err
	}
	for {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		m.notify(d.name, m.health.update(d.name, report.GetDevices(), m.options.Clock.Now()))
	}
}

// Health implements pod.Claims.
func (m *Manager) Health(pod *v1.Pod) map[string][]v1.ResourceStatus {
	statuses := map[string][]v1.ResourceStatus{}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		for _, ref := range c.Resources.Claims {
			s := v1.ResourceStatus{Name: resourceName(ref), Resources: m.healthOf(pod, ref)}
			if len(s.Resources) > 0 {
				statuses[c.Name] = append(statuses[c.Name], s)
			}
		}
	}
	return statuses
}

func resourceName(ref v1.ResourceClaim) v1.ResourceName {
	if ref.Request == "" {
		return v1.ResourceName("claim:" + ref.Name)
	}
	return v1.ResourceName("claim:" + ref.Name + "/" + ref.Request)
}

// healthOf returns the health of the devices that a container uses of a claim.
func (m *Manager) healthOf(pod *v1.Pod, ref v1.ResourceClaim) []v1.ResourceHealth {
	at := slices.IndexFunc(pod.Spec.ResourceClaims, func(c v1.PodResourceClaim) bool { return c.Name == ref.Name })
	if at < 0 {
		return nil
	}
	name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[at])
	if err != nil || name == nil {
		return nil
	}
	c, known := m.options.Store.get(pod.Namespace + "/" + *name)
	if !known {
		return nil
	}
	var all []v1.ResourceHealth
	request := resourceclaim.BaseRequestRef(ref.Request)
	for _, driver := range slices.Sorted(maps.Keys(c.Drivers)) {
		for _, d := range c.Drivers[driver] {
			id := d.resourceID(driver)
			seen := slices.ContainsFunc(all, func(h v1.ResourceHealth) bool { return h.ResourceID == id })
			if seen || !d.isFor(request) {
				continue
			}
			now := m.health.get(driver, deviceID{d.Pool, d.Name}, m.options.Clock.Now())
			one := v1.ResourceHealth{ResourceID: id, Health: now.health}
			if now.message != "" {
				one.Message = &now.message
			}
			all = append(all, one)
		}
	}
	return all
}

// resourceID names a device in a pod's status.
func (d device) resourceID(driver string) v1.ResourceID {
	if len(d.CDI) > 0 {
		return v1.ResourceID(d.CDI[0])
	}
	return v1.ResourceID(driver + "/" + d.Pool + "/" + d.Name)
}
