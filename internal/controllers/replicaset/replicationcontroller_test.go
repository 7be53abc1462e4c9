// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

// TestReplicationControllerAsReplicaSet gives each field a different value, so that a lost or
// exchanged field shows in either direction of the conversion.
func TestReplicationControllerAsReplicaSet(t *testing.T) {
	since := metav1.NewTime(controltest.Start)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", "tier": "front"}}}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid", Generation: 7}
	rc := &corev1.ReplicationController{
		ObjectMeta: meta,
		Spec:       corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](6), MinReadySeconds: 8, Selector: map[string]string{"app": "web"}, Template: &template},
		Status: corev1.ReplicationControllerStatus{Replicas: 5, FullyLabeledReplicas: 4, ReadyReplicas: 3, AvailableReplicas: 2, ObservedGeneration: 1,
			Conditions: []corev1.ReplicationControllerCondition{{Type: corev1.ReplicationControllerReplicaFailure, Status: corev1.ConditionTrue, LastTransitionTime: since, Reason: "FailedCreate", Message: "no"}}},
	}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: meta,
		Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](6), MinReadySeconds: 8, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template},
		Status: appsv1.ReplicaSetStatus{Replicas: 5, FullyLabeledReplicas: 4, ReadyReplicas: 3, AvailableReplicas: 2, ObservedGeneration: 1,
			Conditions: []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, LastTransitionTime: since, Reason: "FailedCreate", Message: "no"}}},
	}
	if diff := cmp.Diff(rs, asReplicaSet(rc)); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	written := &corev1.ReplicationController{ObjectMeta: rc.ObjectMeta, Spec: rc.Spec}
	setReplicationControllerStatus(written, rs.Status)
	if diff := cmp.Diff(rc, written); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

// Validation requires a template, but the store may have an object without one.
func TestMissingTemplateIsAnError(t *testing.T) {
	rc := asReplicationController(newRS("web", 1))
	rc.Spec.Template = nil
	w := controltest.New(t, rc)
	r := newReconciler(w.Env(), replicationControllers, w.Seen)
	if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(rc)}); err == nil {
		t.Error("no error")
	}
	list := &corev1.PodList{}
	w.Must(w.API.List(ctx, list))
	w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(rc), rc))
	if len(list.Items) != 0 || len(rc.Status.Conditions) != 1 {
		t.Errorf("%d pods, status %+v", len(list.Items), rc.Status)
	}
}
