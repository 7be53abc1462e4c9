// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// Annotations that v1 gave a meaning before there were fields for it.

// isMirror reports whether the kubelet made the pod to represent a static pod.
func isMirror(meta *metav1.ObjectMeta) bool {
	_, found := meta.Annotations[v1.MirrorPodAnnotationKey]
	return found
}

// validateAnnotations checks the annotations of a pod or a template.
func validateAnnotations(c *check.Checker, annotations map[string]string, spec *v1.PodSpec, path *field.Path) {
	if value, mirror := annotations[v1.MirrorPodAnnotationKey]; mirror && spec.NodeName == "" {
		c.Invalid(path.Key(v1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set")
	}
	validateAnnotatedTolerations(c, annotations[v1.TolerationsAnnotationKey], path)
	if cost, found := annotations[v1.PodDeletionCost]; found && !isDeletionCost(cost) {
		c.Invalid(path.Key(v1.PodDeletionCost), cost, "must be a 32bit integer")
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		validateAnnotatedProfile(c, key, annotations[key], spec, path)
	}
}

func validateAnnotatedTolerations(c *check.Checker, value string, path *field.Path) {
	if value == "" {
		return
	}
	var tolerations []v1.Toleration
	if err := json.Unmarshal([]byte(value), &tolerations); err != nil {
		c.Invalid(path, v1.TolerationsAnnotationKey, err.Error())
		return
	}
	validateTolerations(c, tolerations, path.Child(v1.TolerationsAnnotationKey), undeclared)
}

// isDeletionCost reports whether value is a 32-bit decimal number without a plus sign or leading
// zeros.
func isDeletionCost(value string) bool {
	_, err := strconv.ParseInt(value, 10, 32)
	return err == nil && (value == "0" || value[0] != '0' && value[0] != '+')
}

func validateAnnotatedProfile(c *check.Checker, key, profile string, spec *v1.PodSpec, path *field.Path) {
	if key == v1.SeccompPodAnnotationKey || strings.HasPrefix(key, v1.SeccompContainerAnnotationKeyPrefix) {
		validateAnnotatedSeccomp(c, profile, path.Child(key))
	}
	name, isAppArmor := strings.CutPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
	if !isAppArmor {
		return
	}
	if !hasContainer(spec, name) {
		c.Invalid(path.Key(key), name, "container not found")
	}
	switch {
	case profile == "", profile == v1.DeprecatedAppArmorBetaProfileRuntimeDefault, profile == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
	case strings.HasPrefix(profile, v1.DeprecatedAppArmorBetaProfileNamePrefix):
	default:
		c.Invalid(path.Key(key), profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile))
	}
}

func validateAnnotatedSeccomp(c *check.Checker, profile string, path *field.Path) {
	switch profile {
	case v1.SeccompProfileRuntimeDefault, v1.DeprecatedSeccompProfileDockerDefault, v1.SeccompProfileNameUnconfined:
		return
	}
	file, isLocal := strings.CutPrefix(profile, v1.SeccompLocalhostProfileNamePrefix)
	if !isLocal {
		c.Invalid(path, profile, "must be a valid seccomp profile")
		return
	}
	c.RelativePath(path, file)
}

func hasContainer(spec *v1.PodSpec, name string) bool {
	for _, container := range allContainers(spec, nil) {
		if container.Name == name {
			return true
		}
	}
	return false
}

// validateProfilesMatch requires that an annotation and the field that replaced it agree.
func validateProfilesMatch(c *check.Checker, annotations map[string]string, spec *v1.PodSpec, path *field.Path) {
	podSecurity := spec.SecurityContext
	if podSecurity != nil {
		validateSeccompMatches(c, annotations, v1.SeccompPodAnnotationKey, podSecurity.SeccompProfile, path.Child("securityContext", "seccompProfile"))
	}
	for at, container := range allContainers(spec, path) {
		security := container.SecurityContext
		if security != nil {
			validateSeccompMatches(c, annotations, v1.SeccompContainerAnnotationKeyPrefix+container.Name, security.SeccompProfile, at.Child("securityContext", "seccompProfile"))
		}
		if isWindows(spec) {
			continue
		}
		var profile *v1.AppArmorProfile
		switch {
		case security != nil && security.AppArmorProfile != nil:
			profile = security.AppArmorProfile
		case podSecurity != nil:
			profile = podSecurity.AppArmorProfile
		}
		validateAppArmorMatches(c, annotations, container.Name, profile, at.Child("securityContext", "appArmorProfile"))
	}
}

func validateSeccompMatches(c *check.Checker, annotations map[string]string, key string, profile *v1.SeccompProfile, path *field.Path) {
	value, found := annotations[key]
	if !found || profile == nil {
		return
	}
	matches := true
	switch profile.Type {
	case v1.SeccompProfileTypeUnconfined:
		matches = value == v1.SeccompProfileNameUnconfined
	case v1.SeccompProfileTypeRuntimeDefault:
		matches = value == v1.SeccompProfileRuntimeDefault || value == v1.DeprecatedSeccompProfileDockerDefault
	case v1.SeccompProfileTypeLocalhost:
		validateLocalhostMatches(c, value, v1.SeccompLocalhostProfileNamePrefix, profile.LocalhostProfile, "seccomp", path)
	}
	if !matches {
		c.Forbidden(path.Child("type"), "seccomp type in annotation and field must match")
	}
}

func validateAppArmorMatches(c *check.Checker, annotations map[string]string, container string, profile *v1.AppArmorProfile, path *field.Path) {
	value, found := annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container]
	if !found || profile == nil {
		return
	}
	matches := true
	switch profile.Type {
	case v1.AppArmorProfileTypeUnconfined:
		matches = value == v1.DeprecatedAppArmorBetaProfileNameUnconfined
	case v1.AppArmorProfileTypeRuntimeDefault:
		matches = value == v1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case v1.AppArmorProfileTypeLocalhost:
		validateLocalhostMatches(c, value, v1.DeprecatedAppArmorBetaProfileNamePrefix, profile.LocalhostProfile, "apparmor", path)
	}
	if !matches {
		c.Forbidden(path.Child("type"), "apparmor type in annotation and field must match")
	}
}

func validateLocalhostMatches(c *check.Checker, value, prefix string, profile *string, what string, path *field.Path) {
	name, isLocal := strings.CutPrefix(value, prefix)
	switch {
	case !isLocal:
		c.Forbidden(path.Child("type"), what+" type in annotation and field must match")
	case profile == nil || name != *profile:
		c.Forbidden(path.Child("localhostProfile"), what+" profile in annotation and field must match")
	}
}
