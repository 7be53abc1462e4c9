// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package noderestriction

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/auth/node"
)

func (p *Plugin) admitPod(ctx context.Context, r request) error {
	switch r.GetSubresource() {
	case "":
		switch r.GetOperation() {
		case admission.Create:
			return p.admitMirror(ctx, r)
		case admission.Delete:
			return admitPodDelete(r)
		default:
			return r.refuse("unexpected operation %q, node %q can only create and delete mirror pods", r.GetOperation(), r.node)
		}
	case "status":
		return admitPodStatus(r)
	case "eviction":
		return p.admitEviction(ctx, r)
	default:
		return r.refuse("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", r.GetSubresource())
	}
}

func admitPodDelete(r request) error {
	pod, ok := r.GetOldObject().(*corev1.Pod)
	if !ok {
		return r.unexpected(r.GetOldObject())
	}
	if pod.Spec.NodeName != r.node {
		return r.refuse("node %q can only delete pods with spec.nodeName set to itself", r.node)
	}
	return nil
}

func (p *Plugin) admitEviction(ctx context.Context, r request) error {
	if r.GetOperation() != admission.Create {
		return r.refuse("unexpected operation %s", r.GetOperation())
	}
	eviction, ok := r.GetObject().(*policyv1.Eviction)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	name := r.GetName()
	if name == "" {
		name = eviction.Name
	}
	if name == "" {
		return r.refuse("could not determine pod from request data")
	}
	pod, err := p.pod(ctx, r.GetNamespace(), name)
	if apierrors.IsNotFound(err) {
		return err
	}
	if err != nil {
		return r.refuse("%w", err)
	}
	if pod.Spec.NodeName != r.node {
		return r.refuse("node %s can only evict pods with spec.nodeName set to itself", r.node)
	}
	return nil
}

// admitMirror lets a node create only its own mirror pods, and only if they refer to
// no API objects. Otherwise, a node could create a pod that refers to any Secret, and
// so get access to it.
func (p *Plugin) admitMirror(ctx context.Context, r request) error {
	pod, ok := r.GetObject().(*corev1.Pod)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return r.refuse("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, r.node)
	}
	if pod.Spec.NodeName != r.node {
		return r.refuse("node %q can only create pods with spec.nodeName set to itself", r.node)
	}
	if err := p.admitOwner(ctx, r, pod); err != nil {
		return err
	}
	resource, err := APIReference(pod)
	if err != nil {
		return r.refuse("error checking mirror pod for API references: %w", err)
	}
	if resource != "" {
		return r.refuse("node %q can not create pods that reference %s", r.node, resource)
	}
	return nil
}

// admitOwner requires the node to be the only owner of its mirror pod.
func (p *Plugin) admitOwner(ctx context.Context, r request, pod *corev1.Pod) error {
	if len(pod.OwnerReferences) > 1 {
		return r.refuse("node %q can only create pods with a single owner reference set to itself", r.node)
	}
	if len(pod.OwnerReferences) == 0 {
		return r.refuse("node %q can only create pods with an owner reference set to itself", r.node)
	}
	owner := pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != r.node:
		return r.refuse("node %q can only create pods with an owner reference set to itself", r.node)
	case !ptr.Deref(owner.Controller, false):
		return r.refuse("node %q can only create pods with a controller owner reference set to itself", r.node)
	case ptr.Deref(owner.BlockOwnerDeletion, false):
		return r.refuse("node %q must not set blockOwnerDeletion on an owner reference", r.node)
	}
	found, err := p.nodeObject(ctx, r.node)
	if apierrors.IsNotFound(err) {
		return err
	}
	if err != nil {
		return r.refuse("error looking up node %s to verify uid: %w", r.node, err)
	}
	if owner.UID != found.UID {
		return r.refuse("node %s UID mismatch: expected %s got %s", r.node, owner.UID, found.UID)
	}
	return nil
}

// admitPodStatus lets a node report the status of its own pods, without the fields
// that other components write or select by.
func admitPodStatus(r request) error {
	if r.GetOperation() != admission.Update {
		return r.refuse("unexpected operation %q", r.GetOperation())
	}
	before, ok := r.GetOldObject().(*corev1.Pod)
	if !ok {
		return r.unexpected(r.GetOldObject())
	}
	after, ok := r.GetObject().(*corev1.Pod)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	was, is := &before.Status, &after.Status
	switch {
	case before.Spec.NodeName != r.node:
		return r.refuse("node %q can only update pod status for pods with spec.nodeName set to itself", r.node)
	case !maps.Equal(before.Labels, after.Labels):
		return r.refuse("node %q cannot update labels through pod status", r.node)
	case !equality.Semantic.DeepEqual(was.ResourceClaimStatuses, is.ResourceClaimStatuses):
		return r.refuse("node %q cannot update resource claim statues", r.node)
	case !equality.Semantic.DeepEqual(was.ExtendedResourceClaimStatus, is.ExtendedResourceClaimStatus):
		return r.refuse("node %q cannot update extended resource claim status", r.node)
	case !equality.Semantic.DeepEqual(was.NodeAllocatableResourceClaimStatuses, is.NodeAllocatableResourceClaimStatuses):
		return r.refuse("node %q cannot update node allocatable resource claim statuses", r.node)
	default:
		return nil
	}
}

// APIReference returns the resource of an API object that a pod refers to, or "".
func APIReference(pod *corev1.Pod) (string, error) {
	refs := node.ReferencesOf(pod)
	switch {
	case refs.ServiceAccount != "":
		return "serviceaccounts", nil
	case len(refs.Secrets) > 0:
		return "secrets", nil
	case len(refs.ConfigMaps) > 0:
		return "configmaps", nil
	case len(pod.Spec.ResourceClaims) > 0:
		return "resourceclaims", nil
	}
	for i := range pod.Spec.Volumes {
		if resource, err := volumeReference(&pod.Spec.Volumes[i]); resource != "" || err != nil {
			return resource, err
		}
	}
	return "", nil
}
