// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// pod returns the kind Pod. Through nodes the API server reaches node agents, for logs and streams;
// budgets are checked before a pod is evicted.
func pod(nodes NodeConnections, budgets policyclient.PodDisruptionBudgetsGetter) generic.Kind[*corev1.Pod] {
	return generic.Kind[*corev1.Pod]{
		Name: "Pod", Plural: "pods", ShortNames: []string{"po"}, Categories: []string{"all"},
		New:      func() *corev1.Pod { return &corev1.Pod{} },
		NewList:  func() runtime.Object { return &corev1.PodList{} },
		Deletion: generic.Deletion[*corev1.Pod]{ReturnObject: true, Grace: podGrace},
		Spec:     func(p *corev1.Pod) any { return &p.Spec },
		Status:   func(p *corev1.Pod) any { return &p.Status },
		Prepare:  preparePod,
		StatusUpdate: generic.Update[*corev1.Pod]{
			Prepare: preparePodStatus,
			Resets:  []string{"metadata.deletionTimestamp", "metadata.ownerReferences"},
			Validate: func(_ context.Context, c *check.Checker, p, old *corev1.Pod) {
				podspec.ValidatePodStatusUpdate(c, p, old)
			},
			Warnings: podStatusWarnings,
		},
		Validate: func(_ context.Context, c *check.Checker, p *corev1.Pod) {
			podspec.ValidatePodCreate(c, p)
		},
		ValidateUpdate: func(_ context.Context, c *check.Checker, p, old *corev1.Pod) {
			podspec.ValidatePodUpdate(c, p, old)
		},
		Warnings: podWarnings,
		Fields: map[string]func(*corev1.Pod) string{
			"spec.nodeName":           func(p *corev1.Pod) string { return p.Spec.NodeName },
			"spec.restartPolicy":      func(p *corev1.Pod) string { return string(p.Spec.RestartPolicy) },
			"spec.schedulerName":      func(p *corev1.Pod) string { return p.Spec.SchedulerName },
			"spec.serviceAccountName": func(p *corev1.Pod) string { return p.Spec.ServiceAccountName },
			"spec.hostNetwork":        func(p *corev1.Pod) string { return strconv.FormatBool(p.Spec.HostNetwork) },
			"status.phase":            func(p *corev1.Pod) string { return string(p.Status.Phase) },
			"status.podIP":            firstPodIP,
			// Selectors may name it, but no pod has it.
			"status.podIPs":            func(*corev1.Pod) string { return "" },
			"status.nominatedNodeName": func(p *corev1.Pod) string { return p.Status.NominatedNodeName },
		},
		FieldSelection: generic.FieldSelection{Indexed: []string{"spec.nodeName"}, Renamed: map[string]string{"spec.host": "spec.nodeName"}},
		Columns:        podColumns,
		Table:          generic.Table[*corev1.Pod]{RowConditions: podRowConditions},
		Updates: map[string]generic.Update[*corev1.Pod]{
			"ephemeralcontainers": ephemeralContainers,
			"resize":              resize,
		},
		Endpoints: generic.Endpoints{
			Subresources: func(store *generic.Store) map[string]rest.Storage {
				endpoints := podConnections(store, nodes)
				endpoints["binding"] = &bindingStore{store}
				endpoints["eviction"] = &evictionStore{store, budgets}
				return endpoints
			},
			Siblings: func(store *generic.Store) map[string]rest.Storage {
				return map[string]rest.Storage{"bindings": legacyBindingStore{&bindingStore{store}}}
			},
		},
	}
}

// preparePod sets the phase of a new pod to Pending. The quality-of-service class follows from the
// resources and never changes.
func preparePod(ctx context.Context, p, old *corev1.Pod) {
	podspec.DropAlphaFields(ctx, p, old)
	if old != nil {
		// A client that does not know pod-level resources must not remove them.
		if p.Spec.Resources == nil {
			p.Spec.Resources = old.Spec.Resources.DeepCopy()
		}
		return
	}
	for _, message := range podspec.Complete(p) {
		warning.AddWarning(ctx, "", message)
	}
	DefaultPodResources(p)
	p.Status.Phase = corev1.PodPending
	p.Status.QOSClass = qos.GetPodQOS(p)
	if len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates", LastTransitionTime: p.CreationTimestamp,
		}}
	}
}

// preparePodStatus reverts changes that a node must not make, and fields that an older node would
// drop.
func preparePodStatus(ctx context.Context, p, old *corev1.Pod) {
	podspec.DropAlphaFields(ctx, p, old)
	p.DeletionTimestamp = nil
	p.OwnerReferences = old.OwnerReferences
	if p.Status.QOSClass == "" {
		p.Status.QOSClass = old.Status.QOSClass
	}
	if p.Status.ResourceClaimStatuses == nil {
		p.Status.ResourceClaimStatuses = old.Status.ResourceClaimStatuses
	}
	if p.Status.ExtendedResourceClaimStatus == nil {
		p.Status.ExtendedResourceClaimStatus = old.Status.ExtendedResourceClaimStatus
	}
	if p.Status.ObservedGeneration == 0 {
		p.Status.ObservedGeneration = old.Status.ObservedGeneration
	}
	keepObservedGenerations(p.Status.Conditions, old.Status.Conditions)
}

// keepObservedGenerations sets a missing observedGeneration from the old condition of the same type.
func keepObservedGenerations(conditions, old []corev1.PodCondition) {
	known := map[corev1.PodConditionType][]int64{}
	for _, c := range old {
		known[c.Type] = append(known[c.Type], c.ObservedGeneration)
	}
	for i := range conditions {
		c := &conditions[i]
		generations := known[c.Type]
		if len(generations) == 0 {
			continue
		}
		known[c.Type] = generations[1:]
		if c.ObservedGeneration == 0 {
			c.ObservedGeneration = generations[0]
		}
	}
}

func podWarnings(_ context.Context, p, old *corev1.Pod) []string {
	if old != nil {
		return nil // people seldom change pods, programs do it often
	}
	var warnings []string
	if problems := validation.IsDNS1123Label(p.Name); len(problems) > 0 {
		warnings = append(warnings, fmt.Sprintf("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: %v", problems))
	}
	return append(warnings, podspec.Warnings(p)...)
}

func podStatusWarnings(_ context.Context, p, _ *corev1.Pod) []string {
	var warnings []string
	status := field.NewPath("status")
	for i, address := range p.Status.PodIPs {
		warnings = append(warnings, validation.GetWarningsForIP(status.Child("podIPs").Index(i).Child("ip"), address.IP)...)
	}
	for i, address := range p.Status.HostIPs {
		warnings = append(warnings, validation.GetWarningsForIP(status.Child("hostIPs").Index(i).Child("ip"), address.IP)...)
	}
	return warnings
}

// podGrace sets the grace period of a deletion from the pod's spec, and to 0 for a pod that is not
// scheduled or has ended.
func podGrace(_ context.Context, p *corev1.Pod, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	var period int64
	switch {
	case p.Spec.NodeName == "", p.Status.Phase == corev1.PodFailed, p.Status.Phase == corev1.PodSucceeded:
	case options.GracePeriodSeconds != nil:
		period = *options.GracePeriodSeconds
	case p.Spec.TerminationGracePeriodSeconds != nil:
		period = *p.Spec.TerminationGracePeriodSeconds
	}
	if period < 0 {
		period = 1
	}
	options.GracePeriodSeconds = &period
	return true
}

func firstPodIP(p *corev1.Pod) string {
	if len(p.Status.PodIPs) == 0 {
		return ""
	}
	return p.Status.PodIPs[0].IP
}

// ephemeralContainers adds debugging containers to a running pod. Here and in resize, field managers own
// all fields that they send, although most are reverted, as in kube-apiserver.
var ephemeralContainers = generic.Update[*corev1.Pod]{
	Prepare: func(ctx context.Context, p, old *corev1.Pod) {
		wanted := p.Spec.EphemeralContainers
		keepAllBut(p, old)
		p.Spec.EphemeralContainers = wanted
		podspec.DropAlphaFields(ctx, p, old)
		countPodGeneration(p, old)
	},
	Validate: func(_ context.Context, c *check.Checker, p, old *corev1.Pod) {
		podspec.ValidatePodEphemeralContainersUpdate(c, p, old)
	},
}

// resize changes the resources of containers in place (KEP-1287), and those of
// the pod as a whole (KEP-5419).
var resize = generic.Update[*corev1.Pod]{
	Prepare: prepareResize,
	Validate: func(_ context.Context, c *check.Checker, p, old *corev1.Pod) {
		podspec.ValidatePodResize(c, p, old)
	},
}

func prepareResize(ctx context.Context, p, old *corev1.Pod) {
	containers, inits, resources := p.Spec.Containers, p.Spec.InitContainers, p.Spec.Resources
	// Validation refuses containers that were added or removed.
	if len(containers) == len(old.Spec.Containers) && len(inits) == len(old.Spec.InitContainers) {
		keepAllBut(p, old)
		p.Spec.Containers, p.Spec.InitContainers = resized(containers, old.Spec.Containers), resized(inits, old.Spec.InitContainers)
	}
	p.Spec.Resources = resources
	if resources == nil {
		p.Spec.Resources = old.Spec.Resources.DeepCopy()
	}
	DefaultPodResources(p)
	podspec.DropAlphaFields(ctx, p, old)
	countPodGeneration(p, old)
}

// resized returns old with the new resources of containers. Validation refuses renamed containers.
func resized(containers, old []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(old))
	for i := range old {
		if containers[i].Name != old[i].Name {
			return containers
		}
		out[i] = old[i]
		out[i].Resources = containers[i].Resources
		out[i].ResizePolicy = containers[i].ResizePolicy
	}
	return out
}

// keepAllBut restores the old pod; the caller then sets the fields that may change.
func keepAllBut(p, old *corev1.Pod) {
	p.Spec, p.Status = *old.Spec.DeepCopy(), old.Status
	metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
}

// countPodGeneration increments the generation if a subresource changes the spec.
func countPodGeneration(p, old *corev1.Pod) {
	if !equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		p.Generation = old.Generation + 1
	}
}
