// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podupdate

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
)

// ResizeName is the name of the plugin Resize in the API server's configuration.
const ResizeName = "PodResizeValidator"

// The types of the causes of refusals.
const (
	reasonCapacity metav1.CauseType = "NodeCapacity"
	reasonPlatform metav1.CauseType = "UnsupportedPlatform"
)

// Resize refuses to resize a pod in place to more than its node could allocate if
// the pod were alone there, and any resize on a platform that does not support it
// (KEP-1287).
type Resize struct{ handler }

var _ admission.ValidationInterface = &Resize{}

// NewResize returns the plugin.
func NewResize() *Resize { return &Resize{newHandler(ResizeName, "resize")} }

// Validate implements admission.ValidationInterface.
func (p *Resize) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, _, err := p.changedPod(a)
	if err != nil || pod == nil {
		return err
	}
	return p.validate(a, pod)
}

func (p *Resize) validate(a admission.Attributes, pod *corev1.Pod) error {
	node, err := p.nodeOf(a, pod)
	if err != nil {
		return err
	}
	if os, labelled := node.Labels[corev1.LabelOSStable]; labelled && os != string(corev1.Linux) {
		return refuse(a, reasonPlatform, fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, os))
	}
	if excess := excessRequests(pod, node.Status.Allocatable); len(excess) > 0 {
		return refuse(a, reasonCapacity, fmt.Errorf("node didn't have enough allocatable resources: %s", strings.Join(excess, "; ")))
	}
	return nil
}

// excessRequests describes the requests of the pod that exceed what is allocatable.
func excessRequests(pod *corev1.Pod, allocatable corev1.ResourceList) []string {
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

// refuse returns a 403 with a cause, by which clients can tell the reason.
func refuse(a admission.Attributes, reason metav1.CauseType, err error) error {
	refusal := admission.NewForbidden(a, err)
	var status *apierrors.StatusError
	if errors.As(refusal, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: reason})
	}
	return refusal
}
