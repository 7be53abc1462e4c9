// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

// exceptional are the conditions of Cluster API that are True only while something is under way. All others are True if all is well
// (https://cluster-api.sigs.k8s.io/developer/providers/contracts/overview).
var exceptional = []string{"Deleting", "Paused", "Remediating", "RollingOut", "ScalingDown", "ScalingUp", "Updating"}

// clusterPartOf returns what an object of Cluster API is to its Cluster, nil for other objects and for templates and classes.
func clusterPartOf(o *unstructured.Unstructured) *ownership.ClusterPart {
	group, kind := o.GroupVersionKind().Group, o.GetKind()
	if !clusterapi.Has(group) || strings.HasSuffix(kind, "Template") || kind == clusterapi.ClusterClass.Kind {
		return nil
	}
	part := &ownership.ClusterPart{Role: roleOf(o, group, kind), Conditions: remarkable(o)}
	part.Version, _, _ = unstructured.NestedString(o.Object, "spec", "version")
	if part.Version == "" {
		part.Version, _, _ = unstructured.NestedString(o.Object, "spec", "template", "spec", "version")
	}
	part.Node, _, _ = unstructured.NestedString(o.Object, "status", "nodeRef", "name")
	part.Replicas = number(o, "spec", "replicas")
	part.ReadyReplicas = number(o, "status", "readyReplicas")
	part.UpToDateReplicas = number(o, "status", "upToDateReplicas")
	return part
}

func roleOf(o *unstructured.Unstructured, group, kind string) ownership.ClusterRole {
	_, ofControlPlane := o.GetLabels()[clusterapi.ControlPlaneLabel]
	switch {
	case group == clusterapi.Infrastructure && strings.HasSuffix(kind, "Cluster"):
		return ownership.RoleInfrastructure
	case group == clusterapi.ControlPlane, ofControlPlane && kind == clusterapi.Machine.Kind:
		return ownership.RoleControlPlane
	case slices.Contains([]string{"Machine", "MachineSet", "MachineDeployment", "MachinePool"}, kind):
		return ownership.RoleWorkers
	}
	return ""
}

func number(o *unstructured.Unstructured, fields ...string) *int32 {
	n, found, err := unstructured.NestedInt64(o.Object, fields...)
	if !found || err != nil {
		return nil
	}
	return new(int32(n))
}

// remarkable returns the conditions that say that something is not as it should be, or under way.
func remarkable(o *unstructured.Unstructured) []metav1.Condition {
	var status struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &status); err != nil {
		return nil // not the conditions of the API conventions
	}
	return slices.DeleteFunc(status.Status.Conditions, func(c metav1.Condition) bool {
		usual := metav1.ConditionTrue
		if slices.Contains(exceptional, c.Type) {
			usual = metav1.ConditionFalse
		}
		return c.Status == usual
	})
}
