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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// TestEachMetricMoves: a metric has another value after its event than before.
func TestEachMetricMoves(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1000, 0))
	failed := errors.New("no")
	call := func(intercept grpc.UnaryClientInterceptor, err error) {
		_ = intercept(t.Context(), "/v1.S/M", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			clock.Step(time.Second)
			return err
		})
	}
	for line, event := range map[string]func(*Metrics){
		`kubelet_pod_start_sli_duration_seconds_sum 3`:                                                                       func(m *Metrics) { m.PodStartedSLI(3*time.Second, true) },
		`kubelet_first_network_pod_start_sli_duration_seconds 3`:                                                             func(m *Metrics) { m.PodStartedSLI(3*time.Second, false); m.PodStartedSLI(time.Second, false) },
		`kubelet_pod_worker_start_duration_seconds_sum 2`:                                                                    func(m *Metrics) { m.WorkerStarted(2*time.Second, 5) },
		`kubelet_containers_per_pod_count_sum 5`:                                                                             func(m *Metrics) { m.WorkerStarted(2*time.Second, 5) },
		`kubelet_pod_status_sync_duration_seconds_sum 2`:                                                                     func(m *Metrics) { m.StatusWritten(2 * time.Second) },
		`kubelet_orphaned_runtime_pods_total 1`:                                                                              func(m *Metrics) { m.OrphanFound() },
		`kubelet_started_user_namespaced_pods_total 1`:                                                                       func(m *Metrics) { m.SandboxRun("", true, 0, nil) },
		`kubelet_started_user_namespaced_pods_errors_total 1`:                                                                func(m *Metrics) { m.SandboxRun("", true, 0, failed) },
		`kubelet_container_requested_resizes_total{operation="increase",requirement="limits",resource="cpu"} 1`:              func(m *Metrics) { m.ResizeRequested("cpu", "limits", "increase") },
		`kubelet_pod_infeasible_resizes_total{reason_detail="swap_limitation"} 1`:                                            func(m *Metrics) { m.ResizeInfeasible("swap_limitation") },
		`kubelet_pod_deferred_accepted_resizes_total{retry_trigger="pods_removed"} 1`:                                        func(m *Metrics) { m.DeferredResizeAccepted("pods_removed") },
		`kubelet_pod_deferred_resize_duration_seconds_sum{priority_bucket="normal",resolution="accepted"} 7`:                 func(m *Metrics) { m.DeferralEnded("accepted", &v1.Pod{}, 7*time.Second) },
		`kubelet_pod_deferred_resize_duration_seconds_bucket{priority_bucket="unknown",resolution="terminated",le="3600"} 1`: func(m *Metrics) { m.DeferralEnded("terminated", nil, time.Hour) },
		`kubelet_pod_resize_duration_milliseconds_sum{success="true"} 1500`:                                                  func(m *Metrics) { m.PodResized(1500*time.Millisecond+time.Microsecond, nil) },
		`kubelet_pod_resize_duration_milliseconds_bucket{success="false",le="10"} 1`:                                         func(m *Metrics) { m.PodResized(10*time.Millisecond, failed) },
		`kubelet_cgroup_manager_duration_seconds_sum{operation_type="create"} 2`: func(m *Metrics) {
			done := m.CgroupOperation("create")
			clock.Step(2 * time.Second)
			done()
		},
		`kubelet_eviction_stats_age_seconds_sum{eviction_signal="memory.available"} 2`: func(m *Metrics) { m.EvictedBy("memory.available", 2*time.Second) },
		`kubelet_image_garbage_collected_total{reason="age"} 1`:                        func(m *Metrics) { m.ImageRemoved("age") },
		`kubelet_lifecycle_handler_http_fallbacks_total 1`:                             func(m *Metrics) { m.HookFellBack() },
		`kubelet_sleep_action_terminated_early_total 1`:                                func(m *Metrics) { m.SleepInterrupted() },
		`kubelet_image_manager_ensure_image_requests_total{present_locally="false",pull_policy="ifnotpresent",pull_required="true"} 1`: func(m *Metrics) {
			m.ImageEnsured(v1.PullIfNotPresent, new(false), new(true))
		},
		`kubelet_image_manager_ensure_image_requests_total{present_locally="unknown",pull_policy="always",pull_required="unknown"} 1`: func(m *Metrics) {
			m.ImageEnsured(v1.PullAlways, nil, nil)
		},
		`kubelet_graceful_shutdown_start_time_seconds 5`: func(m *Metrics) { m.ShuttingDown(time.Unix(5, 0), time.Time{}) },
		`kubelet_graceful_shutdown_end_time_seconds 6`:   func(m *Metrics) { m.ShuttingDown(time.Unix(5, 0), time.Unix(6, 0)) },
		`storage_operation_duration_seconds_sum{migrated="false",operation_name="volume_mount",status="fail-unknown",volume_plugin="kubernetes.io/nfs"} 2`: func(m *Metrics) {
			m.VolumeOperation("kubernetes.io/nfs", "volume_mount", 2*time.Second, failed)
		},
		`csi_operations_seconds_sum{driver_name="d",grpc_status_code="Unavailable",method_name="/v1.S/M",migrated="false"} 1`: func(m *Metrics) {
			call(m.CSICalls("d"), status.Error(codes.Unavailable, "gone"))
		},
		`dra_grpc_operations_duration_seconds_sum{driver_name="d",grpc_status_code="OK",method_name="/v1.S/M"} 1`: func(m *Metrics) { call(m.DRACalls("d"), nil) },
		`dra_operations_duration_seconds_sum{is_error="true",operation_name="PrepareResources"} 2`:                func(m *Metrics) { m.ClaimsHandled("PrepareResources", 2*time.Second, failed) },
		`kubelet_image_volume_requested_total 2`:                                                                  func(m *Metrics) { m.ImageVolumes(2, nil) },
		`kubelet_image_volume_mounted_succeed_total 2`:                                                            func(m *Metrics) { m.ImageVolumes(2, nil) },
		`kubelet_image_volume_mounted_errors_total 2`:                                                             func(m *Metrics) { m.ImageVolumes(2, failed) },
		`kubelet_device_plugin_registration_total{resource_name="a/b"} 1`:                                         func(m *Metrics) { m.PluginRegistered("a/b") },
		`kubelet_device_plugin_alloc_duration_seconds_sum{resource_name="a/b"} 2`:                                 func(m *Metrics) { m.DevicesAllocated("a/b", 2*time.Second) },
		`kubelet_cpu_manager_pinning_requests_total 1`:                                                            func(m *Metrics) { m.CPUsPinned(nil) },
		`kubelet_cpu_manager_pinning_errors_total 1`:                                                              func(m *Metrics) { m.CPUsPinned(failed) },
		`kubelet_memory_manager_pinning_requests_total 1`:                                                         func(m *Metrics) { m.MemoryPinned(nil) },
		`kubelet_memory_manager_pinning_errors_total 1`:                                                           func(m *Metrics) { m.MemoryPinned(failed) },
		`kubelet_topology_manager_admission_requests_total 1`:                                                     func(m *Metrics) { m.PodAligned(0, nil) },
		`kubelet_topology_manager_admission_errors_total 1`:                                                       func(m *Metrics) { m.PodAligned(0, failed) },
		`kubelet_topology_manager_admission_duration_ms_sum 1.5`:                                                  func(m *Metrics) { m.PodAligned(1500*time.Microsecond, nil) },
		`kubelet_container_aligned_compute_resources_count{boundary="numa_node",scope="pod"} 0`:                   func(m *Metrics) { m.Aligned("pod", "numa_node", 0) },
		`kubelet_container_aligned_compute_resources_count{boundary="uncore_cache",scope="container"} 1`:          func(m *Metrics) { m.Aligned("container", "uncore_cache", 1) },
		`kubelet_container_aligned_compute_resources_failure_count{boundary="physical_cpu",scope="container"} 1`:  func(m *Metrics) { m.NotAligned("container", "physical_cpu", 1) },
		`kubelet_pod_resources_endpoint_requests_total{server_api_version="v1"} 1`:                                func(m *Metrics) { m.PodResourcesRequest("v1", "Get", nil) },
		`kubelet_pod_resources_endpoint_requests_list{server_api_version="v1"} 1`:                                 func(m *Metrics) { m.PodResourcesRequest("v1", "List", nil) },
		`kubelet_pod_resources_endpoint_errors_get_allocatable{server_api_version="v1"} 1`:                        func(m *Metrics) { m.PodResourcesRequest("v1", "GetAllocatableResources", failed) },
		`kubelet_pod_requests_total{server_api_version="v1alpha1",status_code="OK"} 1`:                            func(m *Metrics) { m.PodsRequest("v1alpha1", "ListPods", nil) },
		`kubelet_pod_requests_list_total{server_api_version="v1alpha1",status_code="OK"} 1`:                       func(m *Metrics) { m.PodsRequest("v1alpha1", "ListPods", nil) },
		`kubelet_pod_requests_get_total{server_api_version="v1alpha1",status_code="NotFound"} 1`:                  func(m *Metrics) { m.PodsRequest("v1alpha1", "GetPod", status.Error(codes.NotFound, "none")) },
		`kubelet_pod_requests_watch_total{server_api_version="v1alpha1",status_code="Canceled"} 1`:                func(m *Metrics) { m.PodsRequest("v1alpha1", "WatchPods", context.Canceled) },
		`kubelet_pod_watch_events_dropped_total 1`:                                                                func(m *Metrics) { m.PodEventDropped() },
	} {
		m := New("n", 1, clock)
		if before := scrape(t, m.Handler()); strings.Contains(before, line+"\n") {
			t.Errorf("%s before the event", line)
		}
		event(m)
		wants(t, scrape(t, m.Handler()), line)
	}
}

// TestStartup: only a node that is created is measured, up to its being ready.
func TestStartup(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1000, 0))
	m := New("n", 1, clock)
	s := m.Startup(time.Unix(990, 0))
	step := func(do func()) { clock.Step(time.Second); do() }
	step(s.Attempted)
	step(s.Ready) // not registered: the Node existed
	step(s.Attempted)
	step(s.Registered)
	step(s.Ready)
	step(s.Ready)
	wants(t, scrape(t, m.Handler()),
		`kubelet_node_startup_pre_kubelet_duration_seconds 10`, `kubelet_node_startup_pre_registration_duration_seconds 1`,
		`kubelet_node_startup_registration_duration_seconds 3`, `kubelet_node_startup_post_registration_duration_seconds 1`,
		`kubelet_node_startup_duration_seconds 15`)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

func TestRequests(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1000, 0))
	r := NewRequests(clock)
	transport := r.Wrap(roundTrip(func(request *http.Request) (*http.Response, error) {
		clock.Step(2 * time.Second)
		if request.Method == http.MethodDelete {
			return nil, errors.New("no connection")
		}
		return &http.Response{StatusCode: http.StatusConflict}, nil
	}))
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		request := httptest.NewRequest(method, "https://api:6443/x", strings.NewReader("12345"))
		if response, err := transport.RoundTrip(request); err == nil && response.StatusCode != http.StatusConflict {
			t.Errorf("%s: %d", method, response.StatusCode)
		}
	}
	wants(t, scrape(t, HandlerFor(r)),
		`rest_client_requests_total{code="409",host="api:6443",method="PUT"} 1`,
		`rest_client_requests_total{code="<error>",host="api:6443",method="DELETE"} 1`,
		`rest_client_request_duration_seconds_sum{host="api:6443",verb="PUT"} 2`,
		`rest_client_request_size_bytes_sum{host="api:6443",verb="PUT"} 5`)
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
		WorkingPods:    map[WorkingPod]int{{"terminating", "orphan", "true"}: 2},
		MountedVolumes: map[string]int{"kubernetes.io/secret": 3}, WantedVolumes: map[string]int{"kubernetes.io/secret": 4},
		PodCertificates: map[PodCertificate]int{{"example.com/s", "fresh"}: 2},
		SharedCPUs:      2, ExclusiveCPUs: 6, ExclusiveCPUsOf: map[int]int{0: 6, 1: 0}, PendingResizes: map[PendingResize]int{{"deferred", "high"}: 2}, ResizingPods: 3, ProtectedMin: 8, ProtectedLow: 9, Claims: map[string]int{"<any>": 1, "d": 1},
		Logs: []LogUsage{{UID: "u", Namespace: "ns", Pod: "p", Container: "c", Bytes: 5}},
	}
	wants(t, scrape(t, HandlerFor(NewStateCollector(func() State { return state }))),
		`kubelet_running_pods 2`, `kubelet_running_containers{container_state="running"} 3`,
		`kubelet_desired_pods{static=""} 4`, `kubelet_desired_pods{static="true"} 1`, `kubelet_active_pods{static=""} 3`, `kubelet_mirror_pods 1`,
		`kubelet_certificate_manager_server_ttl_seconds 60`, `kubelet_certificate_manager_client_ttl_seconds +Inf`,
		`kubelet_working_pods{config="orphan",lifecycle="terminating",static="true"} 2`,
		`volume_manager_total_volumes{plugin_name="kubernetes.io/secret",state="actual_state_of_world"} 3`,
		`volume_manager_total_volumes{plugin_name="kubernetes.io/secret",state="desired_state_of_world"} 4`,
		`kubelet_pod_pending_resizes{priority_bucket="high",reason="deferred"} 2`, `kubelet_pod_in_progress_resizes 3`, `kubelet_memory_qos_node_memory_min_bytes 8`, `kubelet_memory_qos_node_memory_low_bytes 9`, `kubelet_cpu_manager_shared_pool_size_millicores 2000`, `kubelet_cpu_manager_exclusive_cpu_allocation_count 6`, `kubelet_cpu_manager_allocation_per_numa{numa_node="0"} 6`, `kubelet_cpu_manager_allocation_per_numa{numa_node="1"} 0`,
		`dra_resource_claims_in_use{driver_name="<any>"} 1`, `dra_resource_claims_in_use{driver_name="d"} 1`,
		`kubelet_podcertificate_states{signer_name="example.com/s",state="fresh"} 2`,
		`kubelet_volume_stats_used_bytes{namespace="ns",persistentvolumeclaim="data"} 7`,
		`kubelet_container_log_filesystem_used_bytes{container="c",namespace="ns",pod="p",uid="u"} 5`)
}

// TestPodAdmitted: pods are counted by where they have resources, and by QoS class.
func TestPodAdmitted(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceRequirements {
		both := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
		return v1.ResourceRequirements{Requests: both, Limits: both}
	}
	request := v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}
	for want, spec := range map[string]v1.PodSpec{
		`config_mode="",qos_class="besteffort"`: {Containers: []v1.Container{{}}},
		`config_mode="container_level",qos_class="burstable"`: {
			InitContainers: []v1.Container{{Resources: request}}, Containers: []v1.Container{{}},
		},
		`config_mode="container_level",qos_class="guaranteed"`: {Containers: []v1.Container{{Resources: list("1", "1Gi")}}},
		`config_mode="pod_level",qos_class="guaranteed"`:       {Resources: new(list("1", "1Gi")), Containers: []v1.Container{{}}},
		`config_mode="pod_and_container_level",qos_class="burstable"`: {
			Resources: new(request), Containers: []v1.Container{{Resources: list("1", "1Gi")}},
		},
	} {
		m := New("n", 1, testingclock.NewFakeClock(time.Unix(1000, 0)))
		m.PodAdmitted(&v1.Pod{Spec: spec})
		wants(t, scrape(t, m.Handler()), "kubelet_pod_level_resources_admission_total{"+want+"} 1")
	}
}

func TestPriorityBucket(t *testing.T) {
	for priority, want := range map[int32]string{
		2_000_000_000: "system-critical", 1_999_999_999: "high", 100_000: "high", 99_999: "medium", 1: "medium", 0: "normal", -1: "low", -999: "low", -1000: "very-low",
	} {
		if got := PriorityBucket(&v1.Pod{Spec: v1.PodSpec{Priority: &priority}}); got != want {
			t.Errorf("%d: %s, want %s", priority, got, want)
		}
	}
	if got := PriorityBucket(&v1.Pod{}) + " " + PriorityBucket(nil); got != "normal unknown" {
		t.Errorf("a pod without priority, and none: %s", got)
	}
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
