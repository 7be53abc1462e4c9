// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package devicetaint

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
)

// devices are the published devices, and the rules that taint them.
type devices struct {
	slices []resourcev1.ResourceSlice
	rules  []resourcev1.DeviceTaintRule
}

// eviction tells when a pod is evicted, and because of which rules.
type eviction struct {
	at    time.Time
	rules []types.UID
}

// join returns the earlier time, with the rules of both.
func (e *eviction) join(other *eviction) *eviction {
	switch {
	case e == nil:
		return other
	case other == nil:
		return e
	}
	joined := &eviction{at: e.at, rules: slices.Clone(e.rules)}
	if other.at.Before(joined.at) {
		joined.at = other.at
	}
	for _, rule := range other.rules {
		if !slices.Contains(joined.rules, rule) {
			joined.rules = append(joined.rules, rule)
		}
	}
	return joined
}

// podEviction returns when a pod is evicted from the devices of its claims; nil if it may stay. The claims are those
// of the pod's namespace, by name.
func (d devices) podEviction(pod *corev1.Pod, claim func(name string) *resourcev1.ResourceClaim, gangs bool) *eviction {
	if pod.Spec.NodeName == "" {
		return nil
	}
	var e *eviction
	for i := range pod.Spec.ResourceClaims {
		name, checkOwner, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue // not created yet, or not needed
		}
		c := claim(*name)
		if c == nil || c.Status.Allocation == nil || !resourceclaim.IsReservedForPod(pod, c, gangs) ||
			checkOwner && resourceclaim.IsForPod(pod, c, gangs) != nil {
			continue
		}
		e = e.join(d.claimEviction(c))
	}
	return e
}

// claimEviction returns when the pods of an allocated claim are evicted; nil if they may stay.
func (d devices) claimEviction(claim *resourcev1.ResourceClaim) *eviction {
	var e *eviction
	for i := range claim.Status.Allocation.Devices.Results {
		result := &claim.Status.Allocation.Devices.Results[i]
		if device := d.find(result); device != nil {
			for j := range device.Taints {
				e = e.join(evictionBy(&device.Taints[j], result.Tolerations))
			}
		}
		for j := range d.rules {
			if !selects(&d.rules[j], result) {
				continue
			}
			by := evictionBy(&d.rules[j].Spec.Taint, result.Tolerations)
			if by != nil {
				by.rules = []types.UID{d.rules[j].UID}
			}
			e = e.join(by)
		}
	}
	return e
}

// evictionBy returns when a taint evicts; nil if it does not. Of several tolerations for a time, the shortest counts.
func evictionBy(taint *resourcev1.DeviceTaint, tolerations []resourcev1.DeviceToleration) *eviction {
	if taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
		return nil
	}
	var tolerated *int64
	for _, t := range tolerations {
		if t.Effect != resourcev1.DeviceTaintEffectNoExecute || !resourceclaim.ToleratesTaint(t, *taint) {
			continue
		}
		if t.TolerationSeconds == nil {
			return nil
		}
		seconds := max(*t.TolerationSeconds, 0)
		if tolerated == nil || seconds < *tolerated {
			tolerated = &seconds
		}
	}
	var at time.Time // the API sets it; without it, the taint has always been there
	if taint.TimeAdded != nil {
		at = taint.TimeAdded.Time
	}
	return &eviction{at: at.Add(time.Duration(ptr.Deref(tolerated, 0)) * time.Second)}
}

// find returns an allocated device as its driver publishes it now; nil if it does not.
func (d devices) find(result *resourcev1.DeviceRequestAllocationResult) *resourcev1.Device {
	var found *resourcev1.Device
	newest := int64(-1)
	for i := range d.slices {
		spec := &d.slices[i].Spec
		if spec.Driver != result.Driver || spec.Pool.Name != result.Pool || spec.Pool.Generation < newest {
			continue
		}
		if spec.Pool.Generation > newest {
			newest, found = spec.Pool.Generation, nil
		}
		if at := slices.IndexFunc(spec.Devices, func(device resourcev1.Device) bool { return device.Name == result.Device }); at >= 0 {
			found = &spec.Devices[at]
		}
	}
	return found
}

// published returns the number of published devices that a rule selects.
func (d devices) published(rule *resourcev1.DeviceTaintRule) (n int) {
	newest := map[[2]string]int64{}
	for i := range d.slices {
		pool := &d.slices[i].Spec.Pool
		key := [2]string{d.slices[i].Spec.Driver, pool.Name}
		newest[key] = max(newest[key], pool.Generation)
	}
	for i := range d.slices {
		spec := &d.slices[i].Spec
		if spec.Pool.Generation < newest[[2]string{spec.Driver, spec.Pool.Name}] {
			continue
		}
		for _, device := range spec.Devices {
			if selects(rule, &resourcev1.DeviceRequestAllocationResult{Driver: spec.Driver, Pool: spec.Pool.Name, Device: device.Name}) {
				n++
			}
		}
	}
	return n
}

// selects reports whether a rule taints a device.
func selects(rule *resourcev1.DeviceTaintRule, device *resourcev1.DeviceRequestAllocationResult) bool {
	s := rule.Spec.DeviceSelector
	return s != nil && ptr.Deref(s.Driver, device.Driver) == device.Driver &&
		ptr.Deref(s.Pool, device.Pool) == device.Pool && ptr.Deref(s.Device, device.Device) == device.Device
}

// allocated returns the number of a claim's devices that a rule selects.
func allocated(rule *resourcev1.DeviceTaintRule, claim *resourcev1.ResourceClaim) (n int) {
	if claim.Status.Allocation == nil {
		return 0
	}
	for i := range claim.Status.Allocation.Devices.Results {
		if selects(rule, &claim.Status.Allocation.Devices.Results[i]) {
			n++
		}
	}
	return n
}

// tainted reports whether a slice has a device with a taint that evicts.
func tainted(slice *resourcev1.ResourceSlice) bool {
	return slices.ContainsFunc(slice.Spec.Devices, func(d resourcev1.Device) bool {
		return slices.ContainsFunc(d.Taints, func(t resourcev1.DeviceTaint) bool { return t.Effect == resourcev1.DeviceTaintEffectNoExecute })
	})
}
