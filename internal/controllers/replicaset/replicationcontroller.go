// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// ReplicationControllerName is the identity of the controller of ReplicationControllers.
const ReplicationControllerName = "replication-controller"

var replicationControllers = kind[corev1.ReplicationController, *corev1.ReplicationController]{
	name:      ReplicationControllerName,
	gvk:       corev1.SchemeGroupVersion.WithKind("ReplicationController"),
	list:      listReplicationControllers,
	view:      asReplicaSet,
	setStatus: setReplicationControllerStatus,
}

// AddReplicationControllers registers the controller for ReplicationControllers.
func AddReplicationControllers(env control.Env) error { return add(env, replicationControllers) }

func listReplicationControllers(ctx context.Context, from client.Reader, opts ...client.ListOption) ([]corev1.ReplicationController, error) {
	found := &corev1.ReplicationControllerList{}
	err := from.List(ctx, found, opts...)
	return found.Items, err
}

// asReplicaSet converts a ReplicationController to the equivalent ReplicaSet.
func asReplicaSet(rc *corev1.ReplicationController) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: rc.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        rc.Spec.Replicas,
			MinReadySeconds: rc.Spec.MinReadySeconds,
			Selector:        &metav1.LabelSelector{MatchLabels: rc.Spec.Selector},
			// Validation requires a template.
			Template: ptr.Deref(rc.Spec.Template, corev1.PodTemplateSpec{}),
		},
		Status: appsv1.ReplicaSetStatus{
			Replicas:             rc.Status.Replicas,
			FullyLabeledReplicas: rc.Status.FullyLabeledReplicas,
			ReadyReplicas:        rc.Status.ReadyReplicas,
			AvailableReplicas:    rc.Status.AvailableReplicas,
			ObservedGeneration:   rc.Status.ObservedGeneration,
			Conditions: convertAll(rc.Status.Conditions, func(c corev1.ReplicationControllerCondition) appsv1.ReplicaSetCondition {
				return appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status,
					LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
			}),
		},
	}
}

func setReplicationControllerStatus(rc *corev1.ReplicationController, status appsv1.ReplicaSetStatus) {
	rc.Status = corev1.ReplicationControllerStatus{
		Replicas:             status.Replicas,
		FullyLabeledReplicas: status.FullyLabeledReplicas,
		ReadyReplicas:        status.ReadyReplicas,
		AvailableReplicas:    status.AvailableReplicas,
		ObservedGeneration:   status.ObservedGeneration,
		Conditions: convertAll(status.Conditions, func(c appsv1.ReplicaSetCondition) corev1.ReplicationControllerCondition {
			return corev1.ReplicationControllerCondition{Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status,
				LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
		}),
	}
}

// convertAll converts the elements of a slice. It returns nil for an empty one.
func convertAll[A, B any](in []A, convert func(A) B) []B {
	var out []B
	for _, a := range in {
		out = append(out, convert(a))
	}
	return out
}
