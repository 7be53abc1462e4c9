// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func (c *specChecker) containers(path *field.Path) {
	if len(c.spec.Containers) == 0 {
		c.Required(path, "")
		return
	}
	names := sets.Set[string]{}
	hostPorts := sets.Set[string]{}
	for i := range c.spec.Containers {
		container, at := &c.spec.Containers[i], path.Index(i)
		c.container(container, at)
		check.Unique(c, at.Child("name"), names, container.Name)
		c.lifecycle(container.Lifecycle, at.Child("lifecycle"))
		c.probes(container, at)
		validateRestartPolicy(c.Checker, container, at)
		validateHostPorts(c.Checker, container.Ports, at.Child("ports"), hostPorts)
	}
}

// initContainers checks the init containers. Those with restartPolicy Always are sidecars
// (KEP-753), which have the lifecycle of ordinary containers.
func (c *specChecker) initContainers(path *field.Path) {
	names := sets.Set[string]{}
	for _, container := range c.spec.Containers {
		names.Insert(container.Name)
	}
	for i := range c.spec.InitContainers {
		container, at := &c.spec.InitContainers[i], path.Index(i)
		c.container(container, at)
		if container.RestartPolicy != nil {
			validateRestartPolicy(c.Checker, container, at)
		} else if len(container.RestartPolicyRules) > 0 {
			c.Required(at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used")
		}
		if container.Name != "" || names.Has("") {
			check.Unique(c, at.Child("name"), names, container.Name)
		}
		// Each has the ports to itself, so it conflicts with itself only.
		validateHostPorts(c.Checker, container.Ports, path.Index(0).Child("ports"), sets.Set[string]{})
		if isSidecar(container) {
			c.lifecycle(container.Lifecycle, at.Child("lifecycle"))
			c.probes(container, at)
			continue
		}
		c.onlyForSidecars(container, at)
	}
}

func isSidecar(init *v1.Container) bool {
	return init.RestartPolicy != nil && *init.RestartPolicy == v1.ContainerRestartPolicyAlways
}

func (c *specChecker) onlyForSidecars(container *v1.Container, path *field.Path) {
	const detail = "may not be set for init containers without restartPolicy=Always"
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"lifecycle", container.Lifecycle != nil},
		{"livenessProbe", container.LivenessProbe != nil},
		{"readinessProbe", container.ReadinessProbe != nil},
		{"startupProbe", container.StartupProbe != nil},
	} {
		if f.set {
			c.Forbidden(path.Child(f.name), detail)
		}
	}
	for i, policy := range container.ResizePolicy {
		if policy.RestartPolicy == v1.RestartContainer {
			c.Invalid(path.Child("resizePolicy").Index(i).Child("restartPolicy"), policy.RestartPolicy,
				"must not be set to 'RestartContainer' for non-sidecar initContainers")
		}
	}
}

// allowedInEphemeral lists the fields that an ephemeral container may set. It names the allowed
// fields, so that a field that upstream adds to containers stays forbidden until it is reviewed.
var allowedInEphemeral = sets.New(
	"Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env",
	"VolumeMounts", "VolumeDevices", "TerminationMessagePath", "TerminationMessagePolicy",
	"ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY")

// ephemeralContainers checks containers for debugging. They have no ports, resources, probes or
// hooks, because nothing may rely on them.
func (c *specChecker) ephemeralContainers(path *field.Path) {
	if len(c.spec.EphemeralContainers) == 0 {
		return
	}
	const detail = "cannot be set for an Ephemeral Container"
	names, targets := sets.Set[string]{}, sets.Set[string]{}
	for _, containers := range [][]v1.Container{c.spec.Containers, c.spec.InitContainers} {
		for _, container := range containers {
			names.Insert(container.Name)
			targets.Insert(container.Name)
		}
	}
	for i := range c.spec.EphemeralContainers {
		ephemeral, at := &c.spec.EphemeralContainers[i], path.Index(i)
		container := asContainer(ephemeral)
		c.container(container, at)
		validateTrimmedImage(c.Checker, container, at)
		check.Unique(c, at.Child("name"), names, ephemeral.Name)
		if target := ephemeral.TargetContainerName; target != "" && !targets.Has(target) {
			c.Add(field.NotFound(at.Child("targetContainerName"), target))
		}
		c.OnlyFields(at, ephemeral.EphemeralContainerCommon, allowedInEphemeral, detail)
		// The bind mount of a subpath would stay until the pod ends.
		for j, mount := range ephemeral.VolumeMounts {
			mountPath := at.Child("volumeMounts").Index(j)
			if mount.SubPath != "" {
				c.Forbidden(mountPath.Child("subPath"), detail)
			}
			if mount.SubPathExpr != "" {
				c.Forbidden(mountPath.Child("subPathExpr"), detail)
			}
		}
	}
}

// container checks what containers of all three lists have in common.
func (c *specChecker) container(container *v1.Container, path *field.Path) {
	c.RequiredDNSLabel(path.Child("name"), container.Name)
	c.NonEmpty(path.Child("image"), container.Image)
	check.RequiredOneOf(c, path.Child("terminationMessagePolicy"), container.TerminationMessagePolicy,
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	validatePorts(c.Checker, container.Ports, path.Child("ports"))
	ValidateEnv(c.Checker, container.Env, path.Child("env"))
	validateEnvFrom(c.Checker, container.EnvFrom, path.Child("envFrom"))
	c.volumeMounts(container, path.Child("volumeMounts"))
	c.volumeDevices(container, path.Child("volumeDevices"))
	validatePullPolicy(c.Checker, container.ImagePullPolicy, path.Child("imagePullPolicy"))
	ValidateResourceRequirements(c.Checker, &container.Resources, c.claims, path.Child("resources"))
	c.resizePolicy(container.ResizePolicy, path.Child("resizePolicy"))
	c.containerSecurity(container.SecurityContext, path.Child("securityContext"))
}

func validatePullPolicy(c *check.Checker, policy v1.PullPolicy, path *field.Path) {
	check.RequiredOneOf(c, path, policy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
}

// validateTrimmedImage applies to pods only: a template may have a blank image, which admission or
// a controller fills in.
func validateTrimmedImage(c *check.Checker, container *v1.Container, path *field.Path) {
	if strings.TrimSpace(container.Image) != container.Image {
		c.Invalid(path.Child("image"), container.Image, "must not have leading or trailing whitespace")
	}
}

func (c *specChecker) resizePolicy(policies []v1.ContainerResizePolicy, path *field.Path) {
	seen := sets.Set[v1.ResourceName]{}
	for i, policy := range policies {
		check.Unique(c, path.Index(i), seen, policy.ResourceName)
		check.RequiredOneOf(c, path, policy.ResourceName, v1.ResourceCPU, v1.ResourceMemory)
		check.RequiredOneOf(c, path, policy.RestartPolicy, v1.NotRequired, v1.RestartContainer)
		if c.spec.RestartPolicy == v1.RestartPolicyNever && policy.RestartPolicy != v1.NotRequired {
			c.Invalid(path, policy.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
		}
	}
}

// validateRestartPolicy checks a container's own restart policy and its rules for
// single exit codes (KEP-5307).
func validateRestartPolicy(c *check.Checker, container *v1.Container, path *field.Path) {
	const maxRules, maxCodes = 20, 255
	rules := container.RestartPolicyRules
	if container.RestartPolicy == nil && len(rules) > 0 {
		c.Required(path.Child("restartPolicy"), "must specify restartPolicy when restart rules are used")
	}
	check.OptionalOneOf(c, path.Child("restartPolicy"), container.RestartPolicy,
		v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure)
	rulesPath := path.Child("restartPolicyRules")
	c.MaxItems(rulesPath, len(rules), maxRules)
	for i, rule := range rules {
		at := rulesPath.Index(i)
		check.OneOf(c, at.Child("action"), rule.Action,
			v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)
		codes := rule.ExitCodes
		if codes == nil {
			c.Required(at.Child("exitCodes"), "must be specified")
			continue
		}
		check.OneOf(c, at.Child("exitCodes", "operator"), codes.Operator,
			v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)
		c.MaxItems(at.Child("exitCodes", "values"), len(codes.Values), maxCodes)
	}
}
