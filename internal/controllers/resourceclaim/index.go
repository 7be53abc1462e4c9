// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// claimIndex finds pods and PodGroups by their ResourceClaims, templateIndex by their templates.
	claimIndex    = ".resourceClaims"
	templateIndex = ".resourceClaimTemplates"
	// groupIndex finds pods with claims by their PodGroup.
	groupIndex = ".resourceClaimGroup"
)

// claimsOf returns the names of the claims of a pod, with the one that the scheduler made for its extended
// resources, or of a PodGroup. It is the index function of claimIndex.
func claimsOf(obj client.Object) []string {
	var names []string
	add := func(name *string, _ bool, err error) {
		if err == nil && name != nil {
			names = append(names, *name)
		}
	}
	switch obj := obj.(type) {
	case *corev1.Pod:
		for i := range obj.Spec.ResourceClaims {
			add(resourceclaim.Name(obj, &obj.Spec.ResourceClaims[i]))
		}
		if extended := obj.Status.ExtendedResourceClaimStatus; extended != nil {
			names = append(names, extended.ResourceClaimName)
		}
	case *schedulingv1beta1.PodGroup:
		for i := range obj.Spec.ResourceClaims {
			add(resourceclaim.NameFromPodGroup(obj, &obj.Spec.ResourceClaims[i]))
		}
	}
	return names
}

// templatesOf is the index function of templateIndex.
func templatesOf(obj client.Object) []string {
	var names []string
	add := func(name *string) {
		if name != nil {
			names = append(names, *name)
		}
	}
	switch obj := obj.(type) {
	case *corev1.Pod:
		for i := range obj.Spec.ResourceClaims {
			add(obj.Spec.ResourceClaims[i].ResourceClaimTemplateName)
		}
	case *schedulingv1beta1.PodGroup:
		for i := range obj.Spec.ResourceClaims {
			add(obj.Spec.ResourceClaims[i].ResourceClaimTemplateName)
		}
	}
	return names
}

// groupsOf is the index function of groupIndex.
func groupsOf(obj client.Object) []string {
	if pod, ok := obj.(*corev1.Pod); ok && wantsClaims(pod) && groupName(pod) != "" {
		return []string{groupName(pod)}
	}
	return nil
}

func claimRequests(obj client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range claimsOf(obj) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}})
	}
	return requests
}
