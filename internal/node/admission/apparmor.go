// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// CheckAppArmor refuses a pod that asks for an AppArmor profile if the node's kernel does not enforce any.
func CheckAppArmor(p *v1.Pod, enabled bool) *pod.Refusal {
	if enabled || !asksForAppArmor(p) {
		return nil
	}
	return &pod.Refusal{Reason: "AppArmor", Message: "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
}

// asksForAppArmor reports whether the pod or one of its containers is to have a profile. The API has copied annotations, an
// older form, to the fields.
func asksForAppArmor(p *v1.Pod) bool {
	confined := func(profile *v1.AppArmorProfile) bool {
		return profile != nil && profile.Type != v1.AppArmorProfileTypeUnconfined
	}
	if sc := p.Spec.SecurityContext; sc != nil && confined(sc.AppArmorProfile) {
		return true
	}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if sc := list[i].SecurityContext; sc != nil && confined(sc.AppArmorProfile) {
				return true
			}
		}
	}
	return false
}
