// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
	"github.com/kindred-project/kindred/clusterapi/owner"
)

// TestOrphan: a KindredConfig without its Machine, or whose Machine has no Cluster, says what it waits for.
func TestOrphan(t *testing.T) {
	for kind, missing := range map[string]func(*bed) client.Object{
		"Machine": func(b *bed) client.Object { return b.machine },
		"Cluster": func(b *bed) client.Object { return b.cluster },
	} {
		t.Run(kind, func(t *testing.T) {
			b := newBed(bootstrapv1.Node)
			b.config.CreationTimestamp = metav1.NewTime(began.Add(-owner.Grace))
			r, c := b.start(t)
			if err := c.Delete(t.Context(), missing(b)); err != nil {
				t.Fatal(err)
			}
			key := client.ObjectKeyFromObject(b.config)
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), key, b.config); err != nil {
				t.Fatal(err)
			}
			got := conditions.Get(b.config, clusterv1.ReadyCondition)
			if got == nil || got.Status != metav1.ConditionFalse || got.Reason != "WaitingFor"+kind || got.Message == "" {
				t.Errorf("Ready is %+v", got)
			}
		})
	}
}

// TestPaused: nothing is made while the Cluster or the KindredConfig is paused.
func TestPaused(t *testing.T) {
	for name, pause := range map[string]func(*bed){
		"spec.paused of the Cluster": func(b *bed) { b.cluster.Spec.Paused = ptr.To(true) },
		"annotation":                 func(b *bed) { b.config.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(bootstrapv1.Node)
			pause(b)
			if made := b.run(t); made != nil || len(b.workload.admitted) > 0 {
				t.Errorf("bootstrap data %+v, tokens %v", made, b.workload.admitted)
			}
			if !conditions.IsTrue(b.config, clusterv1.PausedCondition) || conditions.Has(b.config, clusterv1.ReadyCondition) {
				t.Errorf("conditions %+v", b.config.Status.Conditions)
			}
		})
	}
}

// TestNewConfig: a KindredConfig that was just created without its Machine is looked at again.
func TestNewConfig(t *testing.T) {
	b := newBed(bootstrapv1.Node)
	b.config.CreationTimestamp = metav1.NewTime(began.Add(-time.Second))
	r, c := b.start(t)
	if err := c.Delete(t.Context(), b.machine); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(b.config)
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter != owner.Grace-time.Second {
		t.Errorf("%+v, %v", result, err)
	}
	if err := c.Get(t.Context(), key, b.config); err != nil || len(b.config.Status.Conditions) > 0 {
		t.Errorf("conditions %+v, %v", b.config.Status.Conditions, err)
	}
}
