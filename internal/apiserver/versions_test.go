// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTwoVersionsOfOneKind: fields that a client of the newer version set survive an update by a
// client of the older version.
func TestTwoVersionsOfOneKind(t *testing.T) {
	namespace, client := server.namespace(t), server.client(t)
	v1, v2 := client.AutoscalingV1().HorizontalPodAutoscalers(namespace), client.AutoscalingV2().HorizontalPodAutoscalers(namespace)
	memory := autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceMemory, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(70))}}}
	_, err := v2.Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 3, Metrics: []autoscalingv2.MetricSpec{memory}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := v1.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	old := list.Items[0]
	old.Spec.TargetCPUUtilizationPercentage, old.Spec.MaxReplicas = new(int32(50)), 5
	if _, err := v1.Update(t.Context(), &old, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := v2.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || got.Spec.MaxReplicas != 5 || len(got.Spec.Metrics) != 2 || got.Spec.Metrics[0].Resource.Name != corev1.ResourceMemory || len(got.Annotations) != 0 || got.Generation != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = v1.Create(t.Context(), &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "none"}}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "spec.maxReplicas: Required value") {
		t.Errorf("refused in the older version: %v", err)
	}
	applied := server.do(t, server.admin, http.MethodPatch, "/apis/autoscaling/v1/namespaces/"+namespace+"/horizontalpodautoscalers/web?fieldManager=a&force=true",
		`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"web"},"spec":{"minReplicas":2},"status":{"currentReplicas":9}}`, "Content-Type", "application/apply-patch+yaml")
	if applied.code != http.StatusOK || !strings.Contains(applied.body, `"minReplicas":2`) || strings.Contains(applied.body, `"currentReplicas":9`) {
		t.Errorf("applied: %d %s", applied.code, applied.body)
	}
}
