// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClassFor returns the DeviceClass whose devices satisfy requests for an extended resource
// (KEP-5004), or nil. Of classes with the same resource the newest counts, and then the first by name.
func (d *Devices) ClassFor(name v1.ResourceName) *resourcev1.DeviceClass {
	if class, implicit := strings.CutPrefix(string(name), resourcev1.ResourceDeviceClassPrefix); implicit {
		return d.Classes[class]
	}
	var best *resourcev1.DeviceClass
	for _, class := range d.Classes {
		resource := class.Spec.ExtendedResourceName
		if resource == nil || *resource != string(name) {
			continue
		}
		if best == nil || compareClasses(class, best) < 0 {
			best = class
		}
	}
	return best
}

func compareClasses(a, b *resourcev1.DeviceClass) int {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// ExtendedClaim returns the claim that was made for the extended resources of a pod, or nil.
func (d *Devices) ExtendedClaim(pod *Pod) *resourcev1.ResourceClaim {
	for _, claim := range d.claims {
		if IsExtended(claim) && claim.Namespace == pod.Namespace && metav1.IsControlledBy(claim, pod) {
			return claim
		}
	}
	return nil
}

// IsExtended reports whether a claim was made for extended resources.
func IsExtended(claim *resourcev1.ResourceClaim) bool {
	return claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true"
}

// ExtendedPlan is the claim for the extended resources of a pod.
type ExtendedPlan struct {
	// Claim is what is created, and then what was created.
	Claim      *resourcev1.ResourceClaim
	Allocation *resourcev1.AllocationResult
	// Mappings are the requests of the claim that each container uses.
	Mappings []v1.ContainerExtendedResourceRequest
}
