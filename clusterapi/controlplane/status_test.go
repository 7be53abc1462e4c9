// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	controlplanev1 "github.com/kindred-project/kindred/clusterapi/api/controlplane/v1alpha1"
)

// TestVersion: the version of a control plane is the lowest of its machines, or that of the first one to come.
func TestVersion(t *testing.T) {
	for _, test := range []struct {
		name     string
		machines []string
		want     string
	}{
		{"no machine", nil, "v1.38.0"},
		{"one", []string{"v1.38.0"}, "v1.38.0"},
		{"a rollout", []string{"v1.38.0", "v1.37.1"}, "v1.37.1"},
	} {
		s := &scope{KindredControlPlane: &controlplanev1.KindredControlPlane{}, cluster: &clusterv1.Cluster{}, machines: collections.New()}
		s.Spec.Version = "v1.38.0"
		for _, version := range test.machines {
			m := &clusterv1.Machine{Spec: clusterv1.MachineSpec{Version: version}}
			m.Name = version
			s.machines.Insert(m)
		}
		s.count()
		if s.Status.Version != test.want || len(s.Status.Versions) != len(test.machines) {
			t.Errorf("%s: %s, %v, want %s", test.name, s.Status.Version, s.Status.Versions, test.want)
		}
	}
}
