// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// api is a fake API that performs bindings, as the real one does, and refuses the configured ones.
type api struct {
	*fake.Clientset
	mu     sync.Mutex
	refuse map[string]int
}

func newAPI(objects ...runtime.Object) *api {
	a := &api{Clientset: fake.NewClientset(objects...), refuse: map[string]int{}}
	a.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.refuse[binding.Name] > 0 {
			a.refuse[binding.Name]--
			return true, nil, errors.New("refused")
		}
		pods := v1.SchemeGroupVersion.WithResource("pods")
		object, err := a.Tracker().Get(pods, binding.Namespace, binding.Name)
		if err != nil {
			return true, nil, err
		}
		pod := object.(*v1.Pod).DeepCopy()
		pod.Spec.NodeName = binding.Target.Name
		return true, binding, a.Tracker().Update(pods, pod, binding.Namespace)
	})
	return a
}

func (a *api) pod(t *testing.T, name string) *v1.Pod {
	t.Helper()
	pod, err := a.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// eventually waits until holds returns true. what describes the condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatal("timed out waiting: " + what)
		}
		time.Sleep(time.Millisecond)
	}
}

func start(t *testing.T, opts Options) *Scheduler {
	t.Helper()
	opts.Informers = informers.NewSharedInformerFactory(opts.Client, 0)
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	opts.Informers.StartWithContext(ctx)
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	return s
}

func TestSchedulesAndReports(t *testing.T) {
	a := newAPI(testNode("n", "1"), testPod("fits", "1"), testPod("does-not", "3"))
	start(t, Options{Client: a})
	eventually(t, "the pod is bound", func() bool { return a.pod(t, "fits").Spec.NodeName == "n" })
	eventually(t, "the other pod has a condition", func() bool { return len(a.pod(t, "does-not").Status.Conditions) > 0 })

	got := a.pod(t, "does-not").Status.Conditions[0]
	got.LastTransitionTime = metav1.Time{}
	want := v1.PodCondition{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Unschedulable", ObservedGeneration: 1,
		Message: "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("condition (-want +got):\n%s", diff)
	}

	var events map[string]eventsv1.Event
	eventually(t, "both events are written", func() bool {
		list, err := a.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		events = map[string]eventsv1.Event{}
		for _, event := range list.Items {
			events[event.Reason] = event
		}
		return len(events) == 2
	})
	for reason, want := range map[string][]string{
		"Scheduled":        {"Normal", "Binding", "fits", "Successfully assigned default/fits to n"},
		"FailedScheduling": {"Warning", "Scheduling", "does-not", want.Message},
	} {
		e := events[reason]
		if diff := cmp.Diff(want, []string{e.Type, e.Action, e.Regarding.Name, e.Note}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
		if e.ReportingController != "default-scheduler" || e.Regarding.Kind != "Pod" {
			t.Errorf("%s: reported by %q about a %q", reason, e.ReportingController, e.Regarding.Kind)
		}
	}
}

func TestRefusedBindingIsRetried(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1000, 0))
	a := newAPI(testNode("n", "1"), testPod("p", "1"))
	a.refuse["p"] = 1
	start(t, Options{Client: a, Clock: clock})
	eventually(t, "the pod has a condition", func() bool { return len(a.pod(t, "p").Status.Conditions) > 0 })
	if c := a.pod(t, "p").Status.Conditions[0]; c.Reason != "SchedulerError" || c.Message != `running Bind plugin "DefaultBinder": refused` {
		t.Errorf("condition %+v", c)
	}
	eventually(t, "the scheduler waits for its clock", clock.HasWaiters)
	clock.Step(time.Second)
	eventually(t, "the pod is bound", func() bool { return a.pod(t, "p").Spec.NodeName == "n" })
}

func TestPreemptsThroughTheAPI(t *testing.T) {
	a := newAPI(testNode("n", "1"), testPod("victim", "1", onNode("n")))
	var condition v1.PodCondition
	a.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		object, err := a.Tracker().Get(v1.SchemeGroupVersion.WithResource("pods"), "default", "victim")
		if err == nil && len(object.(*v1.Pod).Status.Conditions) > 0 {
			condition = object.(*v1.Pod).Status.Conditions[0]
		}
		return false, nil, nil
	})
	start(t, Options{Client: a})
	if _, err := a.CoreV1().Pods("default").Create(t.Context(), testPod("vip", "1", priority(5)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the preemptor is bound", func() bool { return a.pod(t, "vip").Spec.NodeName == "n" })
	if a.pod(t, "vip").Status.NominatedNodeName != "n" {
		t.Error("the preemptor was not nominated")
	}
	if condition.Type != v1.DisruptionTarget || condition.Reason != "PreemptionByScheduler" ||
		condition.Message != "default-scheduler: preempting to accommodate a higher priority pod" {
		t.Errorf("the victim's condition: %+v", condition)
	}
}

func TestManyAtOnce(t *testing.T) {
	a := newAPI()
	const nodes, pods = 10, 200
	for i := range nodes {
		if err := a.Tracker().Add(testNode(fmt.Sprint("n", i), "64")); err != nil {
			t.Fatal(err)
		}
	}
	start(t, Options{Client: a})
	for i := range pods {
		if _, err := a.CoreV1().Pods("default").Create(t.Context(), testPod(fmt.Sprint("p", i), "100m"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all pods are bound", func() bool {
		list, err := a.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if list.Items[i].Spec.NodeName == "" {
				return false
			}
		}
		return len(list.Items) == pods
	})
}

func TestStatusPatch(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(2000, 0))
	s := &Scheduler{Options: Options{Clock: clock}}
	condition := v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Unschedulable", Message: "m"}
	has := func(edit func(*v1.PodCondition)) *v1.Pod {
		c := condition
		c.ObservedGeneration, c.LastTransitionTime = 1, metav1.Unix(1000, 0)
		edit(&c)
		return testPod("p", "", func(p *v1.Pod) { p.Status.Conditions = []v1.PodCondition{c} })
	}
	node := "n"
	for _, tt := range []struct {
		name     string
		pod      *v1.Pod
		nominate *string
		want     string // the time of the condition, and the nominated node
	}{
		{"new", testPod("p", ""), nil, "1970-01-01T00:33:20Z"},
		{"same", has(func(*v1.PodCondition) {}), nil, ""},
		{"other message", has(func(c *v1.PodCondition) { c.Message = "x" }), nil, "1970-01-01T00:16:40Z"},
		{"other status", has(func(c *v1.PodCondition) { c.Status = v1.ConditionTrue }), nil, "1970-01-01T00:33:20Z"},
		{"same, nominated", has(func(*v1.PodCondition) {}), &node, "n"},
		{"new, nominated", testPod("p", ""), &node, "1970-01-01T00:33:20Z n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			patch := s.statusPatch(tt.pod, condition, tt.nominate)
			got := ""
			if patch != nil {
				var decoded struct {
					Metadata struct{ UID types.UID }
					Status   struct {
						Conditions        []map[string]any
						NominatedNodeName string
					}
				}
				if err := json.Unmarshal(patch, &decoded); err != nil {
					t.Fatal(err)
				}
				if decoded.Metadata.UID != tt.pod.UID {
					t.Errorf("patch is for UID %q", decoded.Metadata.UID)
				}
				for _, c := range decoded.Status.Conditions {
					got = c["lastTransitionTime"].(string)
				}
				if n := decoded.Status.NominatedNodeName; n != "" {
					if got != "" {
						got += " "
					}
					got += n
				}
			}
			if got != tt.want {
				t.Errorf("patch %s: %q, want %q", patch, got, tt.want)
			}
		})
	}
}

func BenchmarkDecisions(b *testing.B) {
	for _, size := range []struct{ nodes, pods int }{{20, 300}, {100, 2000}, {1000, 2000}, {5000, 2000}, {50000, 2000}} {
		b.Run(fmt.Sprintf("nodes=%d/pods=%d", size.nodes, size.pods), func(b *testing.B) {
			for range b.N {
				bench := newBench()
				for i := range size.nodes {
					bench.setNode(testNode(fmt.Sprint("n", i), "64"))
				}
				owned := func(p *v1.Pod) {
					controller := true
					p.OwnerReferences = []metav1.OwnerReference{{UID: "rs", Controller: &controller}}
				}
				for i := range size.pods {
					bench.setPod(model.NewPod(testPod(fmt.Sprint("p", i), "100m", owned)))
				}
				for d, found := bench.next(); found; d, found = bench.next() {
					if d.node == "" {
						b.Fatal(d.message)
					}
				}
			}
		})
	}
}

// TestPreemptionReadsBudgets: of two nodes, the one whose pod no budget protects is cleared.
func TestPreemptionReadsBudgets(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}},
	}
	a := newAPI(budget, testNode("a", "1"), testNode("b", "1"),
		testPod("guarded", "1", onNode("a"), app("guarded"), priority(-1)), testPod("free", "1", onNode("b"), app("free")))
	start(t, Options{Client: a})
	if _, err := a.CoreV1().Pods("default").Create(t.Context(), testPod("vip", "1", priority(5)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the preemptor is bound", func() bool { return a.pod(t, "vip").Spec.NodeName != "" })
	if node := a.pod(t, "vip").Spec.NodeName; node != "b" {
		t.Errorf("preempted on %s", node)
	}
}
