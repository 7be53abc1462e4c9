// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/version"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	testingclock "k8s.io/utils/clock/testing"
)

func scrape(t *testing.T, handler http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func wants(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
}

// slowRuntime takes three seconds for each sandbox and fails for the handler bad.
type slowRuntime struct {
	cri.RuntimeService
	clock *testingclock.FakeClock
}

func (r slowRuntime) RunPodSandbox(_ context.Context, _ *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	r.clock.Step(3 * time.Second)
	if handler == "bad" {
		return "", errors.New("no such handler")
	}
	return "id", nil
}

func TestMetrics(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1000, 0))
	m := New("n", 1, clock)
	runtime := m.Runtime(slowRuntime{clock: clock})
	for _, handler := range []string{"", "bad"} {
		_, _ = runtime.RunPodSandbox(t.Context(), nil, handler)
	}
	m.ContainerStart("container", "")
	m.ContainerStart("init_container", "ErrImagePull")
	m.ContainerTerminated("container", 137, "OOMKilled")
	m.PodStarted(2*time.Second, 4*time.Second)
	m.PodSynced("sync", time.Millisecond)
	m.Relisted(time.Unix(1001, 0), time.Millisecond, 0)
	m.ImagePulled(20<<20, time.Second)
	m.Rejected("OutOfcpu")
	m.Evicted("memory.available")
	m.Preempted("cpu")
	m.Observe("readwrite", http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/exec/ns/p/c", nil))
	info := version.Get()
	wants(t, scrape(t, m.Handler()),
		fmt.Sprintf(`kubernetes_build_info{build_date=%q,compiler=%q,git_commit=%q,git_tree_state=%q,git_version=%q,go_version=%q,major=%q,minor=%q,platform=%q} 1`,
			info.BuildDate, info.Compiler, info.GitCommit, info.GitTreeState, info.GitVersion, info.GoVersion, info.Major, info.Minor, info.Platform),
		`kubelet_node_name{node="n"} 1`,
		`kubelet_cgroup_version 1`,
		`kubelet_runtime_operations_total{operation_type="run_podsandbox"} 2`,
		`kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} 1`,
		`kubelet_runtime_operations_duration_seconds_sum{operation_type="run_podsandbox"} 6`,
		`kubelet_run_podsandbox_errors_total{runtime_handler="bad"} 1`,
		`kubelet_started_pods_total 2`,
		`kubelet_started_pods_errors_total 1`,
		`kubelet_started_containers_total{container_type="container"} 1`,
		`kubelet_started_containers_errors_total{code="ErrImagePull",container_type="init_container"} 1`,
		`kubelet_terminated_containers_total{container_type="container",exit_code="137",reason="OOMKilled"} 1`,
		`kubelet_pod_start_duration_seconds_sum 2`,
		`kubelet_pod_start_total_duration_seconds_sum 4`,
		`kubelet_pod_worker_duration_seconds_count{operation_type="sync"} 1`,
		`kubelet_pleg_last_seen_seconds 1001`,
		`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="10MB-100MB"} 1`,
		`kubelet_admission_rejections_total{reason="OutOfcpu"} 1`,
		`kubelet_preemptions{preemption_signal="cpu"} 1`,
		`kubelet_evictions{eviction_signal="memory.available"} 1`,
		`kubelet_http_requests_total{long_running="true",method="GET",path="exec",server_type="readwrite"} 1`,
		`# TYPE go_goroutines gauge`,
	)
	if other := scrape(t, New("other", 1, clock).Handler()); strings.Contains(other, "OOMKilled") {
		t.Error("two agents count together")
	}
}

func TestProbes(t *testing.T) {
	m := New("n", 1, testingclock.NewFakeClock(time.Unix(1000, 0)))
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	m.Probed("Readiness", pod, "c", ProbeSuccessful, time.Second)
	m.Probed("Readiness", pod, "c", ProbeFailed, time.Second)
	wants(t, scrape(t, m.ProbesHandler()),
		`prober_probe_total{container="c",namespace="ns",pod="p",pod_uid="u",probe_type="Readiness",result="successful"} 1`,
		`prober_probe_total{container="c",namespace="ns",pod="p",pod_uid="u",probe_type="Readiness",result="failed"} 1`,
		`prober_probe_duration_seconds_count{container="c",namespace="ns",pod="p",probe_type="Readiness"} 1`)
	m.PodRemoved(pod)
	if text := scrape(t, m.ProbesHandler()); strings.Contains(text, `pod="p"`) {
		t.Errorf("a removed pod has metrics:\n%s", text)
	}
}

func TestState(t *testing.T) {
	volume := statsapi.VolumeStats{PVCRef: &statsapi.PVCReference{Namespace: "ns", Name: "data"}, FsStats: statsapi.FsStats{UsedBytes: new(uint64(7))}}
	state := State{
		RunningPods: 2, Containers: map[string]int{"running": 3}, DesiredPods: [2]int{4, 1}, ActivePods: [2]int{3, 1}, MirrorPods: 1,
		Now: time.Unix(1000, 0), ServerCertificate: time.Unix(1060, 0), Volumes: []statsapi.VolumeStats{volume, volume},
		Logs: []LogUsage{{UID: "u", Namespace: "ns", Pod: "p", Container: "c", Bytes: 5}},
	}
	wants(t, scrape(t, HandlerFor(NewStateCollector(func() State { return state }))),
		`kubelet_running_pods 2`, `kubelet_running_containers{container_state="running"} 3`,
		`kubelet_desired_pods{static=""} 4`, `kubelet_desired_pods{static="true"} 1`, `kubelet_active_pods{static=""} 3`, `kubelet_mirror_pods 1`,
		`kubelet_certificate_manager_server_ttl_seconds 60`,
		`kubelet_volume_stats_used_bytes{namespace="ns",persistentvolumeclaim="data"} 7`,
		`kubelet_container_log_filesystem_used_bytes{container="c",namespace="ns",pod="p",uid="u"} 5`)
}

func TestLabels(t *testing.T) {
	for path, want := range map[string]string{
		"/metrics": "metrics", "/metrics/cadvisor": "metrics/cadvisor", "/pods": "pods", "/pods/": "pods", "/secret/name": "other", "/": "other",
		"/metrics/other": "metrics", "/debug/pprof/heap": "debug",
	} {
		if got := pathLabel(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for size, want := range map[uint64]string{0: "", 1: "0-10MB", 10 << 20: "0-10MB", 10<<20 + 1: "10MB-100MB", 2 << 30: "1GB-5GB", 1 << 40: "GT100GB"} {
		if got := sizeLabel(size); got != want {
			t.Errorf("%d: %q, want %q", size, got, want)
		}
	}
}
