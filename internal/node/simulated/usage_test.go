// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/node/stats"
)

func runningSince(at time.Time, id, name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, ContainerID: id, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}}
}

// TestSample: a counter follows the annotation without decreasing, and begins at 0 when its container is
// restarted.
func TestSample(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: map[string]string{
		CPU: "500m", CPU + ".side": "2", Memory: "1Mi",
	}}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{
		runningSince(start, "1", "app"), runningSince(start.Add(5*time.Second), "2", "side"), {Name: "waiting"},
	}
	type use struct {
		App, Side, Pod time.Duration
	}
	var before counters
	take := func(after time.Duration) use {
		t.Helper()
		kept := counters{}
		pod := sample(p, before, kept, start.Add(after))
		before = kept
		if len(pod.Containers) != 2 || pod.Usage.Memory != 2<<20 || pod.Containers[0].Memory != 1<<20 {
			t.Fatalf("got %+v", pod)
		}
		return use{pod.Containers[0].CPU, pod.Containers[1].CPU, pod.Usage.CPU}
	}
	steps := []struct {
		name   string
		after  time.Duration
		change func()
		want   use
	}{
		{"from the start", 10 * time.Second, func() {}, use{5 * time.Second, 10 * time.Second, 15 * time.Second}},
		{"less", 20 * time.Second, func() { p.Annotations[CPU] = "100m" }, use{6 * time.Second, 30 * time.Second, 36 * time.Second}},
		{"none", 30 * time.Second, func() { delete(p.Annotations, CPU) }, use{6 * time.Second, 50 * time.Second, 56 * time.Second}},
		{"invalid", 40 * time.Second, func() { p.Annotations[CPU] = "much" }, use{6 * time.Second, 70 * time.Second, 76 * time.Second}},
		{"restarted", 50 * time.Second, func() {
			p.Annotations[CPU] = "1"
			p.Status.ContainerStatuses[0] = runningSince(start.Add(48*time.Second), "1b", "app")
		}, use{2 * time.Second, 90 * time.Second, 92 * time.Second}},
	}
	for _, step := range steps {
		step.change()
		if diff := cmp.Diff(step.want, take(step.after)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestCheckUsage(t *testing.T) {
	for _, test := range []struct {
		key, value, want string
	}{
		{CPU, "250m", ""},
		{CPU + ".app", "2", ""},
		{Memory, "64Mi", ""},
		{CPU + "s", "anything", ""},
		{CPU, "much", `annotation kindred.dev/simulated-cpu is "much", not a quantity such as 250m or 64Mi`},
		{CPU, "", `annotation kindred.dev/simulated-cpu is "", not a quantity such as 250m or 64Mi`},
		{Memory + ".app", "-1", `annotation kindred.dev/simulated-memory.app is "-1", not a quantity such as 250m or 64Mi`},
	} {
		err := checkUsage(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{test.key: test.value}}})
		if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
			t.Errorf("%s=%s: got %v, want %q", test.key, test.value, err, test.want)
		}
	}
}

// TestStats: a node reports its pods, and their sum. Its counter keeps the CPU time of pods that are
// gone.
func TestStats(t *testing.T) {
	c := newCluster(t, Options{Count: 2})
	p := newPod("c")
	p.Namespace, p.Name = "default", "one"
	p.Spec.NodeName = "sim-1"
	p.Annotations = map[string]string{CPU: "2", Memory: "1Ki"}
	c.create(p)
	c.eventually("the pod runs", func() bool {
		return strings.Contains(scrape(t, c, "sim-1"), "container_memory_working_set_bytes")
	})
	c.clock.Step(10 * time.Second)
	got := scrape(t, c, "sim-1")
	for _, want := range []string{`container_cpu_usage_seconds_total{container="c",namespace="default",pod="one"} 20 `, "node_cpu_usage_seconds_total 20 ", "node_memory_working_set_bytes 1024 "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if got := scrape(t, c, "sim-0"); strings.Contains(got, "container_cpu") || !strings.Contains(got, "node_cpu_usage_seconds_total 0 ") {
		t.Errorf("the other node reports\n%s", got)
	}
	if c.nodes.Stats("real") != nil {
		t.Error("a node that is not simulated has stats")
	}
	if err := c.nodes.pods.GetStore().Delete(p); err != nil {
		t.Fatal(err)
	}
	if got := scrape(t, c, "sim-1"); strings.Contains(got, "container_cpu") || !strings.Contains(got, "node_cpu_usage_seconds_total 20 ") {
		t.Errorf("after the pod:\n%s", got)
	}
}

func scrape(t *testing.T, c *cluster, node string) string {
	t.Helper()
	w := httptest.NewRecorder()
	stats.Handler(c.nodes.Stats(node)).ServeHTTP(w, httptest.NewRequest("GET", stats.Path, nil))
	return w.Body.String()
}
