// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestLeases(t *testing.T) {
	for name, test := range map[string]struct {
		spec coordinationv1.LeaseSpec
		want string
	}{
		"good":        {coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(1)), LeaseTransitions: new(int32(0))}, ""},
		"no time":     {coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(0))}, "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"},
		"transitions": {coordinationv1.LeaseSpec{LeaseTransitions: new(int32(-1))}, "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"},
	} {
		errs := checktest.Errors(t.Context(), Lease.Validate, &coordinationv1.Lease{Spec: test.spec})
		if test.want == "" && len(errs) > 0 || test.want != "" && (len(errs) != 1 || errs[0].Error() != test.want) {
			t.Errorf("%s: %v, want %q", name, errs, test.want)
		}
	}
	l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{Strategy: new(coordinationv1.OldestEmulationVersion), PreferredHolder: new("x"), HolderIdentity: new("me")}}
	Lease.Prepare(t.Context(), l, nil)
	if l.Spec.Strategy != nil || l.Spec.PreferredHolder != nil || *l.Spec.HolderIdentity != "me" {
		t.Errorf("%+v", l.Spec)
	}
}
