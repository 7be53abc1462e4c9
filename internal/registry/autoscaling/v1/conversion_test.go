// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{autoscalingv1.AddToScheme, autoscalingv2.AddToScheme, AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func cpu(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu",
		Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: &percent}}}
}

func TestV1(t *testing.T) {
	scheme := newScheme(t)
	for name, test := range map[string]struct {
		in   autoscalingv1.HorizontalPodAutoscaler
		want autoscalingv2.HorizontalPodAutoscaler
	}{
		"nothing": {
			autoscalingv1.HorizontalPodAutoscaler{Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3}},
			autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: new(int32(1)), MaxReplicas: 3, Metrics: []autoscalingv2.MetricSpec{cpu(80)}}},
		},
		"cpu": {
			autoscalingv1.HorizontalPodAutoscaler{
				Spec:   autoscalingv1.HorizontalPodAutoscalerSpec{MinReplicas: new(int32(2)), MaxReplicas: 3, TargetCPUUtilizationPercentage: new(int32(50))},
				Status: autoscalingv1.HorizontalPodAutoscalerStatus{CurrentReplicas: 2, DesiredReplicas: 3, CurrentCPUUtilizationPercentage: new(int32(70))},
			},
			autoscalingv2.HorizontalPodAutoscaler{
				Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: new(int32(2)), MaxReplicas: 3, Metrics: []autoscalingv2.MetricSpec{cpu(50)}},
				Status: autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: 2, DesiredReplicas: 3, CurrentMetrics: []autoscalingv2.MetricStatus{{Type: "Resource",
					Resource: &autoscalingv2.ResourceMetricStatus{Name: "cpu", Current: autoscalingv2.MetricValueStatus{AverageUtilization: new(int32(70))}}}}},
			},
		},
		"annotations": {
			autoscalingv1.HorizontalPodAutoscaler{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
					"mine":             "kept",
					metricsAnnotation:  `[{"type":"Pods","pods":{"metricName":"hits","targetAverageValue":"10"}}]`,
					behaviorAnnotation: `{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":60,"SelectPolicy":null,"Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null}}`,
					currentAnnotation:  `unreadable`,
				}},
				Spec: autoscalingv1.HorizontalPodAutoscalerSpec{TargetCPUUtilizationPercentage: new(int32(50))},
			},
			autoscalingv2.HorizontalPodAutoscaler{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"mine": "kept"}},
				Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
					MinReplicas: new(int32(1)),
					Metrics: []autoscalingv2.MetricSpec{
						{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "hits"}, Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: new(resource.MustParse("10"))}}},
						cpu(50),
					},
					Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(60)), Policies: []autoscalingv2.HPAScalingPolicy{{Type: "Pods", Value: 4, PeriodSeconds: 15}}}},
				},
			},
		},
	} {
		var got autoscalingv2.HorizontalPodAutoscaler
		scheme.Default(&test.in)
		if err := scheme.Convert(&test.in, &got, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestRoundTrip checks that conversion to v1 and back preserves every field of v2.
func TestRoundTrip(t *testing.T) {
	scheme, random := newScheme(t), rand.New(rand.NewSource(1))
	quantity := func() *resource.Quantity { return resource.NewQuantity(random.Int63n(1000)+1, resource.DecimalSI) }
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	metrics := []func() (autoscalingv2.MetricSpec, autoscalingv2.MetricStatus){
		func() (autoscalingv2.MetricSpec, autoscalingv2.MetricStatus) {
			id, ref := autoscalingv2.MetricIdentifier{Name: "o", Selector: selector}, autoscalingv2.CrossVersionObjectReference{Kind: "Service", Name: "s", APIVersion: "v1"}
			return autoscalingv2.MetricSpec{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{Metric: id, DescribedObject: ref, Target: autoscalingv2.MetricTarget{Type: "Value", Value: quantity()}}},
				autoscalingv2.MetricStatus{Type: "Object", Object: &autoscalingv2.ObjectMetricStatus{Metric: id, DescribedObject: ref, Current: autoscalingv2.MetricValueStatus{Value: quantity(), AverageValue: quantity()}}}
		},
		func() (autoscalingv2.MetricSpec, autoscalingv2.MetricStatus) {
			id := autoscalingv2.MetricIdentifier{Name: "p", Selector: selector}
			return autoscalingv2.MetricSpec{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: id, Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: quantity()}}},
				autoscalingv2.MetricStatus{Type: "Pods", Pods: &autoscalingv2.PodsMetricStatus{Metric: id, Current: autoscalingv2.MetricValueStatus{AverageValue: quantity()}}}
		},
		func() (autoscalingv2.MetricSpec, autoscalingv2.MetricStatus) {
			return autoscalingv2.MetricSpec{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceMemory, Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: quantity()}}},
				autoscalingv2.MetricStatus{Type: "Resource", Resource: &autoscalingv2.ResourceMetricStatus{Name: corev1.ResourceMemory, Current: autoscalingv2.MetricValueStatus{AverageValue: quantity(), AverageUtilization: new(int32(3))}}}
		},
		func() (autoscalingv2.MetricSpec, autoscalingv2.MetricStatus) {
			return autoscalingv2.MetricSpec{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "cpu", Container: "c", Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: new(int32(40))}}},
				autoscalingv2.MetricStatus{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{Name: "cpu", Container: "c", Current: autoscalingv2.MetricValueStatus{AverageValue: quantity()}}}
		},
		func() (autoscalingv2.MetricSpec, autoscalingv2.MetricStatus) {
			id := autoscalingv2.MetricIdentifier{Name: "e", Selector: selector}
			return autoscalingv2.MetricSpec{Type: "External", External: &autoscalingv2.ExternalMetricSource{Metric: id, Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: quantity()}}},
				autoscalingv2.MetricStatus{Type: "External", External: &autoscalingv2.ExternalMetricStatus{Metric: id, Current: autoscalingv2.MetricValueStatus{Value: quantity(), AverageValue: quantity()}}}
		},
	}
	for range 200 {
		want := &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"mine": "kept"}},
			Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: new(int32(1)), MaxReplicas: 5, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "d", APIVersion: "apps/v1"}},
		}
		for range random.Intn(4) {
			spec, status := metrics[random.Intn(len(metrics))]()
			want.Spec.Metrics = append(want.Spec.Metrics, spec)
			want.Status.CurrentMetrics = append(want.Status.CurrentMetrics, status)
		}
		if len(want.Spec.Metrics) == 0 || random.Intn(2) == 0 {
			want.Spec.Metrics = append(want.Spec.Metrics, cpu(random.Int31n(100)+1))
		}
		if random.Intn(2) == 0 {
			want.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: &autoscalingv2.HPAScalingRules{
				SelectPolicy: new(autoscalingv2.MinChangePolicySelect), Tolerance: quantity(), Policies: []autoscalingv2.HPAScalingPolicy{{Type: "Percent", Value: 10, PeriodSeconds: 60}}}}
			want.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: "AbleToScale", Status: "True", Reason: "R", Message: "m", ObservedGeneration: new(int64(3))}}
		}
		var v1s autoscalingv1.HorizontalPodAutoscalerList
		var got autoscalingv2.HorizontalPodAutoscalerList
		if err := scheme.Convert(&autoscalingv2.HorizontalPodAutoscalerList{Items: []autoscalingv2.HorizontalPodAutoscaler{*want.DeepCopy()}}, &v1s, nil); err != nil {
			t.Fatal(err)
		}
		if err := scheme.Convert(&v1s, &got, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(*want, got.Items[0]); diff != "" {
			t.Fatalf("(-was +came back):\n%s", diff)
		}
	}
}

func TestSharedAnnotationsAreNotChanged(t *testing.T) {
	shared := map[string]string{metricsAnnotation: "x", behaviorAnnotation: "y", "mine": "kept"}
	if got := DropCarriers(shared); len(got) != 1 || len(shared) != 3 {
		t.Errorf("got %v of %v", got, shared)
	}
	if got := DropCarriers(nil); got != nil {
		t.Errorf("of none: %v", got)
	}
}
