// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"iter"
	"math"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// specChecker checks one pod spec. It holds the state that rules of different fields share.
type specChecker struct {
	*check.Checker
	spec *v1.PodSpec
	// meta is the pod's metadata; nil for a template, whose pods have no names yet.
	meta *metav1.ObjectMeta
	// volumes holds the valid volumes by name.
	volumes map[string]*v1.VolumeSource
	// claims are the names of spec.resourceClaims.
	claims sets.Set[string]
}

// validateSpec checks the spec at path; meta is nil for a template.
func validateSpec(c *check.Checker, spec *v1.PodSpec, meta *metav1.ObjectMeta, path *field.Path) {
	s := &specChecker{Checker: c, spec: spec, meta: meta, volumes: map[string]*v1.VolumeSource{}, claims: sets.Set[string]{}}
	s.podSpec(path)
}

func (c *specChecker) podSpec(path *field.Path) {
	spec := c.spec
	if spec.TerminationGracePeriodSeconds == nil {
		c.Required(path.Child("terminationGracePeriodSeconds"), "")
	}
	c.allVolumes(path.Child("volumes"))
	c.resourceClaims(path.Child("resourceClaims"))
	c.containers(path.Child("containers"))
	c.initContainers(path.Child("initContainers"))
	c.ephemeralContainers(path.Child("ephemeralContainers"))
	c.podResources(path)

	c.hostNetworkPorts(path.Child("containers"))
	check.RequiredOneOf(c, path.Child("restartPolicy"), spec.RestartPolicy,
		v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	check.RequiredOneOf(c, path.Child("dnsPolicy"), spec.DNSPolicy,
		v1.DNSClusterFirstWithHostNet, v1.DNSClusterFirst, v1.DNSDefault, v1.DNSNone)
	c.Labels(path.Child("nodeSelector"), spec.NodeSelector)
	c.podSecurity(path.Child("securityContext"))
	if spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace && spec.HostPID {
		c.Invalid(path.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	ValidateAffinity(c.Checker, spec.Affinity, path.Child("affinity"))
	c.dns(path.Child("dnsConfig"))
	for i, gate := range spec.ReadinessGates {
		c.QualifiedName(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType))
	}
	c.schedulingGates(path.Child("schedulingGates"))
	validateTopologySpread(c.Checker, spec.TopologySpreadConstraints, path.Child("topologySpreadConstraints"))
	c.hostProcess(path)
	c.hostUsers(path)
	c.hostname(path)
	c.references(path)
	validateTolerations(c.Checker, spec.Tolerations, path.Child("tolerations"), declared)
	c.hostAliases(path.Child("hostAliases"))
	if spec.Overhead != nil {
		ValidateResourceRequirements(c.Checker, &v1.ResourceRequirements{Limits: spec.Overhead}, nil, path.Child("overhead"))
	}
	c.os(path)
	c.schedulingGroup(path.Child("schedulingGroup"))
	c.fileKeyVolumes(path)
}

// references checks fields that name other objects, and a few numbers.
func (c *specChecker) references(path *field.Path) {
	spec := c.spec
	if spec.ServiceAccountName != "" {
		c.Invalid(path.Child("serviceAccountName"), spec.ServiceAccountName,
			apivalidation.ValidateServiceAccountName(spec.ServiceAccountName, false)...)
	}
	if spec.DeprecatedServiceAccount != spec.ServiceAccountName {
		c.Invalid(path.Child("deprecatedServiceAccount"), spec.DeprecatedServiceAccount,
			fmt.Sprintf("must be the same as serviceAccountName: %q", spec.ServiceAccountName))
	}
	c.DNSSubdomainOrEmpty(path.Child("nodeName"), spec.NodeName)
	c.DNSSubdomainOrEmpty(path.Child("priorityClassName"), spec.PriorityClassName)
	c.OptionalDNSSubdomain(path.Child("runtimeClassName"), spec.RuntimeClassName)
	if spec.PreemptionPolicy != nil {
		check.RequiredOneOf(c, path.Child("preemptionPolicy"), *spec.PreemptionPolicy, v1.PreemptLowerPriority, v1.PreemptNever)
	}
	if deadline := spec.ActiveDeadlineSeconds; deadline != nil && (*deadline < 1 || *deadline > math.MaxInt32) {
		c.Invalid(path.Child("activeDeadlineSeconds"), *deadline, validation.InclusiveRangeError(1, math.MaxInt32))
	}
}

// allContainers iterates over the containers of all three lists and their paths.
func allContainers(spec *v1.PodSpec, path *field.Path) iter.Seq2[*field.Path, *v1.Container] {
	return func(yield func(*field.Path, *v1.Container) bool) {
		for i := range spec.InitContainers {
			if !yield(path.Child("initContainers").Index(i), &spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(path.Child("containers").Index(i), &spec.Containers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield(path.Child("ephemeralContainers").Index(i), asContainer(&spec.EphemeralContainers[i])) {
				return
			}
		}
	}
}

// asContainer converts an ephemeral container to a container, which has the same fields.
func asContainer(ephemeral *v1.EphemeralContainer) *v1.Container {
	return (*v1.Container)(&ephemeral.EphemeralContainerCommon)
}
