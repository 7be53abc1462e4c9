// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// TestResizePod: the pod's cgroup grows first and shrinks last; containers that release memory come
// first.
func TestResizePod(t *testing.T) {
	more, less := sized("more", "1", "64Mi"), sized("less", "1", "64Mi")
	for _, test := range []struct {
		name   string
		usage  uint64
		pod    podMemory
		refuse string
		calls  []string
		failed string
	}{
		{name: "in order", usage: 1, calls: []string{
			"Grow", "UpdateContainerResources less-0 32Mi", "UpdateContainerResources more-0 128Mi", "Ensure",
		}},
		{name: "memory in use", usage: 33 << 20,
			failed: `cannot decrease memory limits: attempting to set container "less" memory limit (33554432) below current usage (34603008)`},
		{name: "memory of the pod in use", usage: 1, pod: podMemory{used: 160 << 20, limit: 192 << 20},
			failed: `cannot decrease memory limits: attempting to set pod memory limit (167772160) below current usage (167772160)`},
		{name: "a limit of the pod is new", usage: 33 << 20, pod: podMemory{used: 161 << 20, limit: -1},
			failed: `cannot decrease memory limits: [attempting to set pod memory limit (167772160) below current usage (168820736), ` +
				`attempting to set container "less" memory limit (33554432) below current usage (34603008)]`},
		{name: "the limit of the pod grows", usage: 1, pod: podMemory{used: 161 << 20, limit: 128 << 20}, calls: []string{
			"Grow", "UpdateContainerResources less-0 32Mi", "UpdateContainerResources more-0 128Mi", "Ensure",
		}},
		{name: "refused", refuse: "UpdateContainerResources more-0",
			calls:  []string{"Grow", "UpdateContainerResources less-0 32Mi", "UpdateContainerResources more-0 128Mi"},
			failed: "refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := testPod()
			pod.Spec.Containers = []v1.Container{more, less}
			s := newStageTest(t, pod)
			s.do(Action{Kind: CreateSandbox})
			for _, c := range pod.Spec.Containers {
				s.do(Action{Kind: StartContainer, Container: c.Name})
			}
			s.cri.took()
			s.takeEvents()
			s.pod = pod.DeepCopy()
			s.pod.Spec.Containers[0].Resources, s.pod.Spec.Containers[1].Resources = requirements("1", "128Mi"), requirements("1", "32Mi")
			s.cri.podMemory = test.pod
			s.cri.usage, s.cri.fail[test.refuse] = test.usage, errors.New("refused")

			s.do(Action{Kind: ResizePod})
			if diff := cmp.Diff(test.calls, s.cri.took()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if got := s.memory.Failures[OfResize].Message; got != test.failed {
				t.Errorf("failure %q, want %q", got, test.failed)
			}
			if takeEvents := len(s.takeEvents()) == 1; takeEvents != (test.failed != "") {
				t.Errorf("event recorded: %t", takeEvents)
			}
			left := resizeTargets(s.taskOf(s.pod, Action{}))
			if (len(left) == 0) != (test.failed == "") {
				t.Errorf("%d containers are still to be resized", len(left))
			}
			if resized := *s.memory.Cgroup == criconfig.PodSize(s.pod); resized != (test.failed == "") {
				t.Errorf("the cgroup is resized: %t", resized)
			}
			// The same failure is reported once.
			if s.do(Action{Kind: ResizePod}); len(s.takeEvents()) > 0 {
				t.Error("the same failure was reported twice")
			}
		})
	}
}

// TestResizePodLeavesExitedContainers: a container that does not run gets its size when it starts.
func TestResizePodLeavesExitedContainers(t *testing.T) {
	pod := testPod()
	pod.Spec.Containers[0] = sized("c", "1", "64Mi")
	s := newStageTest(t, pod)
	s.running()
	s.do(Action{Kind: StopContainer, Container: "c", ID: "c-0"})
	if run, _ := s.seen.Latest("c"); run.State != runtime.Exited {
		t.Fatalf("the container is %v", run.State)
	}
	s.cri.took()
	s.pod = pod.DeepCopy()
	s.pod.Spec.Containers[0].Resources = requirements("1", "32Mi")
	s.do(Action{Kind: ResizePod})
	if diff := cmp.Diff([]string{"Grow", "Ensure"}, s.cri.took()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// resizes has the resizes that were counted.
type resizes struct {
	Observer
	counted []string
}

func (r *resizes) PodResized(took time.Duration, err error) {
	r.counted = append(r.counted, fmt.Sprintf("%v %v", took, err))
}

// slowCgroups takes a second to grow a cgroup.
type slowCgroups struct {
	Cgroups
	clock *testingclock.FakeClock
}

func (c slowCgroups) Grow(pod *v1.Pod) (string, error) {
	c.clock.Step(time.Second)
	return c.Cgroups.Grow(pod)
}

// TestResizesAreCounted: each attempt counts, with the time that it took.
func TestResizesAreCounted(t *testing.T) {
	for refuse, want := range map[string]string{"": "1s <nil>", "UpdateContainerResources c-0": "1s refused"} {
		pod := testPod()
		pod.Spec.Containers[0] = sized("c", "1", "64Mi")
		s := newStageTest(t, pod)
		s.running()
		s.pod = pod.DeepCopy()
		s.pod.Spec.Containers[0].Resources = requirements("1", "128Mi")
		s.cri.fail[refuse] = errors.New("refused")
		counted := &resizes{}
		s.parts.Observer, s.parts.Cgroups = counted, slowCgroups{s.parts.Cgroups, s.clock}
		s.do(Action{Kind: ResizePod})
		if diff := cmp.Diff([]string{want}, counted.counted); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
