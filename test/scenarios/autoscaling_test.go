// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// autoscaling takes some passes of the controller, 15 seconds each, and metrics of new pods need two
// samples.
const autoscaling = 4 * time.Minute

// scaledTo waits until an object has a number of replicas in its spec.
func (s *session) scaledTo(replicas int, object string) {
	s.Helper()
	s.within(autoscaling, fmt.Sprintf("%s has %d replicas", object, replicas), func() error {
		if got := s.jsonpath("{.spec.replicas}", object); got != fmt.Sprint(replicas) {
			return fmt.Errorf("it has %s; %s", got, s.kubectl("get", "horizontalpodautoscalers"))
		}
		return nil
	})
}

// busyDeployment is a Deployment of pods that request 100m of CPU, and use 90m on a simulated node.
func busyDeployment(name string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s}
      annotations: {kindred.dev/simulated-cpu: 90m, kindred.dev/simulated-memory: 64Mi}
    spec:
      containers:
      - {name: app, image: any, resources: {requests: {cpu: 100m}}}
`, name)
}

// TestAutoscaling: autoscalers add and remove replicas by what simulated pods say that they use. Targets
// are a Deployment, once with autoscaling/v2 and once with v1, and a custom resource. They survive a
// SIGKILL.
func TestAutoscaling(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, "--no-node", "--simulated-nodes", "3")
	s := newSession(t, c)
	s.apply(busyDeployment("web") + "---" + busyDeployment("old"))
	s.kubectl("autoscale", "deployment", "web", "--cpu=50%", "--max=6")
	s.kubectl("patch", "hpa", "web", "-p", `{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}`)
	s.apply(`
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: old}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: old}
  maxReplicas: 3
  targetCPUUtilizationPercentage: 50
`)
	s.apply(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.autoscaling.example.com}
spec:
  group: autoscaling.example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
`)
	s.kubectl("wait", "--for=condition=Established", "crd/widgets.autoscaling.example.com")
	// The pods of the Widget are one that another controller could have created.
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: widget, labels: {app: widget}, annotations: {kindred.dev/simulated-cpu.app: 30m}}
spec: {containers: [{name: app, image: any}, {name: side, image: any}]}
---
apiVersion: autoscaling.example.com/v1
kind: Widget
metadata: {name: w}
spec: {replicas: 1}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: widget}
spec:
  scaleTargetRef: {apiVersion: autoscaling.example.com/v1, kind: Widget, name: w}
  maxReplicas: 10
  metrics:
  - type: ContainerResource
    containerResource: {name: cpu, container: app, target: {type: AverageValue, averageValue: 10m}}
`)
	s.kubectl("patch", "widget", "w", "--subresource=status", "--type=merge", "-p", `{"status":{"replicas":1,"selector":"app=widget"}}`)

	s.scaledTo(6, "deployment/web")
	s.scaledTo(3, "deployment/old")
	// 30m by 10m are three for each pod. There is one, however many replicas the Widget wants.
	s.scaledTo(3, "widget/w")
	s.within(autoscaling, "kubectl top shows all pods", func() error {
		out := s.kubectl("top", "pods", "-l", "app=web", "--no-headers")
		if strings.Count(out, " 90m ") != 6 || strings.Count(out, " 64Mi") != 6 {
			return fmt.Errorf("kubectl top pods: %s", out)
		}
		return nil
	})
	if out := s.kubectl("top", "nodes", "--no-headers"); strings.Count(out, "sim-") != 3 {
		t.Errorf("kubectl top nodes: %s", out)
	}
	s.contains(s.kubectl("top", "pod", "widget", "--containers", "--no-headers"), "app ", " 30m ", "side ", " 0m ")
	s.describes("hpa", "web", "ScaledToZero", "TooManyReplicas", "New size: 4; reason: cpu resource utilization (percentage of request) above target")
	s.contains(s.jsonpath("{.status.currentCPUUtilizationPercentage}", "horizontalpodautoscalers.v1.autoscaling", "old"), "90")

	// What autoscalers know of the past is lost; what they did stays, and they go on.
	c.kill(t)
	c.again(t)
	s.scaledTo(6, "deployment/web")
	s.kubectl("annotate", "pods", "--selector=app=web", "--overwrite", "kindred.dev/simulated-cpu=10m")
	s.scaledTo(2, "deployment/web") // 60m by 50m
	s.describes("hpa", "web", "reason: All metrics below target")
}

// TestMetricsOfRealPods: kubectl top shows the CPU and the memory of a real pod, and /metrics/cadvisor what its processes have open.
func TestMetricsOfRealPods(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  containers:
  - {name: loop, image: ` + image + `, command: [sh, -c, "while :; do :; done"], resources: {limits: {cpu: 200m, memory: 32Mi}}}
  - {name: idle, image: ` + image + `, command: [sleep, "3600"]}
  - {name: server, image: ` + image + `, command: [httpd, -f, -p, "8080"]}
`)
	s.ready("busy")
	s.eventually("the processes of the pod are measured", s.processesOfBusyAreMeasured)
	s.within(2*time.Minute, "kubectl top shows the pod", func() error {
		var cpu, memory int
		out := s.try("top", "pod", "busy", "--no-headers").out
		if _, err := fmt.Sscanf(out, "busy %dm %dMi", &cpu, &memory); err != nil {
			return fmt.Errorf("%q: %w", out, err)
		}
		// Limited to 200m, of which a busy machine may give less.
		if cpu < 50 || cpu > 250 || memory > 32 {
			return fmt.Errorf("it uses %dm and %dMi", cpu, memory)
		}
		return nil
	})
	s.contains(s.kubectl("top", "pod", "busy", "--containers", "--no-headers"), "loop ", "idle ")
	// The node and its pods are measured apart, so that either may be known first.
	s.within(time.Minute, "kubectl top shows the node", func() error {
		if r := s.try("top", "nodes", "--no-headers"); !strings.Contains(r.out, "%") {
			return fmt.Errorf("%q, %q", r.out, r.err)
		}
		return nil
	})
}

// processesOfBusyAreMeasured compares /metrics/cadvisor with what the containers of the pod "busy" run. An httpd has a socket.
func (s *session) processesOfBusyAreMeasured() error {
	r := s.try("get", "--raw", "/api/v1/nodes/"+s.nodes()[0]+"/proxy/metrics/cadvisor")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(r.out))
	if err != nil {
		return fmt.Errorf("%w: %s", err, r.err)
	}
	for _, c := range []struct {
		metric, container string
		least, most       float64
	}{
		{"container_processes", "idle", 1, 1},
		{"container_threads", "idle", 1, 1},
		{"container_file_descriptors", "idle", 3, 10},
		{"container_file_descriptors", "server", 4, 10},
		{"container_sockets", "idle", 0, 0},
		{"container_sockets", "server", 1, 1},
		{"container_ulimits_soft", "idle", 1024, 1 << 31},
		{"container_memory_max_usage_bytes", "loop", 1, 32 << 20},
		{"container_memory_events_max_total", "loop", 0, 100},
		{"container_memory_events_high_total", "loop", 0, 0},
		{"container_spec_memory_reservation_limit_bytes", "loop", 0, 0},
		{"container_creation_time_seconds", "loop", float64(time.Now().Add(-time.Hour).Unix()), float64(time.Now().Unix())},
		{"container_memory_kernel_usage", "loop", 4096, 32 << 20},
		{"container_memory_total_inactive_file_bytes", "loop", 0, 32 << 20},
	} {
		value, ok := valueOf(families[c.metric], "namespace", s.namespace, "pod", "busy", "container", c.container)
		if !ok || value < c.least || value > c.most {
			return fmt.Errorf("%s of %s is %v (%t), want %v to %v", c.metric, c.container, value, ok, c.least, c.most)
		}
	}
	for _, metric := range []string{"machine_cpu_physical_cores", "machine_cpu_sockets"} {
		if value, ok := valueOf(families[metric]); !ok || value < 1 {
			return fmt.Errorf("%s is %v (%t)", metric, value, ok)
		}
	}
	return nil
}
