// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestCheckAppArmor(t *testing.T) {
	profile := func(kind v1.AppArmorProfileType) *v1.AppArmorProfile { return &v1.AppArmorProfile{Type: kind} }
	ofPod := func(p *v1.AppArmorProfile) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{AppArmorProfile: p}}}
	}
	ofContainer := func(p *v1.AppArmorProfile) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{SecurityContext: &v1.SecurityContext{AppArmorProfile: p}}}}}
	}
	for name, test := range map[string]struct {
		pod     *v1.Pod
		enabled bool
		refused bool
	}{
		"none":                  {&v1.Pod{}, false, false},
		"unconfined":            {ofPod(profile(v1.AppArmorProfileTypeUnconfined)), false, false},
		"default of pod":        {ofPod(profile(v1.AppArmorProfileTypeRuntimeDefault)), false, true},
		"localhost":             {ofContainer(profile(v1.AppArmorProfileTypeLocalhost)), false, true},
		"unconfined container":  {ofContainer(profile(v1.AppArmorProfileTypeUnconfined)), false, false},
		"localhost, kernel has": {ofContainer(profile(v1.AppArmorProfileTypeLocalhost)), true, false},
	} {
		refusal := CheckAppArmor(test.pod, test.enabled)
		if (refusal != nil) != test.refused {
			t.Errorf("%s: %v", name, refusal)
		}
		if refusal != nil && (refusal.Reason != "AppArmor" || refusal.Message != "Cannot enforce AppArmor: AppArmor is not enabled on the host") {
			t.Errorf("%s: %+v", name, refusal)
		}
	}
}
