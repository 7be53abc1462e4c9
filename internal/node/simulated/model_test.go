// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// lab simulates one pod as Nodes does, and stores its status.
type lab struct {
	t     *testing.T
	pod   *v1.Pod
	model *model
	now   time.Time
	last  outcome
	// forget drops the model after every simulation, as a new process would.
	forget bool
}

func newLab(t *testing.T, p *v1.Pod) *lab {
	t.Helper()
	l := &lab{t: t, pod: p, now: start}
	l.simulate()
	return l
}

func (l *lab) simulate() {
	l.t.Helper()
	if l.model == nil {
		l.model = modelFrom(l.pod)
	}
	l.last = l.model.simulate(l.pod, world{
		now: l.now, hostIPs: []string{"198.18.0.1"},
		address: func() (string, error) { return "198.18.128.1", nil },
	})
	l.pod = l.pod.DeepCopy()
	l.pod.Status = *l.last.status.DeepCopy()
	if l.forget {
		l.model = nil
	}
}

// pass advances time, and simulates the pod whenever the last simulation requested it.
func (l *lab) pass(d time.Duration) {
	l.t.Helper()
	for end := l.now.Add(d); ; l.simulate() {
		if l.last.wake.IsZero() || l.last.wake.After(end) {
			l.now = end
			return
		}
		l.now = l.last.wake
	}
}

// remove deletes the pod with a grace period.
func (l *lab) remove(grace int64) {
	at := metav1.NewTime(l.now.Add(time.Duration(grace) * time.Second))
	l.pod.DeletionTimestamp, l.pod.DeletionGracePeriodSeconds = &at, &grace
	l.simulate()
}

// summary returns phase, readiness, and each container's state.
func (l *lab) summary() string {
	s := l.pod.Status
	words := []string{string(s.Phase)}
	for _, c := range s.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			words = append(words, "Ready")
		}
	}
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for _, c := range list {
			words = append(words, fmt.Sprintf("%s:%s*%d", c.Name, stateOf(c.State), c.RestartCount))
		}
	}
	return strings.Join(words, " ")
}

func stateOf(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("ended(%d)", s.Terminated.ExitCode)
	case s.Waiting != nil:
		return s.Waiting.Reason
	}
	return "none"
}

func (l *lab) want(summary string) {
	l.t.Helper()
	if got := l.summary(); got != summary {
		l.t.Errorf("after %v:\n got %s\nwant %s", l.now.Sub(start), got, summary)
	}
}

// newPod returns an assigned pod with containers of these names.
func newPod(names ...string) *v1.Pod {
	grace := int64(30)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u", Generation: 1, Annotations: map[string]string{}},
		Spec: v1.PodSpec{
			NodeName: "sim-0", RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
		},
		Status: v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}}},
	}
	for _, name := range names {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Image: "app:v1"})
	}
	return p
}

func with(p *v1.Pod, policy v1.RestartPolicy, annotations ...string) *v1.Pod {
	p.Spec.RestartPolicy = policy
	for i := 0; i+1 < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	return p
}

func TestStart(t *testing.T) {
	l := newLab(t, newPod("a", "b"))
	l.want("Running Ready a:running*0 b:running*0")
	s := l.pod.Status
	if s.PodIP != "198.18.128.1" || s.HostIP != "198.18.0.1" || s.StartTime == nil || s.QOSClass != v1.PodQOSBestEffort {
		t.Errorf("status %+v", s)
	}
	got := map[v1.PodConditionType]v1.ConditionStatus{}
	for _, c := range s.Conditions {
		got[c.Type] = c.Status
	}
	want := map[v1.PodConditionType]v1.ConditionStatus{
		v1.PodReadyToStartContainers: "True", v1.PodInitialized: "True", v1.PodReady: "True", v1.ContainersReady: "True", v1.PodScheduled: "True",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if c := s.ContainerStatuses[0]; c.ContainerID != "simulated://u/a/0" || c.Image != "app:v1" || !c.State.Running.StartedAt.Time.Equal(start) {
		t.Errorf("container status %+v", c)
	}
	if !l.last.wake.IsZero() {
		t.Errorf("a running pod wakes at %v", l.last.wake)
	}
}

// The token volume, which admission adds to nearly every pod, contains metadata of the pod.
func TestWalkEndsOncePodRuns(t *testing.T) {
	p := newPod("a")
	p.Spec.Volumes = []v1.Volume{{Name: "kube-api-access", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		Sources: []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{}}},
	}}}}
	l := newLab(t, p)
	if l.pod.Status.Phase != v1.PodRunning || !l.last.wake.IsZero() {
		t.Errorf("phase %s, wakes at %v; want a running pod that does not wake", l.pod.Status.Phase, l.last.wake)
	}
	l.pod.Labels = map[string]string{"new": "label"}
	if l.simulate(); !l.last.wake.IsZero() {
		t.Errorf("with another label it wakes at %v; want never", l.last.wake)
	}
}

func TestInitContainersAndSidecars(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	p := newPod("a")
	p.Spec.InitContainers = []v1.Container{{Name: "i", Image: "x"}, {Name: "s", Image: "x", RestartPolicy: &always}, {Name: "j", Image: "x"}}
	l := newLab(t, p)
	l.want("Running Ready i:ended(0)*0 s:running*0 j:ended(0)*0 a:running*0")
	l.remove(30)
	l.want("Failed i:ended(0)*0 s:ended(143)*0 j:ended(0)*0 a:ended(143)*0")
}

func TestHostNetworkPodHasTheNodesAddress(t *testing.T) {
	p := newPod("a")
	p.Spec.HostNetwork = true
	l := newLab(t, p)
	l.want("Running Ready a:running*0")
	if l.pod.Status.PodIP != "198.18.0.1" {
		t.Errorf("pod IP %s, want the node's", l.pod.Status.PodIP)
	}
}

func TestProbesWaitForTheirDelay(t *testing.T) {
	p := newPod("a")
	p.Spec.Containers[0].StartupProbe = &v1.Probe{InitialDelaySeconds: 5}
	p.Spec.Containers[0].ReadinessProbe = &v1.Probe{InitialDelaySeconds: 8}
	l := newLab(t, p)
	l.want("Running a:running*0")
	started := func() bool { return *l.pod.Status.ContainerStatuses[0].Started }
	if started() {
		t.Error("started before its startup probe")
	}
	l.pass(5 * time.Second)
	if !started() {
		t.Error("not started after its startup probe")
	}
	l.want("Running a:running*0")
	l.pass(3 * time.Second)
	l.want("Running Ready a:running*0")
}

func TestReadinessGate(t *testing.T) {
	p := newPod("a")
	p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/ok"}}
	l := newLab(t, p)
	l.want("Running a:running*0")
	l.pod.Status.Conditions = append(l.pod.Status.Conditions, v1.PodCondition{Type: "example.com/ok", Status: v1.ConditionTrue})
	l.simulate()
	l.want("Running Ready a:running*0")
}

func TestExit(t *testing.T) {
	tests := map[string]struct {
		policy      v1.RestartPolicy
		annotations []string
		after       time.Duration
		want        string
	}{
		"before the exit":                        {v1.RestartPolicyNever, []string{ExitAfter, "5s"}, 4 * time.Second, "Running Ready a:running*0"},
		"job succeeds":                           {v1.RestartPolicyNever, []string{ExitAfter, "5s"}, 5 * time.Second, "Succeeded a:ended(0)*0"},
		"job fails":                              {v1.RestartPolicyNever, []string{ExitAfter, "5s", ExitCode, "3"}, 5 * time.Second, "Failed a:ended(3)*0"},
		"exits immediately":                      {v1.RestartPolicyNever, []string{ExitAfter, "0s"}, 0, "Succeeded a:ended(0)*0"},
		"on failure, success":                    {v1.RestartPolicyOnFailure, []string{ExitAfter, "5s"}, 5 * time.Second, "Succeeded a:ended(0)*0"},
		"first restart":                          {v1.RestartPolicyOnFailure, []string{ExitAfter, "5s", ExitCode, "1"}, 5 * time.Second, "Running Ready a:running*1"},
		"always, first restart":                  {v1.RestartPolicyAlways, []string{ExitAfter, "5s"}, 5 * time.Second, "Running Ready a:running*1"},
		"second restart is delayed":              {v1.RestartPolicyAlways, []string{ExitAfter, "5s"}, 10 * time.Second, "Running a:CrashLoopBackOff*1"},
		"second restart after the back-off":      {v1.RestartPolicyAlways, []string{ExitAfter, "5s"}, 20 * time.Second, "Running Ready a:running*2"},
		"third restart is delayed longer":        {v1.RestartPolicyAlways, []string{ExitAfter, "5s"}, 44 * time.Second, "Running a:CrashLoopBackOff*2"},
		"third restart after the back-off":       {v1.RestartPolicyAlways, []string{ExitAfter, "5s"}, 45 * time.Second, "Running Ready a:running*3"},
		"exit code without a time has no effect": {v1.RestartPolicyAlways, []string{ExitCode, "1"}, time.Hour, "Running Ready a:running*0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, forget := range []bool{false, true} {
				l := &lab{t: t, pod: with(newPod("a"), tt.policy, tt.annotations...), now: start, forget: forget}
				l.simulate()
				l.pass(tt.after)
				l.want(tt.want)
			}
		})
	}
}

func TestDeletion(t *testing.T) {
	tests := map[string]struct {
		annotations  []string
		grace        int64
		after        time.Duration
		want         string
		wantFinished bool
	}{
		"stops immediately":                       {nil, 30, 0, "Failed a:ended(143)*0", true},
		"still stopping":                          {[]string{StopAfter, "10s"}, 30, 9 * time.Second, "Running Ready a:running*0", false},
		"stopped after its time":                  {[]string{StopAfter, "10s"}, 30, 10 * time.Second, "Failed a:ended(143)*0", true},
		"killed after the grace period":           {[]string{StopAfter, "1h"}, 3, 3 * time.Second, "Failed a:ended(137)*0", true},
		"not killed before the grace period ends": {[]string{StopAfter, "1h"}, 3, 2 * time.Second, "Running Ready a:running*0", false},
		"exits by itself before it is killed":     {[]string{StopAfter, "1h", ExitAfter, "4s"}, 30, 4 * time.Second, "Succeeded a:ended(0)*0", true},
		"no grace period":                         {[]string{StopAfter, "1h"}, 0, 0, "Failed a:ended(137)*0", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, with(newPod("a"), v1.RestartPolicyAlways, tt.annotations...))
			l.remove(tt.grace)
			l.pass(tt.after)
			l.want(tt.want)
			if l.last.finished != tt.wantFinished {
				t.Errorf("finished: %v, want %v", l.last.finished, tt.wantFinished)
			}
		})
	}
}

func TestShorterGraceMakesKillEarlier(t *testing.T) {
	l := newLab(t, with(newPod("a"), v1.RestartPolicyAlways, StopAfter, "1h"))
	l.remove(600)
	l.pass(10 * time.Second)
	l.want("Running Ready a:running*0")
	l.remove(1)
	l.pass(time.Second)
	if !l.last.finished {
		t.Errorf("still %s after the shorter grace period", l.summary())
	}
}

func TestActiveDeadline(t *testing.T) {
	p := newPod("a")
	deadline := int64(20)
	p.Spec.ActiveDeadlineSeconds = &deadline
	l := newLab(t, p)
	l.pass(19 * time.Second)
	l.want("Running Ready a:running*0")
	l.pass(time.Second)
	l.want("Failed a:ended(143)*0")
	if l.pod.Status.Reason != "DeadlineExceeded" {
		t.Errorf("reason %q", l.pod.Status.Reason)
	}
}

func TestNewImageRestartsTheContainer(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever} {
		for _, forget := range []bool{false, true} {
			l := newLab(t, with(newPod("a", "b"), policy))
			if forget {
				l.model = nil
			}
			l.pod.Spec.Containers[0].Image = "app:v2"
			l.simulate()
			l.want("Running Ready a:running*1 b:running*0")
			if image := l.pod.Status.ContainerStatuses[0].Image; image != "app:v2" {
				t.Errorf("the restarted container has image %s", image)
			}
		}
	}
}

func TestNoAddressLeft(t *testing.T) {
	p := newPod("a")
	m := modelFrom(p)
	failing := world{now: start, address: func() (string, error) { return "", errors.New("none left") }}
	s := m.simulate(p, failing)
	if s.status.Phase != v1.PodPending || s.wake.IsZero() {
		t.Fatalf("phase %s, wake %v; want a pending pod that is retried", s.status.Phase, s.wake)
	}
	s = m.simulate(p, world{now: s.wake, address: func() (string, error) { return "198.18.128.9", nil }})
	if s.status.Phase != v1.PodRunning {
		t.Errorf("phase %s after an address was released", s.status.Phase)
	}
}

// TestTakenOver runs random pods. Whenever one is settled, a new process must find all state in the API: it
// writes nothing, has no actions, and continues in the same way.
func TestTakenOver(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := newLab(t, randomPod(r))
		for range 12 {
			switch r.IntN(6) {
			case 0:
				l.pod.Spec.Containers[0].Image = fmt.Sprintf("app:v%d", r.IntN(3))
				l.simulate()
			case 1:
				l.remove(int64(r.IntN(40)))
			default:
				l.pass(time.Duration(r.IntN(60)) * time.Second)
			}
			if !l.last.wake.IsZero() {
				continue
			}
			again := modelFrom(l.pod).simulate(l.pod, world{now: l.now.Add(time.Hour), hostIPs: []string{"198.18.0.1"}, address: noAddress})
			if !equality.Semantic.DeepEqual(again.status, l.pod.Status) || !again.wake.IsZero() || again.finished != l.last.finished {
				t.Fatalf("seed %d: a new process would write (-old +new), wake %v, finished %v instead of %v:\n%s",
					seed, again.wake, again.finished, l.last.finished, cmp.Diff(l.pod.Status, again.status))
			}
		}
	}
}

func noAddress() (string, error) {
	return "", errors.New("a pod that was taken over asked for an address")
}

func randomPod(r *rand.Rand) *v1.Pod {
	p := newPod([]string{"a", "b", "c"}[:1+r.IntN(3)]...)
	p.UID = types.UID(fmt.Sprint(r.Uint64()))
	p.Spec.RestartPolicy = []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}[r.IntN(3)]
	p.Spec.HostNetwork = r.IntN(5) == 0
	always := v1.ContainerRestartPolicyAlways
	for i := range r.IntN(3) {
		c := v1.Container{Name: fmt.Sprintf("i%d", i), Image: "init"}
		if r.IntN(2) == 0 {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if r.IntN(3) == 0 {
		p.Spec.Containers[0].ReadinessProbe = &v1.Probe{InitialDelaySeconds: int32(r.IntN(10))}
	}
	if r.IntN(2) == 0 {
		p.Annotations[ExitAfter] = fmt.Sprintf("%ds", r.IntN(30))
		p.Annotations[ExitCode] = fmt.Sprint(r.IntN(2))
	}
	if r.IntN(3) == 0 {
		p.Annotations[StopAfter] = fmt.Sprintf("%ds", r.IntN(60))
	}
	return p
}

// BenchmarkStart measures a simulated pod from Pending to Running, without the API.
func BenchmarkStart(b *testing.B) {
	p := newPod("a")
	w := world{now: start, hostIPs: []string{"198.18.0.1"}, address: func() (string, error) { return "198.18.128.1", nil }}
	b.ReportAllocs()
	for b.Loop() {
		if s := modelFrom(p).simulate(p, w); s.status.Phase != v1.PodRunning {
			b.Fatal(s.status.Phase)
		}
	}
}
