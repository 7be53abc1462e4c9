// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"strings"
	"testing"

	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
)

// TestRangeTaken: a cluster whose pods or Services would have addresses of machines is not provisioned, and says why. It is once its
// ranges are others.
func TestRangeTaken(t *testing.T) {
	for name, tt := range map[string]struct {
		services, pods []string
		says           string
	}{
		"no ranges":        {},
		"others":           {services: []string{"10.96.0.0/16"}, pods: []string{"10.244.0.0/16", "fd00:10:244::/56"}},
		"the same network": {pods: []string{"10.192.0.0/16"}, says: "10.192.0.0/16 of spec.clusterNetwork.pods of the Cluster overlaps 10.192.0.0/16, "},
		"a part of it":     {services: []string{"10.192.5.0/24"}, says: "10.192.5.0/24 of spec.clusterNetwork.services "},
		"a larger one":     {services: []string{"10.96.0.0/16"}, pods: []string{"fd00::/56", "10.0.0.0/8"}, says: "10.0.0.0/8 of spec.clusterNetwork.pods "},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, _, _, _, kc := objects()
			cluster.Spec.ClusterNetwork.Services.CIDRBlocks, cluster.Spec.ClusterNetwork.Pods.CIDRBlocks = tt.services, tt.pods
			c := newClient(t, cluster, kc)
			r := &ClusterReconciler{Client: c, Host: newFakeHost(), Clock: clock.RealClock{}}
			if err := settle(t, c, r.Reconcile, kc); err != nil {
				t.Fatal(err)
			}
			ready := conditions.Get(kc, clusterv1.ReadyCondition)
			provisioned := ptr.Deref(kc.Status.Initialization.Provisioned, false)
			if tt.says == "" && !provisioned || tt.says != "" && (provisioned || ready.Reason != rangeTakenReason || !strings.HasPrefix(ready.Message, tt.says)) {
				t.Errorf("provisioned: %v, Ready is %+v", provisioned, ready)
			}
			cluster.Spec.ClusterNetwork.Services.CIDRBlocks, cluster.Spec.ClusterNetwork.Pods.CIDRBlocks = nil, nil
			if err := c.Update(t.Context(), cluster); err != nil {
				t.Fatal(err)
			}
			if err := settle(t, c, r.Reconcile, kc); err != nil {
				t.Fatal(err)
			}
			if !conditions.IsTrue(kc, clusterv1.ReadyCondition) {
				t.Errorf("with other ranges, Ready is %+v", conditions.Get(kc, clusterv1.ReadyCondition))
			}
		})
	}
}
