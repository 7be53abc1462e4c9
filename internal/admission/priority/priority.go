// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package priority resolves the name of a pod's or PodGroup's PriorityClass to the number
// that the scheduler compares. The number is fixed at creation: changing or deleting a
// class changes no pod. The plugin admits one default class at most.
package priority

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/admission/informer"
)

// Name is the plugin's name in the API server's configuration.
const Name = "Priority"

// Plugin is the admission plugin.
type Plugin struct {
	*informer.Handler[listers.PriorityClassLister]
}

var (
	_ admission.MutationInterface   = &Plugin{}
	_ admission.ValidationInterface = &Plugin{}
)

// New returns the plugin.
func New() *Plugin {
	return &Plugin{informer.New(Name, func(f informers.SharedInformerFactory) informer.Informer[listers.PriorityClassLister] {
		return f.Scheduling().V1().PriorityClasses()
	}, admission.Create, admission.Update)}
}

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	switch resource := a.GetResource().GroupResource(); {
	case a.GetSubresource() != "":
		return nil
	case resource == corev1.Resource("pods"):
		return p.admitPod(a)
	case resource == schedulingv1beta1.Resource("podgroups") && a.GetOperation() == admission.Create:
		return p.admitPodGroup(a)
	default:
		return nil
	}
}

func (p *Plugin) admitPod(a admission.Attributes) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return apierrors.NewBadRequest("resource was marked with kind Pod but was unable to be converted")
	}
	if a.GetOperation() == admission.Update {
		keep(pod, a.GetOldObject())
		return nil
	}
	// An incomplete list of classes would silently give the pod no priority.
	if err := p.WaitForSync(a); err != nil {
		return err
	}
	return p.resolve(a, pod)
}

// keep restores the resolved fields in an update that leaves them out, as
// `kubectl replace` does.
func keep(pod *corev1.Pod, old any) {
	before, ok := old.(*corev1.Pod)
	if !ok {
		return
	}
	if pod.Spec.Priority == nil {
		pod.Spec.Priority = before.Spec.Priority
	}
	if pod.Spec.PreemptionPolicy == nil {
		pod.Spec.PreemptionPolicy = before.Spec.PreemptionPolicy
	}
}

// resolve sets a new pod's priority from its class.
func (p *Plugin) resolve(a admission.Attributes, pod *corev1.Pod) error {
	class, err := p.class(a, pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	if got := pod.Spec.Priority; got != nil && *got != class.Value {
		return admission.NewForbidden(a, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *got, class.Value))
	}
	pod.Spec.PriorityClassName = class.Name
	pod.Spec.Priority = ptr.To(class.Value)
	if class.PreemptionPolicy == nil {
		return nil
	}
	if got := pod.Spec.PreemptionPolicy; got != nil && *got != *class.PreemptionPolicy {
		return admission.NewForbidden(a, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *got, *class.PreemptionPolicy))
	}
	pod.Spec.PreemptionPolicy = ptr.To(*class.PreemptionPolicy)
	return nil
}

// admitPodGroup sets a new PodGroup's priority from its class.
func (p *Plugin) admitPodGroup(a admission.Attributes) error {
	group, ok := a.GetObject().(*schedulingv1beta1.PodGroup)
	if !ok {
		return apierrors.NewBadRequest("resource was marked with kind PodGroup but was unable to be converted")
	}
	if err := p.WaitForSync(a); err != nil {
		return err
	}
	class, err := p.class(a, group.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	if got := group.Spec.Priority; got != nil && *got != class.Value {
		return admission.NewForbidden(a, fmt.Errorf("priority set in the pod group (%d) must match the priority computed (%d) based on the priority class set in the spec", *got, class.Value))
	}
	group.Spec.PriorityClassName, group.Spec.Priority = class.Name, ptr.To(class.Value)
	return nil
}

// class returns the class of the given name, or the default class if the name is
// empty. Without a default class, the priority is 0.
func (p *Plugin) class(a admission.Attributes, name string) (*schedulingv1.PriorityClass, error) {
	if name == "" {
		class, err := p.defaultClass()
		if err != nil {
			return nil, fmt.Errorf("error occurred while retrieving default priority class: %w", err)
		}
		if class == nil {
			class = &schedulingv1.PriorityClass{PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority)}
		}
		return class, nil
	}
	class, err := p.Lister.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, admission.NewForbidden(a, fmt.Errorf("no PriorityClass with name %v was found", name))
	}
	if err != nil {
		return nil, fmt.Errorf("failed to resolve PriorityClass with name %s: %w", name, err)
	}
	return class, nil
}

// defaultClass returns the default class, or nil. If a race has created several,
// it is the one with the lowest value.
func (p *Plugin) defaultClass() (*schedulingv1.PriorityClass, error) {
	all, err := p.Lister.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var lowest *schedulingv1.PriorityClass
	for _, class := range all {
		if class.GlobalDefault && (lowest == nil || class.Value < lowest.Value) {
			lowest = class
		}
	}
	return lowest, nil
}

// Validate implements admission.ValidationInterface. It refuses a second default
// class.
func (p *Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != schedulingv1.Resource("priorityclasses") || a.GetSubresource() != "" {
		return nil
	}
	class, ok := a.GetObject().(*schedulingv1.PriorityClass)
	if !ok {
		return apierrors.NewBadRequest("resource was marked with kind PriorityClass but was unable to be converted")
	}
	if !class.GlobalDefault {
		return nil
	}
	current, err := p.defaultClass()
	if err != nil {
		return fmt.Errorf("failed to get default priority class: %w", err)
	}
	if current == nil || a.GetOperation() == admission.Update && current.Name == class.Name {
		return nil
	}
	return admission.NewForbidden(a, fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", current.Name))
}
