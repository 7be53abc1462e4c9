// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package devicetaint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

// taint returns a taint that was added a number of seconds after the start of the test's clock.
func taint(effect resourcev1.DeviceTaintEffect, added int) resourcev1.DeviceTaint {
	at := metav1.NewTime(controltest.Start.Add(time.Duration(added) * time.Second))
	return resourcev1.DeviceTaint{Key: "broken", Value: "yes", Effect: effect, TimeAdded: &at}
}

func newSlice(name, pool string, generation int64, taints map[string][]resourcev1.DeviceTaint, names ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d", Pool: resourcev1.ResourcePool{Name: pool, Generation: generation}}}
	for _, device := range names {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: device, Taints: taints[device]})
	}
	return s
}

func newRule(name string, effect resourcev1.DeviceTaintEffect, selector *resourcev1.DeviceTaintSelector) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1},
		Spec:       resourcev1.DeviceTaintRuleSpec{DeviceSelector: selector, Taint: taint(effect, 0)},
	}
}

// newClaim returns a claim with devices of the pool p, reserved for the pod of the same name.
func newClaim(name string, tolerations []resourcev1.DeviceToleration, names ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: resourcev1.ResourceClaimStatus{
		Allocation:  &resourcev1.AllocationResult{},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: types.UID(name)}},
	}}
	for _, device := range names {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Driver: "d", Pool: "p", Device: device, Tolerations: tolerations})
	}
	return c
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: "n", ResourceClaims: []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &name}}},
	}
}

func tolerate(seconds *int64, effect resourcev1.DeviceTaintEffect) resourcev1.DeviceToleration {
	return resourcev1.DeviceToleration{Key: "broken", Operator: resourcev1.DeviceTolerationOpExists, Effect: effect, TolerationSeconds: seconds}
}

func TestClaimEviction(t *testing.T) {
	const noExecute, noSchedule = resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule
	broken := map[string][]resourcev1.DeviceTaint{"a": {taint(noExecute, 10)}, "b": {taint(noSchedule, 0)}}
	whole := &resourcev1.DeviceTaintSelector{Pool: ptr.To("p")}
	for name, tt := range map[string]struct {
		devices devices
		claim   *resourcev1.ResourceClaim
		// want is the second of the eviction, and the rules; "" if there is none.
		want string
	}{
		"no taints":             {claim: newClaim("c", nil, "a")},
		"of the device":         {devices{slices: []resourcev1.ResourceSlice{*newSlice("s", "p", 1, broken, "a")}}, newClaim("c", nil, "a"), "10 []"},
		"of another device":     {devices{slices: []resourcev1.ResourceSlice{*newSlice("s", "p", 1, broken, "a", "c")}}, newClaim("c", nil, "c"), ""},
		"of another pool":       {devices{slices: []resourcev1.ResourceSlice{*newSlice("s", "q", 1, broken, "a")}}, newClaim("c", nil, "a"), ""},
		"NoSchedule":            {devices{slices: []resourcev1.ResourceSlice{*newSlice("s", "p", 1, broken, "b")}}, newClaim("c", nil, "b"), ""},
		"in an old generation":  {devices{slices: []resourcev1.ResourceSlice{*newSlice("s", "p", 1, broken, "a"), *newSlice("t", "p", 2, nil, "a")}}, newClaim("c", nil, "a"), ""},
		"in the new generation": {devices{slices: []resourcev1.ResourceSlice{*newSlice("s", "p", 1, nil, "a"), *newSlice("t", "p", 2, broken, "a")}}, newClaim("c", nil, "a"), "10 []"},
		"of a rule":             {devices{rules: []resourcev1.DeviceTaintRule{*newRule("r", noExecute, whole)}}, newClaim("c", nil, "a"), "0 [r]"},
		"of a rule for another": {devices{rules: []resourcev1.DeviceTaintRule{*newRule("r", noExecute, &resourcev1.DeviceTaintSelector{Device: ptr.To("z")})}}, newClaim("c", nil, "a"), ""},
		"of a rule for nothing": {devices{rules: []resourcev1.DeviceTaintRule{*newRule("r", noExecute, nil)}}, newClaim("c", nil, "a"), ""},
		"earliest of several": {devices{
			slices: []resourcev1.ResourceSlice{*newSlice("s", "p", 1, broken, "a")},
			rules:  []resourcev1.DeviceTaintRule{*newRule("r", noExecute, whole), *newRule("q", noExecute, whole)},
		}, newClaim("c", nil, "a", "b"), "0 [r q]"},
		"tolerated forever": {devices{slices: []resourcev1.ResourceSlice{*newSlice("s", "p", 1, broken, "a")}},
			newClaim("c", []resourcev1.DeviceToleration{tolerate(nil, noExecute)}, "a"), ""},
		"tolerated for the shortest time": {devices{slices: []resourcev1.ResourceSlice{*newSlice("s", "p", 1, broken, "a")}},
			newClaim("c", []resourcev1.DeviceToleration{tolerate(ptr.To(int64(30)), noExecute), tolerate(ptr.To(int64(20)), noExecute)}, "a"), "30 []"},
		"tolerated for a negative time": {devices{slices: []resourcev1.ResourceSlice{*newSlice("s", "p", 1, broken, "a")}},
			newClaim("c", []resourcev1.DeviceToleration{tolerate(ptr.To(int64(-5)), noExecute)}, "a"), "10 []"},
		"another effect is tolerated": {devices{slices: []resourcev1.ResourceSlice{*newSlice("s", "p", 1, broken, "a")}},
			newClaim("c", []resourcev1.DeviceToleration{tolerate(nil, noSchedule)}, "a"), "10 []"},
	} {
		got := ""
		if e := tt.devices.claimEviction(tt.claim); e != nil {
			got = fmt.Sprint(e.at.Sub(controltest.Start).Seconds(), " ", e.rules)
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestPodEviction(t *testing.T) {
	d := devices{rules: []resourcev1.DeviceTaintRule{*newRule("r", resourcev1.DeviceTaintEffectNoExecute, &resourcev1.DeviceTaintSelector{})}}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod, *resourcev1.ResourceClaim)
		evicts bool
	}{
		"uses the device":     {func(*corev1.Pod, *resourcev1.ResourceClaim) {}, true},
		"has no node":         {func(p *corev1.Pod, _ *resourcev1.ResourceClaim) { p.Spec.NodeName = "" }, false},
		"is not a user":       {func(_ *corev1.Pod, c *resourcev1.ResourceClaim) { c.Status.ReservedFor = nil }, false},
		"is a later namesake": {func(p *corev1.Pod, _ *resourcev1.ResourceClaim) { p.UID = "other" }, false},
		"without allocation":  {func(_ *corev1.Pod, c *resourcev1.ResourceClaim) { c.Status.Allocation = nil }, false},
		"with another's claim": {func(p *corev1.Pod, _ *resourcev1.ResourceClaim) {
			p.Spec.ResourceClaims[0].ResourceClaimName = ptr.To("x")
		}, false},
	} {
		pod, claim := newPod("c"), newClaim("c", nil, "a")
		tt.change(pod, claim)
		find := func(name string) *resourcev1.ResourceClaim {
			if name == "c" {
				return claim
			}
			return nil
		}
		if got := d.podEviction(pod, find, false) != nil; got != tt.evicts {
			t.Errorf("%s: evicts %t, want %t", name, got, tt.evicts)
		}
	}
}

// controllers returns both controllers of a new process.
func controllers(w *controltest.World) (*evictor, *reporter) {
	counts := &evicted{counts: map[types.UID]int{}}
	return &evictor{Env: w.Env(), evicted: counts, pending: map[types.NamespacedName]types.UID{}}, &reporter{Env: w.Env(), evicted: counts}
}

// use creates a pod with a claim to a device.
func use(w *controltest.World, name string, tolerations []resourcev1.DeviceToleration, device string) *corev1.Pod {
	pod, claim := newPod(name), newClaim(name, tolerations, device)
	w.Must(w.API.Create(context.Background(), pod))
	claim.Status.ReservedFor[0].UID = pod.UID // the API sets it
	status := claim.Status
	w.Must(w.API.Create(context.Background(), claim))
	claim.Status = status
	w.Must(w.API.Status().Update(context.Background(), claim))
	w.Sync()
	return pod
}

func reconcilePod(t *testing.T, r *evictor, name string) ctrl.Result {
	t.Helper()
	result, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestEvictor(t *testing.T) {
	ctx := context.Background()
	later := []resourcev1.DeviceToleration{tolerate(ptr.To(int64(60)), resourcev1.DeviceTaintEffectNoExecute)}
	rule := newRule("r", resourcev1.DeviceTaintEffectNoExecute, &resourcev1.DeviceTaintSelector{})
	w := controltest.New(t, rule)
	use(w, "now", nil, "a")
	use(w, "later", later, "b")
	use(w, "saved", later, "c")
	r, _ := controllers(w)

	reconcilePod(t, r, "now")
	pod := &corev1.Pod{}
	if err := w.API.Get(ctx, types.NamespacedName{Namespace: "ns", Name: "now"}, pod); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is not deleted: %v", err)
	}
	for _, name := range []string{"later", "saved"} {
		if result := reconcilePod(t, r, name); result.RequeueAfter != time.Minute {
			t.Errorf("%s: %v, want a minute", name, result)
		}
	}
	w.Clock.Step(time.Minute)
	reconcilePod(t, r, "later")
	if err := w.API.Get(ctx, types.NamespacedName{Namespace: "ns", Name: "later"}, pod); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is not deleted after its time: %v", err)
	}
	w.Must(w.API.Delete(ctx, rule))
	w.Sync()
	reconcilePod(t, r, "saved")
	reconcilePod(t, r, "saved")
	w.Must(w.API.Get(ctx, types.NamespacedName{Namespace: "ns", Name: "saved"}, pod))
	want := []string{"Marking for deletion", "Marking for deletion", "Cancelling deletion"}
	events := w.Events()
	if len(events) != len(want) {
		t.Fatalf("events %q", events)
	}
	for i := range want {
		if !strings.Contains(events[i], "DeviceTaintManagerEviction") || !strings.Contains(events[i], want[i]) {
			t.Errorf("event %q, want %q", events[i], want[i])
		}
	}
}

// A pod keeps its condition when the deletion fails, and is deleted by the next attempt.
func TestEvictorAgain(t *testing.T) {
	w := controltest.New(t, newRule("r", resourcev1.DeviceTaintEffectNoExecute, &resourcev1.DeviceTaintSelector{}))
	use(w, "a", nil, "a")
	r, _ := controllers(w)
	w.Refuse = func(verb string, _ client.Object) error {
		if verb == "delete" {
			return apierrors.NewInternalError(fmt.Errorf("down"))
		}
		return nil
	}
	key := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "a"}}
	if _, err := r.Reconcile(context.Background(), key); err == nil {
		t.Fatal("no error")
	}
	pod := &corev1.Pod{}
	w.Must(w.API.Get(context.Background(), key.NamespacedName, pod))
	at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
	if at < 0 || pod.Status.Conditions[at].Reason != "DeletionByDeviceTaintManager" || pod.Status.Conditions[at].Message != "Device Taint manager: deleting due to NoExecute taint" {
		t.Errorf("conditions %+v", pod.Status.Conditions)
	}
	w.Refuse = nil
	w.Sync()
	r, _ = controllers(w) // a new process
	reconcilePod(t, r, "a")
	if err := w.API.Get(context.Background(), key.NamespacedName, pod); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is not deleted: %v", err)
	}
}

func TestStatus(t *testing.T) {
	ctx := context.Background()
	rule := newRule("r", resourcev1.DeviceTaintEffectNone, &resourcev1.DeviceTaintSelector{Pool: ptr.To("p")})
	w := controltest.New(t, rule, newSlice("s", "p", 1, nil, "a", "b", "c"), newSlice("t", "q", 1, nil, "x"))
	use(w, "one", nil, "a")
	second := use(w, "two", nil, "b")
	pods, r := controllers(w)
	status := func(wait time.Duration) string {
		t.Helper()
		w.Sync()
		result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: "r"}})
		w.Must(err)
		if result.RequeueAfter != wait {
			t.Errorf("again after %v, want %v", result.RequeueAfter, wait)
		}
		w.Must(w.API.Get(ctx, types.NamespacedName{Name: "r"}, rule))
		if len(rule.Status.Conditions) != 1 || rule.Status.Conditions[0].Type != "EvictionInProgress" || rule.Status.Conditions[0].ObservedGeneration != rule.Generation {
			t.Fatalf("conditions %+v", rule.Status.Conditions)
		}
		c := rule.Status.Conditions[0]
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	expect := func(want string, wait time.Duration) {
		t.Helper()
		if got := status(wait); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	none := "False NoEffect: 3 published devices selected. 2 allocated devices selected. 2 pods would be evicted in 1 namespace " +
		"if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
	expect(none, 0)
	w.Must(w.API.Delete(ctx, second))
	expect(none, 0)

	change := func(effect resourcev1.DeviceTaintEffect) {
		rule.Spec.Taint.Effect = effect
		w.Must(w.API.Update(ctx, rule))
	}
	change(resourcev1.DeviceTaintEffectNoSchedule)
	expect("False OtherEffect: Eviction only happens for the NoExecute effect.", 0)
	change(resourcev1.DeviceTaintEffectNoExecute)
	expect("True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace.", 0)
	w.Sync()
	reconcilePod(t, pods, "one")
	w.Clock.Step(4 * time.Second)
	expect("True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace.", 6*time.Second)
	w.Clock.Step(6 * time.Second)
	expect("False Completed: 1 pod evicted since starting the controller.", 0)
}
