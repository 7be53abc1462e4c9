// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/kindred-project/kindred/clusterapi/api/infrastructure/v1alpha1"
)

func TestAwait(t *testing.T) {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		change  func(*infrav1.KindredCluster)
		age     time.Duration
		again   time.Duration
		message string
	}{
		"new":     {age: time.Second, again: Grace - time.Second},
		"old":     {age: Grace, message: "no Cluster owns this object yet: create the Cluster, or delete this object"},
		"paused":  {age: Grace, change: func(c *infrav1.KindredCluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }},
		"moved":   {age: Grace, change: markPaused},
		"deleted": {age: Grace, change: markDeleted, message: "the Cluster of this object does not exist, so that the object cannot be cleaned up: create the Cluster again, or remove the finalizers"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &infrav1.KindredCluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default", CreationTimestamp: metav1.NewTime(created)}}
			if tt.change != nil {
				tt.change(o)
			}
			c := newClient(t, o)
			result, err := Await(t.Context(), c, created.Add(tt.age), o, clusterv1.ReadyCondition, "Cluster")
			if err != nil || result.RequeueAfter != tt.again {
				t.Errorf("%+v, %v, want another attempt after %v", result, err, tt.again)
			}
			stored := &infrav1.KindredCluster{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), stored); err != nil {
				t.Fatal(err)
			}
			got := conditions.Get(stored, clusterv1.ReadyCondition)
			if (got == nil) != (tt.message == "") {
				t.Fatalf("Ready is %+v", got)
			}
			if got != nil && (got.Status != metav1.ConditionFalse || got.Reason != "WaitingForCluster" || got.Message != tt.message) {
				t.Errorf("Ready is %+v, want the message %q", got, tt.message)
			}
		})
	}
}

// TestAwaitDeletedObject: an object that disappears while its condition is written is no error.
func TestAwaitDeletedObject(t *testing.T) {
	o := &infrav1.KindredCluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"}}
	if _, err := Await(t.Context(), newClient(t), time.Now(), o, clusterv1.ReadyCondition, "Cluster"); err != nil {
		t.Error(err)
	}
}

// markPaused sets the condition that an object of a paused Cluster has, also after a move has deleted the Cluster.
func markPaused(c *infrav1.KindredCluster) {
	conditions.Set(c, metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.PausedReason})
}

// markDeleted marks an object as being deleted, which a finalizer delays.
func markDeleted(c *infrav1.KindredCluster) {
	now := metav1.Now()
	c.DeletionTimestamp, c.Finalizers = &now, []string{infrav1.ClusterFinalizer}
}

func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := infrav1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&infrav1.KindredCluster{}).Build()
}
