// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podresize refuses to resize a pod in place to what its node could never
// give it: more than is allocatable there, were the pod alone, or anything at all
// where the platform cannot (KEP-1287).
package podresize

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kindred-project/kindred/internal/admission/assigned"
)

// Name is the plugin's name in the API server's configuration.
const Name = "PodResizeValidator"

// Why a resize is refused, as the cause's type.
const (
	reasonCapacity metav1.CauseType = "NodeCapacity"
	reasonPlatform metav1.CauseType = "UnsupportedPlatform"
)

// Plugin is the admission plugin.
type Plugin struct{ *assigned.Plugin }

var _ admission.ValidationInterface = &Plugin{}

// New returns the plugin.
func New() *Plugin { return &Plugin{assigned.New(Name, "resize")} }

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, _, err := p.Changed(a)
	if err != nil || pod == nil {
		return err
	}
	return p.judge(a, pod)
}

func (p *Plugin) judge(a admission.Attributes, pod *corev1.Pod) error {
	node, err := p.Node(a, pod)
	if err != nil {
		return err
	}
	if system, labelled := node.Labels[corev1.LabelOSStable]; labelled && system != string(corev1.Linux) {
		return refuse(a, reasonPlatform, fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, system))
	}
	if missing := missing(pod, node.Status.Allocatable); len(missing) > 0 {
		return refuse(a, reasonCapacity, fmt.Errorf("node didn't have enough allocatable resources: %s", strings.Join(missing, "; ")))
	}
	return nil
}

// missing says what the pod asks for beyond what the node could give it.
func missing(pod *corev1.Pod, allocatable corev1.ResourceList) []string {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var out []string
	if cpu := requests.Cpu(); cpu.Cmp(*allocatable.Cpu()) > 0 {
		out = append(out, fmt.Sprintf("cpu, requested: %d, allocatable: %d", cpu.MilliValue(), allocatable.Cpu().MilliValue()))
	}
	if memory := requests.Memory(); memory.Cmp(*allocatable.Memory()) > 0 {
		out = append(out, fmt.Sprintf("memory, requested: %d, allocatable: %d", memory.Value(), allocatable.Memory().Value()))
	}
	return out
}

// refuse answers 403 with a cause that tells clients which of the refusals it is.
func refuse(a admission.Attributes, reason metav1.CauseType, err error) error {
	refusal := admission.NewForbidden(a, err)
	var status *apierrors.StatusError
	if errors.As(refusal, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: reason})
	}
	return refusal
}
