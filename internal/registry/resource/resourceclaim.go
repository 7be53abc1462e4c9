// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// resourceClaim returns the kind ResourceClaim, a request for devices. Its spec is immutable. In
// the status, the scheduler writes the allocated devices and the pods that they are reserved for,
// and drivers the state of their devices.
func resourceClaim(a authorizer.UnconditionalAuthorizer, namespaces corev1client.NamespacesGetter) generic.Resource {
	admins := admins{namespaces}
	status := statusUpdate{admins, writers{a}}
	return generic.Kind[*resourcev1.ResourceClaim]{
		Name: "ResourceClaim", Plural: "resourceclaims",
		New:        func() *resourcev1.ResourceClaim { return &resourcev1.ResourceClaim{} },
		NewList:    func() runtime.Object { return &resourcev1.ResourceClaimList{} },
		Metadata:   generic.Metadata{ValidateAsNew: true},
		Spec:       func(c *resourcev1.ResourceClaim) any { return &c.Spec },
		Status:     func(c *resourcev1.ResourceClaim) any { return &c.Status },
		Generation: generic.NoGeneration,
		Prepare:    func(_ context.Context, c, _ *resourcev1.ResourceClaim) { dropAlphaClaim(&c.Spec) },
		StatusUpdate: generic.Update[*resourcev1.ResourceClaim]{
			Prepare: func(_ context.Context, c, old *resourcev1.ResourceClaim) {
				metav1.ResetObjectMetaForStatus(&c.ObjectMeta, &old.ObjectMeta)
				dropAlphaStatus(&c.Status)
				forgetReturned(&c.Status, &old.Status)
			},
			Resets:   []string{"metadata"},
			Validate: status.validate,
		},
		Validate: func(ctx context.Context, c *check.Checker, claim *resourcev1.ResourceClaim) {
			admins.mayRequest(ctx, c, claim.Spec.Devices.Requests, claim.Namespace)
			validateClaim(c, &claim.Spec.Devices, specPath.Child("devices"))
		},
		ValidateUpdate: func(_ context.Context, c *check.Checker, claim, old *resourcev1.ResourceClaim) {
			c.Declared().Immutable(specPath, claim.Spec, old.Spec)
		},
		Deletion: generic.Deletion[*resourcev1.ResourceClaim]{ReturnObject: true},
		Columns: []generic.Column[*resourcev1.ResourceClaim]{{
			Name: "State", Description: "A summary of the current state (allocated, pending, reserved, etc.).", Cell: claimState,
		}},
	}
}

func claimState(c *resourcev1.ResourceClaim) any {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation == nil && c.DeletionTimestamp == nil:
		states = append(states, "pending")
	case c.Status.Allocation != nil && len(c.Status.ReservedFor) > 0:
		states = append(states, "allocated", "reserved")
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
	}
	return strings.Join(states, ",")
}

// forgetReturned removes the status of devices that are no longer allocated, so that clients that
// deallocate need not do it.
func forgetReturned(status, old *resourcev1.ResourceClaimStatus) {
	kept, before := allocatedDevices(status.Allocation), allocatedDevices(old.Allocation)
	var devices []resourcev1.AllocatedDeviceStatus
	for _, device := range status.Devices {
		if id := reportedID(&device); !before.Has(id) || kept.Has(id) {
			devices = append(devices, device)
		}
	}
	status.Devices = devices
}
