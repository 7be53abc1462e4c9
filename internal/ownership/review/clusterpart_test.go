// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

func TestClusterPart(t *testing.T) {
	well := []any{condition("Available", "True", "", ""), condition("Paused", "False", "", ""), condition("ScalingUp", "False", "", "")}
	for _, tt := range []struct {
		name, apiVersion, kind string
		labels                 map[string]string
		fields                 map[string]any
		want                   *ownership.ClusterPart
	}{
		{name: "none of Cluster API", apiVersion: "apps/v1", kind: "Deployment"},
		{name: "a group that only ends alike", apiVersion: "notcluster.x-k8s.io/v1", kind: "Machine"},
		{name: "a template", apiVersion: "infrastructure.cluster.x-k8s.io/v1beta2", kind: "DevClusterTemplate"},
		{name: "a class", apiVersion: "cluster.x-k8s.io/v1beta2", kind: "ClusterClass"},
		{
			name: "a Cluster", apiVersion: "cluster.x-k8s.io/v1beta2", kind: "Cluster",
			fields: map[string]any{"status": map[string]any{"conditions": append(well, condition("RollingOut", "True", "RollingOut", "Rolling out 1 of 3"), condition("WorkersAvailable", "Unknown", "Unknown", ""))}},
			want: &ownership.ClusterPart{Conditions: []metav1.Condition{
				{Type: "RollingOut", Status: "True", Reason: "RollingOut", Message: "Rolling out 1 of 3"}, {Type: "WorkersAvailable", Status: "Unknown", Reason: "Unknown"},
			}},
		},
		{
			name: "the infrastructure", apiVersion: "infrastructure.cluster.x-k8s.io/v1beta2", kind: "DevCluster",
			fields: map[string]any{"status": map[string]any{"conditions": well}},
			want:   &ownership.ClusterPart{Role: ownership.RoleInfrastructure},
		},
		{
			name: "a control plane", apiVersion: "controlplane.cluster.x-k8s.io/v1beta2", kind: "KubeadmControlPlane",
			fields: map[string]any{
				"spec":   map[string]any{"version": "v1.37.0", "replicas": int64(3)},
				"status": map[string]any{"readyReplicas": int64(2), "upToDateReplicas": int64(1)},
			},
			want: &ownership.ClusterPart{Role: ownership.RoleControlPlane, Version: "v1.37.0", Replicas: new(int32(3)), ReadyReplicas: new(int32(2)), UpToDateReplicas: new(int32(1))},
		},
		{
			name: "a machine of it", apiVersion: "cluster.x-k8s.io/v1beta2", kind: "Machine", labels: map[string]string{clusterapi.ControlPlaneLabel: ""},
			fields: map[string]any{"spec": map[string]any{"version": "v1.37.0"}, "status": map[string]any{"nodeRef": map[string]any{"name": "n"}}},
			want:   &ownership.ClusterPart{Role: ownership.RoleControlPlane, Version: "v1.37.0", Node: "n"},
		},
		{
			name: "workers", apiVersion: "cluster.x-k8s.io/v1beta2", kind: "MachineDeployment",
			fields: map[string]any{"spec": map[string]any{"replicas": int64(2), "template": map[string]any{"spec": map[string]any{"version": "v1.36.0"}}}},
			want:   &ownership.ClusterPart{Role: ownership.RoleWorkers, Version: "v1.36.0", Replicas: new(int32(2))},
		},
		{
			name: "a machine's configuration", apiVersion: "bootstrap.cluster.x-k8s.io/v1beta2", kind: "KubeadmConfig",
			fields: map[string]any{"status": map[string]any{"conditions": []any{condition("DataSecretAvailable", "False", "Waiting", "for the control plane")}}},
			want:   &ownership.ClusterPart{Conditions: []metav1.Condition{{Type: "DataSecretAvailable", Status: "False", Reason: "Waiting", Message: "for the control plane"}}},
		},
		{
			name: "other conditions", apiVersion: "infrastructure.cluster.x-k8s.io/v1", kind: "OwnMachine",
			fields: map[string]any{"status": map[string]any{"conditions": "none"}}, want: &ownership.ClusterPart{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: tt.fields}
			if o.Object == nil {
				o.Object = map[string]any{}
			}
			o.SetAPIVersion(tt.apiVersion)
			o.SetKind(tt.kind)
			o.SetLabels(tt.labels)
			if diff := cmp.Diff(tt.want, clusterPartOf(o), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
