// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	fakescale "k8s.io/client-go/scale/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// bed is a controller of autoscalers whose targets are Widgets, a custom resource with a scale. It is
// the source of their metrics.
type bed struct {
	*reconciler
	t      *testing.T
	api    client.WithWatch
	clock  *testingclock.FakeClock
	events *record.FakeRecorder
	// replicas of the Widgets by name; conflicts is how many updates conflict.
	replicas  map[string]int32
	selector  string
	conflicts int
	// usage is what each pod uses of a resource, value the value of any other metric, broken its error.
	usage  int64
	value  int64
	broken map[autoscalingv2.MetricSourceType]error
}

func newBed(t *testing.T, objects ...client.Object) *bed {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(autoscalingv2.AddToScheme(scheme))
	b := &bed{
		t: t, api: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&autoscalingv2.HorizontalPodAutoscaler{}).WithObjects(objects...).Build(),
		clock: testingclock.NewFakeClock(start), events: record.NewFakeRecorder(100),
		replicas: map[string]int32{"w": 2}, selector: "app=web", broken: map[autoscalingv2.MetricSourceType]error{},
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "example.com", Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, meta.RESTScopeNamespace)
	scales := &fakescale.FakeScaleClient{}
	scales.AddReactor("get", "widgets", b.getScale)
	scales.AddReactor("update", "widgets", b.updateScale)
	b.reconciler = newReconciler(control.Env{Client: b.api, Events: b.events, Clock: b.clock}, b, scales, mapper)
	return b
}

func (b *bed) getScale(action clienttesting.Action) (bool, runtime.Object, error) {
	name := action.(clienttesting.GetAction).GetName()
	replicas, ok := b.replicas[name]
	if !ok {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Group: "example.com", Resource: "widgets"}, name)
	}
	return true, &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
		Status: autoscalingv1.ScaleStatus{Replicas: replicas, Selector: b.selector},
	}, nil
}

func (b *bed) updateScale(action clienttesting.Action) (bool, runtime.Object, error) {
	scale := action.(clienttesting.UpdateAction).GetObject().(*autoscalingv1.Scale)
	if b.conflicts > 0 {
		b.conflicts--
		return true, nil, apierrors.NewConflict(schema.GroupResource{Group: "example.com", Resource: "widgets"}, scale.Name, errors.New("changed"))
	}
	b.replicas[scale.Name] = scale.Spec.Replicas
	return true, scale, nil
}

func (b *bed) resource(_ context.Context, _ string, _ labels.Selector, _ corev1.ResourceName, _ string) (samples, error) {
	return b.samples(b.usage), b.broken[autoscalingv2.ResourceMetricSourceType]
}

func (b *bed) samples(value int64) samples {
	all := &corev1.PodList{}
	if err := b.api.List(b.t.Context(), all); err != nil {
		b.t.Fatal(err)
	}
	found := samples{}
	for _, pod := range all.Items {
		found[pod.Name] = sample{at: b.clock.Now(), window: interval, value: value}
	}
	return found
}

func (b *bed) pods(string, labels.Selector, autoscalingv2.MetricIdentifier) (samples, error) {
	return b.samples(b.value), b.broken[autoscalingv2.PodsMetricSourceType]
}

func (b *bed) object(string, autoscalingv2.CrossVersionObjectReference, autoscalingv2.MetricIdentifier) (int64, error) {
	return b.value, b.broken[autoscalingv2.ObjectMetricSourceType]
}

func (b *bed) external(string, autoscalingv2.MetricIdentifier) (int64, error) {
	return b.value, b.broken[autoscalingv2.ExternalMetricSourceType]
}

// pass runs one pass, 15 seconds after the last one, with as many running pods as replicas, and returns
// the autoscaler.
func (b *bed) pass(name string) *autoscalingv2.HorizontalPodAutoscaler {
	b.t.Helper()
	b.clock.Step(interval)
	ctx := b.t.Context()
	if err := b.api.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("ns")); err != nil {
		b.t.Fatal(err)
	}
	for i := range b.replicas["w"] {
		if err := b.api.Create(ctx, runningPod(int(i))); err != nil {
			b.t.Fatal(err)
		}
	}
	key := client.ObjectKey{Namespace: "ns", Name: name}
	result, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter != interval {
		b.t.Fatalf("got %v, %v", result, err)
	}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := b.api.Get(ctx, key, hpa); err != nil {
		b.t.Fatal(err)
	}
	return hpa
}

// recorded returns the events since the last call.
func (b *bed) recorded() []string {
	var events []string
	for {
		select {
		case e := <-b.events.Events:
			events = append(events, e)
		default:
			return events
		}
	}
}

func (b *bed) wantEvents(want ...string) {
	b.t.Helper()
	if got := b.recorded(); !slices.Equal(got, want) {
		b.t.Errorf("events:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// conditions returns the conditions as "type=status reason: message".
func conditions(hpa *autoscalingv2.HorizontalPodAutoscaler) map[autoscalingv2.HorizontalPodAutoscalerConditionType]string {
	out := map[autoscalingv2.HorizontalPodAutoscalerConditionType]string{}
	for _, c := range hpa.Status.Conditions {
		out[c.Type] = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	return out
}

func (b *bed) wantConditions(hpa *autoscalingv2.HorizontalPodAutoscaler, want map[autoscalingv2.HorizontalPodAutoscalerConditionType]string) {
	b.t.Helper()
	if diff := cmp.Diff(want, conditions(hpa)); diff != "" {
		b.t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

// newAutoscaler returns an autoscaler of the Widget w by half of the requested CPU, or by other metrics.
func newAutoscaler(metrics ...autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscaler {
	if len(metrics) == 0 {
		metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))},
		}}}
	}
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1", Generation: 3},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "example.com/v1", Kind: "Widget", Name: "w"},
			MinReplicas:    new(int32(1)), MaxReplicas: 10, Metrics: metrics,
		},
	}
}

func external(value, average string) autoscalingv2.MetricSpec {
	m := &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "queue", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"q": "1"}}}}
	if value != "" {
		m.Target = autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: new(resource.MustParse(value))}
	} else {
		m.Target = autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse(average))}
	}
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: m}
}

const (
	able    = autoscalingv2.AbleToScale
	active  = autoscalingv2.ScalingActive
	limitBy = autoscalingv2.ScalingLimited
	toZero  = autoscalingv2.ScaledToZero
)

func TestScaleUpAndDown(t *testing.T) {
	b := newBed(t, newAutoscaler())
	b.usage = 1000
	hpa := b.pass("a")
	if b.replicas["w"] != 4 {
		t.Errorf("%d replicas", b.replicas["w"])
	}
	b.wantEvents("Normal SuccessfulRescale New size: 4; reason: cpu resource utilization (percentage of request) above target")
	b.wantConditions(hpa, map[autoscalingv2.HorizontalPodAutoscalerConditionType]string{
		able:    "True SucceededRescale: the HPA controller was able to update the target scale to 4",
		active:  "True ValidMetricFound: the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)",
		limitBy: "False DesiredWithinRange: the desired count is within the acceptable range",
		toZero:  "False NotScaledToZero: the HPA controller did not scale the workload to zero",
	})
	scaledAt := metav1.NewTime(b.clock.Now())
	status := autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: new(int64(3)), LastScaleTime: &scaledAt, CurrentReplicas: 2, DesiredReplicas: 4, Conditions: hpa.Status.Conditions,
		CurrentMetrics: []autoscalingv2.MetricStatus{{Type: "Resource", Resource: &autoscalingv2.ResourceMetricStatus{Name: "cpu",
			Current: autoscalingv2.MetricValueStatus{AverageUtilization: new(int32(100)), AverageValue: new(resource.MustParse("1"))}}}},
	}
	if diff := cmp.Diff(status, hpa.Status, cmp.Comparer(func(a, b metav1.Time) bool { return a.Time.Truncate(time.Second).Equal(b.Time.Truncate(time.Second)) })); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	b.usage = 100
	hpa = b.pass("a")
	if c := conditions(hpa); b.replicas["w"] != 4 || !strings.HasPrefix(c[able], "True ScaleDownStabilized: ") {
		t.Errorf("%d replicas, %v", b.replicas["w"], c)
	}
	b.clock.Step(downscaleWindow)
	b.pass("a")
	if b.replicas["w"] != 1 {
		t.Errorf("after the window: %d replicas", b.replicas["w"])
	}
	b.wantEvents("Normal SuccessfulRescale New size: 1; reason: All metrics below target")
}

// TestHold: an autoscaler on hold changes nothing, and goes on when the hold ends.
func TestHold(t *testing.T) {
	held := newAutoscaler()
	held.Annotations = map[string]string{ownership.HoldAnnotation: ""}
	b := newBed(t, held)
	b.usage = 1000
	hpa := b.pass("a")
	if b.replicas["w"] != 2 || len(hpa.Status.Conditions) != 0 {
		t.Errorf("on hold: %d replicas, %v", b.replicas["w"], conditions(hpa))
	}
	hpa.Annotations = nil
	if err := b.api.Update(t.Context(), hpa); err != nil {
		t.Fatal(err)
	}
	b.pass("a")
	if b.replicas["w"] != 4 {
		t.Errorf("after the hold: %d replicas", b.replicas["w"])
	}
}

// TestRestart: a controller that does not know the past does not remove replicas at once.
func TestRestart(t *testing.T) {
	b := newBed(t, newAutoscaler())
	b.replicas["w"], b.usage = 8, 0
	b.pass("a")
	if b.replicas["w"] != 8 {
		t.Errorf("%d replicas", b.replicas["w"])
	}
}

func TestBounds(t *testing.T) {
	b := newBed(t, newAutoscaler())
	b.broken[autoscalingv2.ResourceMetricSourceType] = errors.New("not asked")
	b.replicas["w"] = 12
	b.pass("a")
	b.wantEvents("Normal SuccessfulRescale New size: 10; reason: Current number of replicas above Spec.MaxReplicas")

	hpa := newAutoscaler()
	hpa.Spec.MinReplicas = new(int32(3))
	b = newBed(t, hpa)
	b.pass("a")
	b.wantEvents("Normal SuccessfulRescale New size: 3; reason: Current number of replicas below Spec.MinReplicas")
}

func TestNoTarget(t *testing.T) {
	for _, test := range []struct {
		ref  autoscalingv2.CrossVersionObjectReference
		want string
	}{
		{autoscalingv2.CrossVersionObjectReference{APIVersion: "example.com/v1", Kind: "Widget", Name: "none"}, `widgets.example.com "none" not found`},
		{autoscalingv2.CrossVersionObjectReference{APIVersion: "example.com/v1", Kind: "Gadget", Name: "w"}, "no matches for example.com/, Resource=Gadget"},
		{autoscalingv2.CrossVersionObjectReference{APIVersion: "a/b/c", Kind: "Widget", Name: "w"}, `unexpected GroupVersion string: a/b/c`},
	} {
		hpa := newAutoscaler()
		hpa.Spec.ScaleTargetRef = test.ref
		b := newBed(t, hpa)
		got := b.pass("a")
		b.wantEvents("Warning FailedGetScale " + test.want)
		b.wantConditions(got, map[autoscalingv2.HorizontalPodAutoscalerConditionType]string{
			able: "False FailedGetScale: the HPA controller was unable to get the target's current scale: " + test.want,
		})
	}
}

func TestNoMetrics(t *testing.T) {
	b := newBed(t, newAutoscaler())
	b.broken[autoscalingv2.ResourceMetricSourceType] = errors.New("no metrics returned from resource metrics API")
	hpa := b.pass("a")
	const failed = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API"
	b.wantEvents("Warning FailedGetResourceMetric "+failed,
		"Warning FailedComputeMetricsReplicas invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: "+failed)
	b.wantConditions(hpa, map[autoscalingv2.HorizontalPodAutoscalerConditionType]string{
		able:   "True SucceededGetScale: the HPA controller was able to get the target's current scale",
		active: "False FailedGetResourceMetric: the HPA was unable to compute the replica count: " + failed,
	})
	if b.replicas["w"] != 2 || hpa.Status.CurrentReplicas != 2 {
		t.Errorf("%v, %v", b.replicas, hpa.Status)
	}
}

// TestSomeMetrics: a metric that fails does not prevent replicas from being added, but from being
// removed.
func TestSomeMetrics(t *testing.T) {
	b := newBed(t, newAutoscaler(newAutoscaler().Spec.Metrics[0], external("10", "")))
	b.broken[autoscalingv2.ExternalMetricSourceType] = errors.New("down")
	const failed = "Warning FailedGetExternalMetric failed to get external metric queue: unable to get external metric ns/queue/&LabelSelector{MatchLabels:map[string]string{q: 1,},MatchExpressions:[]LabelSelectorRequirement{},}: down"
	b.usage = 1000
	hpa := b.pass("a")
	b.wantEvents(failed, "Normal SuccessfulRescale New size: 4; reason: cpu resource utilization (percentage of request) above target")
	if len(hpa.Status.CurrentMetrics) != 2 || hpa.Status.CurrentMetrics[1].External != nil {
		t.Errorf("metrics %v", hpa.Status.CurrentMetrics)
	}
	b.usage = 0
	b.clock.Step(2 * downscaleWindow)
	if hpa = b.pass("a"); b.replicas["w"] != 4 || !strings.HasPrefix(conditions(hpa)[active], "False FailedGetExternalMetric: ") {
		t.Errorf("%d replicas, %v", b.replicas["w"], conditions(hpa))
	}
}

func TestKindsOfMetrics(t *testing.T) {
	object := autoscalingv2.ObjectMetricSource{
		DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "s"}, Metric: autoscalingv2.MetricIdentifier{Name: "requests"},
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: new(resource.MustParse("10"))},
	}
	shared := object
	shared.Target = autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse("10"))}
	average := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse("10"))}
	for _, test := range []struct {
		spec   autoscalingv2.MetricSpec
		want   int32
		reason string
	}{
		{autoscalingv2.MetricSpec{Type: "Object", Object: &object}, 4, "Service metric requests"},
		{autoscalingv2.MetricSpec{Type: "Object", Object: &shared}, 2, "external metric requests(nil)"},
		{autoscalingv2.MetricSpec{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: object.Metric, Target: average}}, 4, "pods metric requests"},
		{external("10", ""), 4, "external metric queue(&LabelSelector{MatchLabels:map[string]string{q: 1,},MatchExpressions:[]LabelSelectorRequirement{},})"},
		{external("", "5"), 4, "external metric queue(&LabelSelector{MatchLabels:map[string]string{q: 1,},MatchExpressions:[]LabelSelectorRequirement{},})"},
		{autoscalingv2.MetricSpec{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "memory", Target: average}}, 4, "memory resource"},
		{autoscalingv2.MetricSpec{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "cpu", Container: "app",
			Target: autoscalingv2.MetricTarget{AverageUtilization: new(int32(1000))}}}, 4, "cpu container resource utilization (percentage of request)"},
	} {
		b := newBed(t, newAutoscaler(test.spec))
		b.value, b.usage = 20_000, 20_000
		hpa := b.pass("a")
		if b.replicas["w"] != test.want {
			t.Errorf("%s: %d replicas, want %d", test.reason, b.replicas["w"], test.want)
		}
		if test.want > 2 {
			b.wantEvents(fmt.Sprintf("Normal SuccessfulRescale New size: %d; reason: %s above target", test.want, test.reason))
		}
		if got := hpa.Status.CurrentMetrics; len(got) != 1 || got[0].Type != test.spec.Type {
			t.Errorf("%s: status %v", test.reason, got)
		}
	}
}

// TestScaleToZero: an autoscaler with an external metric removes the last replica and adds the first
// one. If a user removes the last one, autoscaling is disabled.
func TestScaleToZero(t *testing.T) {
	hpa := newAutoscaler(external("", "5"))
	hpa.Spec.MinReplicas = new(int32(0))
	b := newBed(t, hpa)
	b.value = 0
	b.pass("a") // the stabilization window
	b.clock.Step(downscaleWindow)
	got := b.pass("a")
	if b.replicas["w"] != 0 || conditions(got)[toZero] != "True ScaledToZero: the HPA controller scaled the workload to zero" {
		t.Fatalf("%d replicas, %v", b.replicas["w"], conditions(got))
	}
	b.recorded()
	b.pass("a")
	b.wantEvents()
	b.value = 12_000
	got = b.pass("a")
	if b.replicas["w"] != 3 || !strings.HasPrefix(conditions(got)[toZero], "False NotScaledToZero") {
		t.Errorf("%d replicas, %v", b.replicas["w"], conditions(got))
	}
	b.replicas["w"] = 0
	got = b.pass("a")
	if b.replicas["w"] != 0 || conditions(got)[active] != "False ScalingDisabled: scaling is disabled since the replica count of the target is zero" {
		t.Errorf("%d replicas, %v", b.replicas["w"], conditions(got))
	}
}

func TestSelectors(t *testing.T) {
	other := newAutoscaler()
	other.Name, other.UID = "b", "2"
	b := newBed(t, newAutoscaler(), other)
	b.usage = 500
	b.pass("a")
	got := b.pass("b")
	const overlap = "pods by selector app=web are controlled by more than one HPA (e.g. [{a ns} {b ns}])"
	b.wantEvents("Warning AmbiguousSelector "+overlap, "Warning FailedComputeMetricsReplicas "+overlap)
	if conditions(got)[active] != "False AmbiguousSelector: "+overlap {
		t.Errorf("%v", conditions(got))
	}
	if err := b.api.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(other)}); err != nil {
		t.Fatal(err)
	}
	if got := b.pass("a"); !strings.HasPrefix(conditions(got)[active], "True ") {
		t.Errorf("after the other one: %v", conditions(got))
	}
	b.recorded()
	b.selector = ""
	got = b.pass("a")
	b.wantEvents("Warning SelectorRequired selector is required", "Warning FailedComputeMetricsReplicas selector is required")
	if conditions(got)[active] != "False InvalidSelector: the HPA target's scale is missing a selector" {
		t.Errorf("%v", conditions(got))
	}
}

// TestConflict: another client changes the target at the same time.
func TestConflict(t *testing.T) {
	b := newBed(t, newAutoscaler())
	b.usage, b.conflicts = 1000, 1
	b.pass("a")
	if b.replicas["w"] != 4 {
		t.Errorf("%d replicas", b.replicas["w"])
	}
}
