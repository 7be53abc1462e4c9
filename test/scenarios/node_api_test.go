// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/component-base/metrics/testutil"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TestNodeAPI: the agent listens on 10250, and serves what upstream's kubelet does, through the API server, to
// clients with a token that may use one subresource of the node, and to clients of its sockets.
func TestNodeAPI(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubelet.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nenableSystemLogQuery: true\nvolumeStatsAggPeriod: 1s\nmaxPods: 99\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.CreateTemp("/var/log", "kindred-scenario-*.log")
	if err != nil {
		t.Skipf("the node's logs cannot be written: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(log.Name()) })
	if _, err := log.WriteString("a line of the node\n"); err != nil {
		t.Fatal(err)
	}
	c := ownClusterWithNode(t, "--kubelet-config", file)
	s := newSession(t, c)
	node := s.nodes()[0]
	if port := s.jsonpath("{.status.daemonEndpoints.kubeletEndpoint.Port}", "node", node); port != "10250" {
		t.Errorf("the agent listens on port %s", port)
	}
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: measured}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: main
    image: "` + image + `"
    command: [sh, -c, "dd if=/dev/zero of=/data/file bs=1024 count=256; while :; do sleep 1; done"]
    volumeMounts: [{name: data, mountPath: /data}]
    readinessProbe: {periodSeconds: 1, exec: {command: ["true"]}}
    resources: {limits: {memory: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: ended}
spec:
  restartPolicy: Never
  containers: [{name: main, image: "` + image + `", command: [sh, -c, "exit 3"]}]
`)
	s.ready("measured")
	raw := func(path string) string { return s.kubectl("get", "--raw", "/api/v1/nodes/"+node+"/proxy/"+path) }

	s.eventually("the summary has the pod's volume and CPU rate", func() error {
		if text := raw("stats/summary"); !summaryIsWhole(t, text, s.namespace) {
			return errors.New(text)
		}
		return nil
	})
	if got := raw("configz"); !strings.Contains(got, `"maxPods":99`) {
		t.Errorf("configz: %s", got)
	}
	if got := raw("runningpods/"); !containsAll(got, `"name":"measured"`) {
		t.Errorf("runningpods: %s", got)
	}
	if got := raw("healthz?verbose"); !containsAll(got, "[+]ping ok", "[+]log ok", "[+]syncloop ok") {
		t.Errorf("healthz: %s", got)
	}
	if got := raw("logs/?query=" + strings.TrimSuffix(filepath.Base(log.Name()), ".log")); got != "a line of the node\n" {
		t.Errorf("the query of a log: %q", got)
	}
	checkMetrics(t, raw)
	checkTokens(t, s, node)
	// The node's files are at /host of a pod that debugs the node.
	s.kubectl("debug", "node/"+node, "--image="+image, "--profile=sysadmin", "--", "cat", "/host"+log.Name())
	s.eventually("the debugging pod has read a file of the node", func() error {
		if out := s.try("logs", "-l", "app.kubernetes.io/managed-by=kubectl-debug").out; out != "a line of the node\n" {
			return errors.New(out)
		}
		return nil
	})
	checkPodsAPI(t, s, filepath.Join(c.dir, "node"))
	s.eventually("the requests to the Pods API are counted", func() error {
		text := raw("metrics")
		if !containsAll(text, `kubelet_pod_requests_list_total{server_api_version="v1alpha1",status_code="OK"} 1`,
			`kubelet_pod_requests_get_total{server_api_version="v1alpha1",status_code="NotFound"} 1`,
			`kubelet_pod_requests_watch_total{server_api_version="v1alpha1",status_code="Canceled"} 1`) {
			return errors.New(text)
		}
		return nil
	})
}

// summaryIsWhole reports whether a summary has what can be measured of the pod "measured" and of the node.
func summaryIsWhole(t *testing.T, text, namespace string) bool {
	t.Helper()
	var summary statsapi.Summary
	if err := json.Unmarshal([]byte(text), &summary); err != nil {
		t.Fatal(err)
	}
	n := summary.Node
	if n.CPU == nil || n.Memory == nil || n.Fs == nil || n.Network == nil || n.Rlimit == nil || n.Runtime == nil || n.Runtime.ImageFs == nil {
		return false
	}
	for _, p := range summary.Pods {
		if p.PodRef.Name != "measured" || p.PodRef.Namespace != namespace {
			continue
		}
		whole := p.CPU != nil && p.CPU.UsageNanoCores != nil && p.Memory != nil && p.Memory.AvailableBytes != nil && *p.Memory.WorkingSetBytes > 0 &&
			p.Network != nil && p.Network.Name == "eth0" && p.EphemeralStorage != nil && *p.EphemeralStorage.UsedBytes >= 256<<10 && len(p.Containers) == 1
		if !whole {
			return false
		}
		c := p.Containers[0]
		for _, v := range p.VolumeStats {
			if v.Name == "data" && *v.UsedBytes >= 256<<10 {
				return c.Rootfs != nil && c.Logs != nil && c.CPU.UsageNanoCores != nil && *p.ProcessStats.ProcessCount >= 1
			}
		}
	}
	return false
}

// checkMetrics checks that the metrics can be parsed, that promlint has nothing against those that upstream does not have
// as well, and that the important ones are there.
func checkMetrics(t *testing.T, raw func(string) string) {
	t.Helper()
	for path, names := range map[string][]string{
		"metrics": {
			"kubelet_running_pods", "kubelet_running_containers", "kubelet_node_name", "kubelet_started_pods_total", "kubelet_started_containers_total",
			"kubelet_pod_start_duration_seconds", "kubelet_pod_worker_duration_seconds", "kubelet_runtime_operations_total", "kubelet_runtime_operations_duration_seconds",
			"kubelet_pleg_relist_duration_seconds", "kubelet_http_requests_total", "kubelet_certificate_manager_server_ttl_seconds",
			"kubelet_terminated_containers_total", "process_resident_memory_bytes", "go_goroutines",
			"kubelet_pod_start_sli_duration_seconds", "kubelet_pod_worker_start_duration_seconds", "kubelet_pod_status_sync_duration_seconds",
			"kubelet_containers_per_pod_count", "kubelet_cgroup_manager_duration_seconds", "kubelet_working_pods", "volume_manager_total_volumes",
			"storage_operation_duration_seconds", "rest_client_requests_total", "rest_client_request_duration_seconds",
			"kubelet_node_startup_duration_seconds", "kubelet_certificate_manager_client_ttl_seconds", "kubelet_topology_manager_admission_requests_total",
			"kubelet_pod_level_resources_admission_total", "kubelet_image_manager_ensure_image_requests_total",
		},
		"metrics/probes":   {"prober_probe_total", "prober_probe_duration_seconds"},
		"metrics/resource": {"container_cpu_usage_seconds_total", "pod_memory_working_set_bytes", "node_cpu_usage_seconds_total", "resource_scrape_error"},
		"metrics/cadvisor": {
			"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_memory_rss", "container_network_receive_bytes_total",
			"container_spec_memory_limit_bytes", "container_processes", "container_threads", "container_file_descriptors", "container_start_time_seconds", "machine_cpu_cores", "machine_memory_bytes",
			"container_creation_time_seconds", "container_memory_kernel_usage", "container_memory_file_dirty_bytes", "machine_cpu_physical_cores", "machine_cpu_sockets",
		},
	} {
		text := raw(path)
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Errorf("/%s: %v", path, err)
			continue
		}
		for _, name := range names {
			if families[name] == nil {
				t.Errorf("/%s has no %s", path, name)
			}
		}
		if ended := families["kubelet_terminated_containers_total"]; ended != nil && !hasLabels(ended, "exit_code", "3", "container_type", "container", "reason", "Error") {
			t.Errorf("no container that ended with 3: %v", ended)
		}
		if path == "metrics/cadvisor" {
			continue // cAdvisor's names are as they are
		}
		problems, err := testutil.NewPromLinter(bytes.NewBufferString(text)).Lint()
		if err != nil {
			t.Errorf("/%s: %v", path, err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "kubelet_") {
				t.Logf("/%s: %s: %s", path, p.Metric, p.Text)
			}
		}
	}
}

// hasLabels reports whether a metric of the family has the labels.
func hasLabels(f *dto.MetricFamily, pairs ...string) bool {
	_, ok := valueOf(f, pairs...)
	return ok
}

// valueOf returns the value of the first metric of the family that has the labels. It reports false if there is none.
func valueOf(f *dto.MetricFamily, pairs ...string) (float64, bool) {
	for _, m := range f.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		matches := true
		for i := 0; i < len(pairs); i += 2 {
			matches = matches && labels[pairs[i]] == pairs[i+1]
		}
		if matches {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
		}
	}
	return 0, false
}

// checkTokens checks that a service account which may get nodes/metrics gets only that.
func checkTokens(t *testing.T, s *session, node string) {
	t.Helper()
	s.kubectl("create", "serviceaccount", "reader")
	s.kubectl("create", "clusterrole", "node-metrics", "--verb=get", "--resource=nodes/metrics")
	s.kubectl("create", "clusterrolebinding", "node-metrics", "--clusterrole=node-metrics", "--serviceaccount="+s.namespace+":reader")
	s.may("get", "nodes", "--subresource=metrics", "--as=system:serviceaccount:"+s.namespace+":reader")
	token := strings.TrimSpace(s.kubectl("create", "token", "reader"))
	address := s.jsonpath(`{.status.addresses[?(@.type=="InternalIP")].address}`, "node", node)
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for path, want := range map[string]int{"/metrics": 200, "/metrics/cadvisor": 200, "/stats/summary": 403, "/pods": 403, "/configz": 403, "/logs/": 403} {
		request, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+address+":10250"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s with a token for nodes/metrics: %d, want %d: %.200s", path, response.StatusCode, want, body)
		}
	}
}
