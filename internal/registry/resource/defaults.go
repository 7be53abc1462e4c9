// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
)

func SetDefaults_ExactDeviceRequest(obj *resourcev1.ExactDeviceRequest) {
	obj.AllocationMode, obj.Count = defaultAmount(obj.AllocationMode, obj.Count)
}

func SetDefaults_DeviceSubRequest(obj *resourcev1.DeviceSubRequest) {
	obj.AllocationMode, obj.Count = defaultAmount(obj.AllocationMode, obj.Count)
}

// defaultAmount defaults to one device.
func defaultAmount(mode resourcev1.DeviceAllocationMode, count int64) (resourcev1.DeviceAllocationMode, int64) {
	mode = cmp.Or(mode, resourcev1.DeviceAllocationModeExactCount)
	if mode == resourcev1.DeviceAllocationModeExactCount {
		count = cmp.Or(count, 1)
	}
	return mode, count
}

// timedDefaults adds the defaults that need a clock, which the generated functions do not have.
func timedDefaults(c clock.PassiveClock) func(*runtime.Scheme) error {
	rule := func(r *resourcev1.DeviceTaintRule) { defaultTimeAdded(&r.Spec.Taint, c) }
	slice := func(s *resourcev1.ResourceSlice) {
		for i := range s.Spec.Devices {
			for j := range s.Spec.Devices[i].Taints {
				defaultTimeAdded(&s.Spec.Devices[i].Taints[j], c)
			}
		}
	}
	return func(scheme *runtime.Scheme) error {
		scheme.AddTypeDefaultingFunc(&resourcev1.DeviceTaintRule{}, func(obj any) { rule(obj.(*resourcev1.DeviceTaintRule)) })
		scheme.AddTypeDefaultingFunc(&resourcev1.DeviceTaintRuleList{}, func(obj any) { eachItem(obj.(*resourcev1.DeviceTaintRuleList).Items, rule) })
		scheme.AddTypeDefaultingFunc(&resourcev1.ResourceSlice{}, func(obj any) { slice(obj.(*resourcev1.ResourceSlice)) })
		scheme.AddTypeDefaultingFunc(&resourcev1.ResourceSliceList{}, func(obj any) { eachItem(obj.(*resourcev1.ResourceSliceList).Items, slice) })
		return nil
	}
}

func eachItem[T any](items []T, do func(*T)) {
	for i := range items {
		do(&items[i])
	}
}

// defaultTimeAdded sets a missing time to now.
func defaultTimeAdded(t *resourcev1.DeviceTaint, c clock.PassiveClock) {
	if t.TimeAdded == nil {
		t.TimeAdded = nowInSeconds(c)
	}
}

// nowInSeconds returns the time in whole seconds, the precision of stored objects.
func nowInSeconds(c clock.PassiveClock) *metav1.Time {
	return &metav1.Time{Time: c.Now().Truncate(time.Second)}
}
