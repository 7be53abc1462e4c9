// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kindred-project/kindred/clusterapi/api/infrastructure/v1alpha1"
)

// TestOrphans: an object without its Cluster or Machine says what it waits for, and is provisioned once that exists.
func TestOrphans(t *testing.T) {
	for name, tt := range map[string]struct {
		without []string
		kind    string
		reason  string
	}{
		"KindredCluster without a Cluster":                  {[]string{"Cluster"}, "KindredCluster", "WaitingForCluster"},
		"KindredMachine without a Machine":                  {[]string{"Machine"}, "KindredMachine", "WaitingForMachine"},
		"KindredMachine with a Machine without its Cluster": {[]string{"Cluster"}, "KindredMachine", "WaitingForCluster"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, machine, secret, m, kc := objects()
			all := map[string]client.Object{"Cluster": cluster, "Machine": machine}
			existing := []client.Object{secret, m, kc}
			for kind, object := range all {
				if kind != tt.without[0] {
					existing = append(existing, object)
				}
			}
			c, host := newClient(t, existing...), newFakeHost()
			reconcile, object := (&ClusterReconciler{Client: c, Host: host, Clock: clock.RealClock{}}).Reconcile, conditions.Setter(kc)
			if tt.kind == "KindredMachine" {
				reconcile, object = (&MachineReconciler{Client: c, Host: host, Clock: clock.RealClock{}}).Reconcile, m
			}
			if err := settle(t, c, reconcile, object.(client.Object)); err != nil {
				t.Fatal(err)
			}
			got := conditions.Get(object, clusterv1.ReadyCondition)
			if got == nil || got.Status != metav1.ConditionFalse || got.Reason != tt.reason || got.Message == "" {
				t.Errorf("Ready is %+v, want the reason %s", got, tt.reason)
			}
			if len(host.machines) > 0 || len(host.endpoints) > 0 {
				t.Errorf("the host has %v and %v", host.machines, host.endpoints)
			}
			if err := c.Create(t.Context(), all[tt.without[0]]); err != nil {
				t.Fatal(err)
			}
			if err := settle(t, c, reconcile, object.(client.Object)); err != nil {
				t.Fatal(err)
			}
			if !conditions.IsTrue(object, clusterv1.ReadyCondition) {
				t.Errorf("with its %s, Ready is %+v", tt.without[0], conditions.Get(object, clusterv1.ReadyCondition))
			}
		})
	}
}

// TestUnownedCluster: a KindredCluster that has no owner, and that no Cluster names, waits for a Cluster as well.
func TestUnownedCluster(t *testing.T) {
	cluster, _, _, _, kc := objects()
	kc.OwnerReferences, kc.Finalizers = nil, nil
	cluster.Spec.InfrastructureRef.Name = "other"
	c := newClient(t, cluster, kc)
	if err := settle(t, c, (&ClusterReconciler{Client: c, Host: newFakeHost(), Clock: clock.RealClock{}}).Reconcile, kc); err != nil {
		t.Fatal(err)
	}
	if got := conditions.Get(kc, clusterv1.ReadyCondition); got == nil || got.Reason != "WaitingForCluster" {
		t.Errorf("Ready is %+v", got)
	}
	if len(kc.Finalizers) > 0 {
		t.Errorf("the finalizers %v would keep an object that has nothing on the host", kc.Finalizers)
	}
}

// TestExternallyManaged: the infrastructure of another system is not touched.
func TestExternallyManaged(t *testing.T) {
	cluster, _, _, _, kc := objects()
	kc.Annotations, kc.Finalizers = map[string]string{clusterv1.ManagedByAnnotation: "other"}, nil
	c, host := newClient(t, cluster, kc), newFakeHost()
	before := &infrav1.KindredCluster{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(kc), before); err != nil {
		t.Fatal(err)
	}
	if err := settle(t, c, (&ClusterReconciler{Client: c, Host: host, Clock: clock.RealClock{}}).Reconcile, kc); err != nil {
		t.Fatal(err)
	}
	if kc.ResourceVersion != before.ResourceVersion || len(host.endpoints) > 0 {
		t.Errorf("written: %+v, endpoints %v", kc, host.endpoints)
	}
}
