// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Node is a machine or a simulated one. Its agent registers it with a status, so a create may set
// the status.
var Node = generic.Kind[*corev1.Node]{
	Name: "Node", Plural: "nodes", ShortNames: []string{"no"}, ClusterScoped: true,
	Metadata:          generic.Metadata{ValidateAsNew: true},
	New:               func() *corev1.Node { return &corev1.Node{} },
	NewList:           func() runtime.Object { return &corev1.NodeList{} },
	Spec:              func(n *corev1.Node) any { return &n.Spec },
	Status:            func(n *corev1.Node) any { return &n.Status },
	Generation:        generic.NoGeneration,
	CreatedWithStatus: true,
	Prepare:           prepareNode,
	StatusUpdate:      generic.Update[*corev1.Node]{Prepare: prepareNodeStatus, Validate: validateNodeChange},
	Validate:          validateNode,
	ValidateUpdate:    validateNodeUpdate,
	Warnings:          warnNode,
	Fields:            map[string]func(*corev1.Node) string{"spec.unschedulable": func(n *corev1.Node) string { return strconv.FormatBool(n.Spec.Unschedulable) }},
	Columns: []generic.Column[*corev1.Node]{
		{Name: "Status", Description: "The status of the node", Cell: nodeStatus},
		{Name: "Roles", Description: "The roles of the node", Cell: nodeRoles},
		{Name: "Internal-IP", Wide: true, Description: corev1.NodeStatus{}.SwaggerDoc()["addresses"], Cell: nodeAddress(corev1.NodeInternalIP)},
		{Name: "External-IP", Wide: true, Description: corev1.NodeStatus{}.SwaggerDoc()["addresses"], Cell: nodeAddress(corev1.NodeExternalIP)},
		{Name: "OS-Image", Wide: true, Description: corev1.NodeSystemInfo{}.SwaggerDoc()["osImage"], Cell: func(n *corev1.Node) any { return orUnknown(n.Status.NodeInfo.OSImage) }},
		{Name: "Kernel-Version", Wide: true, Description: corev1.NodeSystemInfo{}.SwaggerDoc()["kernelVersion"], Cell: kernelVersion},
		{Name: "Container-Runtime", Wide: true, Description: corev1.NodeSystemInfo{}.SwaggerDoc()["containerRuntimeVersion"], Cell: func(n *corev1.Node) any { return orUnknown(n.Status.NodeInfo.ContainerRuntimeVersion) }},
	},
	Table: generic.Table[*corev1.Node]{AfterAge: []generic.Column[*corev1.Node]{
		{Name: "Version", Description: corev1.NodeSystemInfo{}.SwaggerDoc()["kubeletVersion"], Cell: func(n *corev1.Node) any { return n.Status.NodeInfo.KubeletVersion }},
	}},
}

func nodeStatus(n *corev1.Node) any {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		status = "NotReady"
		if c.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// Labels for the roles of a node: node-role.kubernetes.io/<role>, or
// kubernetes.io/role=<role>.
const (
	rolePrefix = "node-role.kubernetes.io/"
	roleLabel  = "kubernetes.io/role"
)

func nodeRoles(n *corev1.Node) any {
	roles := sets.New[string]()
	for label, value := range n.Labels {
		if role, ok := strings.CutPrefix(label, rolePrefix); ok && role != "" {
			roles.Insert(role)
		} else if label == roleLabel && value != "" {
			roles.Insert(value)
		}
	}
	return generic.OrNone(strings.Join(sets.List(roles), ","))
}

func nodeAddress(kind corev1.NodeAddressType) func(*corev1.Node) any {
	return func(n *corev1.Node) any {
		for _, a := range n.Status.Addresses {
			if a.Type == kind {
				return a.Address
			}
		}
		return generic.OrNone("")
	}
}

func kernelVersion(n *corev1.Node) any {
	version := orUnknown(n.Status.NodeInfo.KernelVersion)
	if arch := n.Status.NodeInfo.Architecture; arch != "" {
		version += " (" + arch + ")"
	}
	return version
}

func orUnknown(s string) string {
	if s == "" {
		return "<unknown>"
	}
	return s
}

// prepareNode drops fields of removed features (dynamic kubelet configuration) and of disabled alpha
// features.
func prepareNode(_ context.Context, n, old *corev1.Node) {
	n.Spec.ConfigSource = nil
	n.Spec.PodPreemptionPolicy = nil
	if old == nil {
		n.Status.Config = nil
	}
}

func prepareNodeStatus(_ context.Context, n, _ *corev1.Node) { n.Status.Config = nil }

func warnNode(_ context.Context, n, _ *corev1.Node) []string {
	var warnings []string
	if n.Spec.DoNotUseExternalID != "" {
		warnings = append(warnings, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		warnings = append(warnings, utilvalidation.GetWarningsForCIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	return warnings
}
