// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
)

// roomAdmission refuses writes when the disk or the memory is nearly full. It does so before the
// plugins run, which may call webhooks.
type roomAdmission struct {
	admission.Interface
	checks []func(admission.Attributes) error
}

var (
	_ admission.MutationInterface   = roomAdmission{}
	_ admission.ValidationInterface = roomAdmission{}
)

// admitWithRoom adds the server's checks of disk and memory, if there are any, to the plugins.
func (s *Server) admitWithRoom(plugins admission.Interface) admission.Interface {
	r := roomAdmission{Interface: plugins}
	if s.reserve != nil {
		r.checks = append(r.checks, s.reserve.admit)
	}
	if s.memory != nil {
		r.checks = append(r.checks, s.memory.admit)
	}
	if len(r.checks) == 0 {
		return plugins
	}
	return r
}

// Handles returns true: Admit and Validate call the plugins' Handles.
func (roomAdmission) Handles(admission.Operation) bool { return true }

// Admit implements admission.MutationInterface.
func (r roomAdmission) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	for _, check := range r.checks {
		if err := check(a); err != nil {
			return err
		}
	}
	if plugins, ok := r.Interface.(admission.MutationInterface); ok && r.Interface.Handles(a.GetOperation()) {
		return plugins.Admit(ctx, a, o)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (r roomAdmission) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if plugins, ok := r.Interface.(admission.ValidationInterface); ok && r.Interface.Handles(a.GetOperation()) {
		return plugins.Validate(ctx, a, o)
	}
	return nil
}

// unstored are groups whose objects are not stored.
var unstored = sets.New("authentication.k8s.io", "authorization.k8s.io")

var leases = coordinationv1.Resource("leases")

// takesRoom reports whether the request stores something.
func takesRoom(a admission.Attributes) bool {
	of := a.GetResource().GroupResource()
	switch {
	case a.IsDryRun(), unstored.Has(of.Group), of == leases:
		return false
	case a.GetOperation() == admission.Create:
		return !answered.Has(target{of, a.GetSubresource()})
	case a.GetOperation() == admission.Update:
		return !beingDeleted(a)
	}
	return false
}

type target struct {
	resource    schema.GroupResource
	subresource string
}

// answered are the subresources whose created objects are not stored.
var answered = sets.New(
	target{schema.GroupResource{Resource: "pods"}, "eviction"},
	target{schema.GroupResource{Resource: "serviceaccounts"}, "token"},
)

func beingDeleted(a admission.Attributes) bool {
	old, err := meta.Accessor(a.GetOldObject())
	return err == nil && old.GetDeletionTimestamp() != nil
}
