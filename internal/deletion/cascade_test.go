// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIsPerson(t *testing.T) {
	for caller, want := range map[Caller]bool{
		{User: "jane", Agent: "kubectl/v1.37.1 (linux/amd64)"}:                                                   true,
		{User: "jane", Agent: "kubectl.exe/v1.37.1"}:                                                             true,
		{User: "jane", Agent: "kubectl-kindred/v0.0.0"}:                                                          true,
		{User: "jane", Agent: "kindred/v0.1.0"}:                                                                  true,
		{User: "jane", Agent: "Helm/3.19"}:                                                                       true,
		{User: "jane", Agent: "Mozilla/5.0"}:                                                                     true,
		{User: "jane"}:                                                                                           true,
		{User: "system:serviceaccount:ci:deployer", Agent: "kubectl/v1.37.1"}:                                    true,
		{User: "system:serviceaccount:capi-system:capi-manager", Agent: "manager/v1.14"}:                         false,
		{User: "kubernetes-admin", Agent: "manager/v1.14"}:                                                       false,
		{User: "system:serviceaccount:kube-system:namespace-controller", Agent: "kube-controller-manager/v1.37"}: false,
		{User: "system:node:n1", Agent: "kubelet/v1"}:                                                            false,
		{User: "system:kube-controller-manager", Agent: "kindred/v0.1.0"}:                                        false,
		{User: "system:apiserver"}:                                                                               false,
		{}:                                                                                                       false,
	} {
		if got := caller.IsPerson(); got != want {
			t.Errorf("%+v: %v", caller, got)
		}
	}
}

func TestFollows(t *testing.T) {
	operator, jane := Caller{User: "system:serviceaccount:a:b", Agent: "manager/v1"}, Caller{User: "jane", Agent: "kubectl/v1"}
	for name, tt := range map[string]struct {
		by     Caller
		policy metav1.DeletionPropagation
		want   bool
	}{
		"operator":                {operator, metav1.DeletePropagationBackground, true},
		"operator, foreground":    {operator, metav1.DeletePropagationForeground, true},
		"operator, owner orphans": {operator, metav1.DeletePropagationOrphan, false},
		"person":                  {jane, metav1.DeletePropagationBackground, false},
	} {
		if got := (&Record{By: tt.by}).Follows(tt.policy); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestPrecedes: requests are ordered by revision, even if their times differ.
func TestPrecedes(t *testing.T) {
	at := func(second int, revision int64, owners ...metav1.OwnerReference) Record {
		return Record{Time: metav1.NewMicroTime(time.Unix(int64(second), 0)), Revision: revision, Owners: owners}
	}
	for name, tt := range map[string]struct {
		a, b Record
		want bool
	}{
		"requests":                  {at(1, 5), at(2, 6), true},
		"requests, clock set back":  {at(2, 5), at(1, 6), true},
		"requests, reversed":        {at(1, 6), at(2, 5), false},
		"collected, recorded later": {at(1, 9, metav1.OwnerReference{}), at(2, 6), true},
		"collected later":           {at(3, 9, metav1.OwnerReference{}), at(2, 6), false},
	} {
		if got := tt.a.Precedes(tt.b); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
