// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgroup gives new PodGroups a finalizer, so that none is removed while pods of the group
// remain. The PodGroup protection controller removes the finalizer.
package podgroup

import (
	"context"
	"slices"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apiserver/pkg/admission"
)

// Name is the plugin's name in the API server's configuration.
const Name = "PodGroupProtection"

const finalizer = "scheduling.k8s.io/podgroup-protection"

// Plugin is the admission plugin.
type Plugin struct{ *admission.Handler }

var _ admission.MutationInterface = &Plugin{}

// New returns the plugin.
func New() *Plugin { return &Plugin{admission.NewHandler(admission.Create)} }

// Admit implements admission.MutationInterface.
func (*Plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != schedulingv1beta1.Resource("podgroups") || a.GetSubresource() != "" {
		return nil
	}
	if group, ok := a.GetObject().(*schedulingv1beta1.PodGroup); ok && !slices.Contains(group.Finalizers, finalizer) {
		group.Finalizers = append(group.Finalizers, finalizer)
	}
	return nil
}
