// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// condition is an entry of status.conditions.
func condition(kind, status, reason, message string) any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": message}
}

func TestReadiness(t *testing.T) {
	for _, tt := range []struct {
		name             string
		apiVersion, kind string
		status           map[string]any
		conditions       []any
		want             ownership.Readiness
		message          string
	}{
		{name: "no conditions", want: ownership.ReadinessReady},
		{name: "ready", conditions: []any{condition("Ready", "True", "", "")}, want: ownership.ReadinessReady},
		{
			name: "not ready", conditions: []any{condition("Ready", "False", "Waiting", "no bootstrap data")},
			want: ownership.ReadinessInProgress, message: "no bootstrap data",
		},
		{
			name: "available", conditions: []any{condition("Available", "True", "", "")},
			want: ownership.ReadinessReady,
		},
		{
			name: "not available: a Cluster with Cluster API's v1beta2 conditions", conditions: []any{
				condition("Available", "False", "NotAvailable", "* ControlPlaneAvailable: not yet"), condition("Paused", "False", "NotPaused", ""),
			},
			want: ownership.ReadinessInProgress, message: "* ControlPlaneAvailable: not yet",
		},
		{
			name: "available is unknown", conditions: []any{condition("Available", "Unknown", "InternalError", "")},
			want: ownership.ReadinessInProgress, message: "InternalError",
		},
		{
			name: "ready and not yet available: a Machine of Cluster API", conditions: []any{
				condition("Available", "False", "WaitingForMinReadySeconds", ""), condition("Ready", "True", "", ""),
			},
			want: ownership.ReadinessInProgress, message: "WaitingForMinReadySeconds",
		},
		{
			name: "not available, without reason and message", conditions: []any{condition("Available", "False", "", "")},
			want: ownership.ReadinessInProgress, message: "Available is False",
		},
		{
			name: "paused and available", conditions: []any{condition("Paused", "True", "Paused", "spec.paused"), condition("Available", "True", "", "")},
			want: ownership.ReadinessReady,
		},
		{
			name: "stalled takes precedence over not available", conditions: []any{condition("Available", "False", "", "x"), condition("Stalled", "True", "Broken", "cannot go on")},
			want: ownership.ReadinessFailed, message: "cannot go on",
		},
		{
			name: "an APIService", apiVersion: "apiregistration.k8s.io/v1", kind: "APIService",
			conditions: []any{condition("Available", "False", "ServiceNotFound", "service/x is not present")},
			want:       ownership.ReadinessInProgress, message: "service/x is not present",
		},
		{
			name: "a built-in kind that kstatus knows", apiVersion: "apps/v1", kind: "Deployment",
			status:     map[string]any{"observedGeneration": int64(1), "replicas": int64(1), "updatedReplicas": int64(1), "readyReplicas": int64(1), "availableReplicas": int64(1)},
			conditions: []any{condition("Available", "True", "", ""), condition("Progressing", "True", "NewReplicaSetAvailable", "")},
			want:       ownership.ReadinessReady,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(1)}}}
			o.SetAPIVersion("cluster.x-k8s.io/v1beta2")
			o.SetKind("Machine")
			if tt.kind != "" {
				o.SetAPIVersion(tt.apiVersion)
				o.SetKind(tt.kind)
			}
			o.SetGeneration(1)
			status := map[string]any{}
			for key, value := range tt.status {
				status[key] = value
			}
			if tt.conditions != nil {
				status["conditions"] = tt.conditions
			}
			o.Object["status"] = status
			readiness, message := readinessOf(o)
			if readiness != tt.want || tt.message != "" && message != tt.message {
				t.Errorf("%s: %q, want %s: %q", readiness, message, tt.want, tt.message)
			}
		})
	}
}
