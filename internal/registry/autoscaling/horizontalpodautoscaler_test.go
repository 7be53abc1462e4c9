// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

// wantErrors compares errors by prefix, in any order.
func wantErrors(t *testing.T, name string, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s:\n got  %q\n want %q", name, got, want)
	}
}

type spec = autoscalingv2.HorizontalPodAutoscalerSpec

func newAutoscaler(t *testing.T, change func(*spec)) *autoscalingv2.HorizontalPodAutoscaler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range Group().Scheme {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: spec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 3}}
	change(&h.Spec)
	scheme.Default(h)
	return h
}

func q(s string) *resource.Quantity { return new(resource.MustParse(s)) }

func metric(m autoscalingv2.MetricSpec) func(*spec) {
	return func(s *spec) { s.Metrics = []autoscalingv2.MetricSpec{m} }
}

func pods(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "hits"}, Target: target}}
}

func external(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: "External", External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "queue"}, Target: target}}
}

func TestDefaults(t *testing.T) {
	h := newAutoscaler(t, func(s *spec) {
		s.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(9)), Policies: []autoscalingv2.HPAScalingPolicy{}}}
	})
	want := h.Spec
	want.MinReplicas = new(int32(1))
	want.Metrics = []autoscalingv2.MetricSpec{{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu", Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: new(int32(80))}}}}
	want.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(0)), SelectPolicy: new(autoscalingv2.MaxChangePolicySelect), Policies: []autoscalingv2.HPAScalingPolicy{
			{Type: "Pods", Value: 4, PeriodSeconds: 15}, {Type: "Percent", Value: 100, PeriodSeconds: 15}}},
		ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(9)), SelectPolicy: new(autoscalingv2.MaxChangePolicySelect), Policies: []autoscalingv2.HPAScalingPolicy{}},
	}
	if diff := cmp.Diff(want, h.Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAutoscalers(t *testing.T) {
	average := autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: q("10")}
	rules := func(r autoscalingv2.HPAScalingRules) func(*spec) {
		return func(s *spec) { s.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: &r} }
	}
	const up, first = "spec.behavior.scaleUp.", "spec.metrics[0]."
	both := pods(average)
	both.Resource = &autoscalingv2.ResourceMetricSource{}
	for name, test := range map[string]struct {
		change func(*spec)
		want   []string
	}{
		"plain":                              {func(*spec) {}, nil},
		"no maximum":                         {func(s *spec) { s.MaxReplicas = 0 }, []string{"spec.maxReplicas: Required value: must be set and greater than 0", "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`"}},
		"negative":                           {func(s *spec) { s.MinReplicas, s.MaxReplicas = new(int32(-1)), -1 }, []string{"spec.minReplicas: Invalid value: -1: must be greater than or equal to 0", "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1"}},
		"from zero":                          {func(s *spec) { s.MinReplicas = new(int32(0)) }, []string{"spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"}},
		"from zero, with an external metric": {func(s *spec) { s.MinReplicas = new(int32(0)); metric(external(average))(s) }, nil},
		"no target":                          {func(s *spec) { s.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1"} }, []string{"spec.scaleTargetRef.kind: Required value", "spec.scaleTargetRef.name: Required value"}},
		"no group":                           {func(s *spec) { s.ScaleTargetRef.APIVersion = "v1" }, []string{`spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group`}},
		"core group":                         {func(s *spec) { s.ScaleTargetRef.APIVersion, s.ScaleTargetRef.Kind = "v1", "ReplicationController" }, nil},
		"no version":                         {func(s *spec) { s.ScaleTargetRef.APIVersion = "a/b/c" }, []string{`spec.scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c`}},
		"path":                               {func(s *spec) { s.ScaleTargetRef.Name = ".." }, []string{`spec.scaleTargetRef.name: Invalid value: "..": may not be '..'`}},
		"no type":                            {metric(autoscalingv2.MetricSpec{}), []string{first + "type: Required value: must specify a metric source type", first + `type: Unsupported value: ""`, first + `type: Unsupported value: ""`}},
		"no source":                          {metric(autoscalingv2.MetricSpec{Type: "Pods"}), []string{first + "pods: Required value: must populate information for the given metric source"}},
		"another source":                     {metric(autoscalingv2.MetricSpec{Type: "Object", Pods: pods(average).Pods}), []string{first + "object: Required value: must populate information for the given metric source"}},
		"two sources":                        {metric(both), []string{first + "resource: Forbidden: must populate the given metric source only"}},
		"no average":                         {metric(pods(autoscalingv2.MetricTarget{Type: "Value", Value: q("0")})), []string{first + "pods.target.averageValue: Required value: must specify a positive target averageValue", first + `pods.target.value: Invalid value: "0": must be positive`}},
		"target type":                        {metric(pods(autoscalingv2.MetricTarget{AverageValue: q("1")})), []string{first + "pods.target.type: Required value: must specify a metric target type", first + `pods.target.type: Invalid value: "": must be either Utilization, Value, or AverageValue`}},
		"external, value and average":        {metric(external(autoscalingv2.MetricTarget{Type: "Value", Value: q("1"), AverageValue: q("1")})), []string{first + "external.target.value: Forbidden: may not set both a target value for metric and a per-pod target"}},
		"external, no target":                {metric(external(autoscalingv2.MetricTarget{Type: "Value"})), []string{first + "external.target.averageValue: Required value: must set either a target value for metric or a per-pod target"}},
		"object":                             {metric(autoscalingv2.MetricSpec{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "s"}, Target: average}}), []string{first + "object.metric.name: Required value: must specify a metric name"}},
		"resource":                           {metric(autoscalingv2.MetricSpec{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: new(int32(0)), AverageValue: q("1")}}}), []string{first + "resource.name: Required value: must specify a resource name", first + "resource.target.averageUtilization: Invalid value: 0: must be greater than 0", first + "resource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization"}},
		"container":                          {metric(autoscalingv2.MetricSpec{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "gold", Target: autoscalingv2.MetricTarget{Type: "Utilization"}}}), []string{first + `containerResource.name: Invalid value: "gold": must be a standard resource for containers`, first + `containerResource.name: Invalid value: "gold": must be a standard resource type or fully qualified`, first + "containerResource.container: Required value: must specify a container", first + "containerResource.target.averageUtilization: Required value: must set either a target raw value or a target utilization"}},
		"no policies":                        {rules(autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{}}), []string{up + "policies: Required value: must specify at least one Policy"}},
		"rules":                              {rules(autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(-1)), SelectPolicy: new(autoscalingv2.ScalingPolicySelect("Any")), Tolerance: q("-1")}), []string{up + "stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero", up + `selectPolicy: Unsupported value: "Any": supported values: "Disabled", "Max", "Min"`, up + `tolerance: Invalid value: "-1": must be greater than or equal to 0`}},
		"long window":                        {rules(autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(3601))}), []string{up + "stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600"}},
		"policy":                             {rules(autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{{Type: "Nodes"}, {Type: "Pods", Value: 1, PeriodSeconds: 1801}}}), []string{up + `policies[0].type: Unsupported value: "Nodes": supported values: "Percent", "Pods"`, up + "policies[0].value: Invalid value: 0: must be greater than zero", up + "policies[0].periodSeconds: Invalid value: 0: must be greater than zero", up + "policies[1].periodSeconds: Invalid value: 1801: must be less than or equal to 1800"}},
	} {
		wantErrors(t, name, checktest.Errors(t.Context(), HorizontalPodAutoscaler.Validate, newAutoscaler(t, test.change)), test.want...)
	}
	stale := newAutoscaler(t, func(s *spec) {
		s.ScaleTargetRef.APIVersion = "v1"
		metric(autoscalingv2.MetricSpec{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "a/b/c", Kind: "S", Name: "s"}, Metric: autoscalingv2.MetricIdentifier{Name: "m"}, Target: average}})(s)
	})
	wantErrors(t, "stale", checktest.UpdateErrors(t.Context(), HorizontalPodAutoscaler.ValidateUpdate, stale, stale))
	wantErrors(t, "newly so", checktest.UpdateErrors(t.Context(), HorizontalPodAutoscaler.ValidateUpdate, stale, newAutoscaler(t, func(*spec) {})),
		"spec.scaleTargetRef.apiVersion: Invalid value", "spec.metrics[0].object.describedObject.apiVersion: Invalid value")
}

func TestStatus(t *testing.T) {
	h := newAutoscaler(t, func(*spec) {})
	h.Status = autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: -1, DesiredReplicas: -1, Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{{ObservedGeneration: new(int64(-1))}}}
	wantErrors(t, "status", checktest.UpdateErrors(t.Context(), HorizontalPodAutoscaler.StatusUpdate.Validate, h, h),
		"status.currentReplicas: Invalid value: -1", "status.desiredReplicas: Invalid value: -1", "status.conditions[0].observedGeneration: Invalid value: -1")
}

func TestColumns(t *testing.T) {
	h := newAutoscaler(t, func(s *spec) {
		s.Metrics = []autoscalingv2.MetricSpec{
			pods(autoscalingv2.MetricTarget{AverageValue: q("10")}),
			{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu", Target: autoscalingv2.MetricTarget{AverageUtilization: new(int32(80))}}},
			external(autoscalingv2.MetricTarget{Value: q("1")}),
		}
	})
	h.Status.CurrentReplicas = 2
	h.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: "Pods", Pods: &autoscalingv2.PodsMetricStatus{Current: autoscalingv2.MetricValueStatus{AverageValue: q("7")}}}}
	var got []string
	for _, column := range HorizontalPodAutoscaler.Columns {
		got = append(got, fmt.Sprint(column.Cell(h)))
	}
	if diff := cmp.Diff([]string{"Deployment/web", "7/10, cpu: <unknown>/80% + 1 more...", "1", "3", "2"}, got); diff != "" {
		t.Error(diff)
	}
	for want, m := range map[string]autoscalingv2.MetricSpec{
		"<unknown>/1":           external(autoscalingv2.MetricTarget{Value: q("1")}),
		"<unknown>/1 (avg)":     external(autoscalingv2.MetricTarget{AverageValue: q("1")}),
		"cpu: <unknown>/<auto>": {Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "cpu"}},
		"cpu: <unknown>/1":      {Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu", Target: autoscalingv2.MetricTarget{AverageValue: q("1")}}},
		"<unknown type>":        {Type: "Other"},
	} {
		if got := metricCell(&m, &autoscalingv2.MetricStatus{}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
