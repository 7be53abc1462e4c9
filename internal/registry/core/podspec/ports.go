// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func validatePorts(c *check.Checker, ports []v1.ContainerPort, path *field.Path) {
	names := sets.Set[string]{}
	for i := range ports {
		port, at := &ports[i], path.Index(i)
		if port.Name != "" {
			problems := validation.IsValidPortName(port.Name)
			c.Invalid(at.Child("name"), port.Name, problems...)
			if len(problems) == 0 {
				check.Unique(c, at.Child("name"), names, port.Name)
			}
		}
		if port.ContainerPort == 0 {
			c.Required(at.Child("containerPort"), "")
		} else {
			c.Invalid(at.Child("containerPort"), port.ContainerPort, validation.IsValidPortNum(int(port.ContainerPort))...)
		}
		if port.HostPort != 0 {
			c.Invalid(at.Child("hostPort"), port.HostPort, validation.IsValidPortNum(int(port.HostPort))...)
		}
		check.RequiredOneOf(c, at.Child("protocol"), port.Protocol, v1.ProtocolSCTP, v1.ProtocolTCP, v1.ProtocolUDP)
	}
}

// validateHostPorts reports host ports in taken, and adds the others to it.
func validateHostPorts(c *check.Checker, ports []v1.ContainerPort, path *field.Path, taken sets.Set[string]) {
	for i := range ports {
		port := &ports[i]
		if port.HostPort == 0 {
			continue
		}
		key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
		check.Unique(c, path.Index(i).Child("hostPort"), taken, key)
	}
}

// hostNetworkPorts requires that host ports equal container ports on the host's network. A template
// may omit host ports; the defaults of pods fill them in.
func (c *specChecker) hostNetworkPorts(path *field.Path) {
	if !c.spec.HostNetwork {
		return
	}
	isTemplate := c.meta == nil
	for i, container := range c.spec.Containers {
		for j, port := range container.Ports {
			if port.HostPort == port.ContainerPort || isTemplate && port.HostPort == 0 {
				continue
			}
			c.Invalid(path.Index(i).Child("ports").Index(j).Child("hostPort"), port.HostPort,
				"must match `containerPort` when `hostNetwork` is true")
		}
	}
}
