// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// Prepare implements pod.Claims. Nothing is recorded before all claims can be prepared: a pod without its
// claims or drivers can be deleted although no driver ever unprepares anything.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) error {
	if err := m.prepare(ctx, pod); err != nil {
		return fmt.Errorf("prepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) prepare(ctx context.Context, pod *v1.Pod) error {
	wanted, err := m.wantedBy(ctx, pod)
	if err != nil {
		return err
	}
	found, err := m.driversFor(wanted)
	if err != nil {
		return err
	}
	unlock, err := m.locks.lock(ctx, keysOf(wanted))
	if err != nil {
		return err
	}
	defer unlock()
	var todo []claim
	for _, c := range wanted {
		c, err := m.attach(c, pod)
		if err != nil {
			return err
		}
		if !c.prepared {
			todo = append(todo, c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if err := m.callPrepare(ctx, found[name], todo); err != nil {
			return err
		}
	}
	for _, c := range todo {
		c.prepared = true
		if err := m.options.Store.write(c); err != nil {
			return err
		}
	}
	return nil
}

// wantedBy returns the claims that must be prepared for a pod, each once.
func (m *Manager) wantedBy(ctx context.Context, pod *v1.Pod) ([]claim, error) {
	var wanted []claim
	for _, ref := range claimsOf(pod) {
		name, checkOwner, err := resourceclaim.Name(pod, &ref)
		if err != nil {
			return nil, err
		}
		if name == nil {
			continue // the pod needs none
		}
		object, err := m.options.Client.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, *name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("fetch ResourceClaim %s: %w", *name, err)
		}
		if err := checkUse(pod, object, checkOwner); err != nil {
			return nil, err
		}
		c := claim{UID: object.UID, Namespace: object.Namespace, Name: object.Name, Drivers: driversOf(object)}
		if !slices.ContainsFunc(wanted, func(other claim) bool { return other.Name == c.Name }) {
			wanted = append(wanted, c)
		}
	}
	return wanted, nil
}

// checkUse returns why a pod must not use a claim.
func checkUse(pod *v1.Pod, object *resourcev1.ResourceClaim, checkOwner bool) error {
	if checkOwner {
		if err := resourceclaim.IsForPod(pod, object, true); err != nil {
			return err
		}
	}
	if !resourceclaim.IsReservedForPod(pod, object, true) {
		return fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, object.Name, object.UID)
	}
	if object.Status.Allocation == nil {
		return fmt.Errorf("ResourceClaim %s: %w", object.Name, errors.New("not allocated"))
	}
	return nil
}

// driversFor returns the drivers of the claims. They must all be registered, even if the claims are prepared:
// something is wrong with the node otherwise.
func (m *Manager) driversFor(wanted []claim) (map[string]*driver, error) {
	found := map[string]*driver{}
	for _, c := range wanted {
		for name := range c.Drivers {
			d, err := m.drivers.get(name)
			if err != nil {
				return nil, err
			}
			found[name] = d
		}
	}
	return found, nil
}

// attach records that a pod uses a claim, before any driver is asked to prepare it.
func (m *Manager) attach(wanted claim, pod *v1.Pod) (claim, error) {
	c, known := m.options.Store.get(wanted.key())
	switch {
	case !known:
		c = wanted
	case c.UID != wanted.UID:
		return claim{}, fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists (previous pod force-deleted?!)", c.Name, c.UID)
	case c.unpreparing:
		return claim{}, fmt.Errorf("ResourceClaim %s is being unprepared", c.Name)
	}
	if c.isFor(pod.UID) {
		return c, nil
	}
	c.Pods = append(slices.Clone(c.Pods), pod.UID)
	return c, m.options.Store.write(c)
}

// callPrepare has a driver prepare its claims among several, and notes the devices in them. The driver's
// answer replaces that of an earlier attempt.
func (m *Manager) callPrepare(ctx context.Context, d *driver, claims []claim) error {
	request := requestFor(d.name, claims)
	if len(request) == 0 {
		return nil
	}
	response, err := d.prepare(ctx, request)
	if err != nil {
		return fmt.Errorf("NodePrepareResources: %w", err)
	}
	if err := checkResponse("NodePrepareResources", request, response); err != nil {
		return err
	}
	for i := range claims {
		result, asked := response[string(claims[i].UID)]
		if !asked {
			continue
		}
		claims[i].Drivers = maps.Clone(claims[i].Drivers)
		claims[i].Drivers[d.name] = devicesIn(result)
	}
	return nil
}

func devicesIn(result *drapb.NodePrepareResourceResponse) []device {
	var devices []device
	for _, d := range result.GetDevices() {
		devices = append(devices, device{
			Pool: d.GetPoolName(), Name: d.GetDeviceName(), Share: d.ShareId, Requests: d.GetRequestNames(), CDI: d.GetCdiDeviceIds(),
		})
	}
	return devices
}

// requestFor returns the claims that have devices of a driver, as the driver gets them.
func requestFor(driver string, claims []claim) []*drapb.Claim {
	var request []*drapb.Claim
	for _, c := range claims {
		if _, has := c.Drivers[driver]; has {
			request = append(request, &drapb.Claim{Namespace: c.Namespace, Uid: string(c.UID), Name: c.Name})
		}
	}
	return request
}

// checkResponse returns an error unless a driver has done what a call asked for, for each claim.
func checkResponse[R interface{ GetError() string }](call string, request []*drapb.Claim, response map[string]R) error {
	names := map[string]string{}
	for _, c := range request {
		names[c.Uid] = c.Name
	}
	for _, uid := range slices.Sorted(maps.Keys(response)) {
		name, asked := names[uid]
		if !asked {
			return fmt.Errorf("%s returned result for unknown claim UID %s", call, uid)
		}
		if problem := response[uid].GetError(); problem != "" {
			return fmt.Errorf("%s failed for ResourceClaim %s: %s", call, name, problem)
		}
	}
	if skipped := len(request) - len(response); skipped != 0 {
		return fmt.Errorf("%s skipped %d ResourceClaims", call, skipped)
	}
	return nil
}

func keysOf(claims []claim) []string {
	keys := make([]string, 0, len(claims))
	for _, c := range claims {
		keys = append(keys, c.key())
	}
	return keys
}
