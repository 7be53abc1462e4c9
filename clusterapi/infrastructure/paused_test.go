// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"fmt"
	"testing"

	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/clusterapi/owner"
)

// TestPaused: nothing is made on the host, and nothing is removed, while the Cluster or the object is paused.
func TestPaused(t *testing.T) {
	for name, pause := range map[string]func(*clusterv1.Cluster, client.Object){
		"spec.paused of the Cluster": func(c *clusterv1.Cluster, _ client.Object) { c.Spec.Paused = ptr.To(true) },
		"annotation": func(_ *clusterv1.Cluster, o client.Object) {
			o.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""})
		},
	} {
		for _, kind := range []string{"KindredCluster", "KindredMachine"} {
			for _, deleted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, deleted: %v", kind, name, deleted), func(t *testing.T) { checkPaused(t, kind, pause, deleted) })
			}
		}
	}
}

func checkPaused(t *testing.T, kind string, pause func(*clusterv1.Cluster, client.Object), deleted bool) {
	t.Helper()
	cluster, machine, secret, m, kc := objects()
	object := owner.Object(kc)
	if kind == "KindredMachine" {
		object = m
	}
	pause(cluster, object)
	c, host := newClient(t, cluster, machine, secret, m, kc), newFakeHost()
	reconcile := (&ClusterReconciler{Client: c, Host: host, Clock: clock.RealClock{}}).Reconcile
	if kind == "KindredMachine" {
		reconcile = (&MachineReconciler{Client: c, Host: host, Clock: clock.RealClock{}}).Reconcile
	}
	if deleted {
		if err := c.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	if err := settle(t, c, reconcile, object); err != nil {
		t.Fatal(err)
	}
	if len(host.machines) > 0 || len(host.endpoints) > 0 || len(object.GetFinalizers()) != 1 {
		t.Errorf("machines %v, endpoints %v, finalizers %v", host.machines, host.endpoints, object.GetFinalizers())
	}
	if !conditions.IsTrue(object, clusterv1.PausedCondition) || conditions.Has(object, clusterv1.ReadyCondition) {
		t.Errorf("conditions %+v", object.GetConditions())
	}
}
