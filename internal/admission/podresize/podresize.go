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
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Name is the plugin's name in the API server's configuration.
const Name = "PodResizeValidator"

// Why a resize is refused, as the cause's type.
const (
	reasonCapacity metav1.CauseType = "NodeCapacity"
	reasonPlatform metav1.CauseType = "UnsupportedPlatform"
)

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	nodes listers.NodeLister
}

var (
	_ admission.ValidationInterface                = &Plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &Plugin{}
)

// New returns the plugin.
func New() *Plugin { return &Plugin{Handler: admission.NewHandler(admission.Update)} }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *Plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	nodes := f.Core().V1().Nodes()
	p.nodes = nodes.Lister()
	p.SetReadyFunc(nodes.Informer().HasSynced)
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.nodes == nil {
		return fmt.Errorf("%s needs informers", Name)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "resize" {
		return nil
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a pod but got a %T", a.GetObject()))
	}
	if pod.Spec.NodeName == "" {
		return nil
	}
	old, ok := a.GetOldObject().(*corev1.Pod)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected an old pod but got a %T", a.GetOldObject()))
	}
	// The generation grows with each change of the spec.
	if old.Generation == pod.Generation {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	return p.judge(a, pod)
}

func (p *Plugin) judge(a admission.Attributes, pod *corev1.Pod) error {
	node, err := p.nodes.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return admission.NewForbidden(a, fmt.Errorf("node %q not found", pod.Spec.NodeName))
	}
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to get node %q: %w", pod.Spec.NodeName, err))
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
