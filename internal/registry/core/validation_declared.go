// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The generated validations call a ValidateCustom_<Type>_<Field> function for
// each field that k8s.io/api marks +k8s:customValidation.

// DeclaredOptions returns the features that declared validations depend on, and whether they are
// enabled. rest.DeclarativeValidation refuses an object whose validations depend on any other
// feature. The disabled ones are disabled by default in Kubernetes v1.37.
func DeclaredOptions() map[string]bool {
	return map[string]bool{
		"InPlacePodVerticalScalingSchedulerPreemption": false,
		"HPAScaleToZero":                  true,
		"WorkloadWithJob":                 false,
		"DRAPartitionableDevicesType":     false,
		"TopologyAwareWorkloadScheduling": false,
		"DRAWorkloadResourceClaims":       false,
		"PodGroupPreemptionPolicy":        false,
		"CompositePodGroup":               false,
	}
}

// Priorities below reservedResponderPriorities are reserved for Kubernetes' own eviction
// responders, which a pod must not name.
const reservedResponderPriorities = 1000

func ValidateCustom_EvictionResponder_Name(_ context.Context, _ operation.Operation, path *field.Path, name, _ *string) field.ErrorList {
	if name == nil {
		return nil
	}
	domain, _, _ := strings.Cut(*name, "/")
	domain = strings.TrimRight(strings.TrimSpace(strings.ToLower(domain)), ".")
	for _, reserved := range []string{"k8s.io", "kubernetes.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return field.ErrorList{field.Invalid(path, *name, "domain names *.k8s.io, *.kubernetes.io are reserved")}
		}
	}
	return nil
}

func ValidateCustom_EvictionResponder_Priority(_ context.Context, _ operation.Operation, path *field.Path, priority, _ *int32) field.ErrorList {
	if priority == nil || *priority < 0 || *priority >= reservedResponderPriorities {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *priority, "priorities 0-999 are reserved for responders with *.k8s.io suffix")}
}
