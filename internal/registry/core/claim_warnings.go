// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ClaimSpecWarnings tells of sizes that are no whole number of bytes, in a claim
// or in the template of one.
func ClaimSpecWarnings(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) []string {
	resources := path.Child("resources")
	return append(fractionOfByte(spec.Resources.Requests, resources.Child("requests")),
		fractionOfByte(spec.Resources.Limits, resources.Child("limits"))...)
}

func fractionOfByte(list corev1.ResourceList, path *field.Path) []string {
	storage := list[corev1.ResourceStorage]
	if storage.MilliValue()%1000 == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer", path.Key(string(corev1.ResourceStorage)), storage.String())}
}
