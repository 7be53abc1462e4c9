// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The kernel's files for a container's limits, in both versions of cgroups.
const (
	memoryLimit = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max"
	cpuQuota    = "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max"
)

// TestResize resizes running containers up and down (KEP-1287), with and without a restart, with
// and without free resources, and across a crash of the agent.
func TestResize(t *testing.T) {
	c := ownClusterWithNode(t)
	s := newSession(t, c)
	allocatable := s.allocatableCPU()
	s.apply(sizedPod("sized", "100m", "200m", "32Mi", "64Mi", ""))
	s.apply(sizedPod("fresh", "100m", "200m", "32Mi", "64Mi", "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]"))
	s.apply(sizedPod("hog", share(allocatable, 60), "", "", "", ""))
	for _, pod := range []string{"sized", "fresh", "hog"} {
		s.ready(pod)
	}
	first := s.containerStatus("sized").ContainerID
	s.limits("sized", "20000", "67108864")

	s.resize("sized", "200m", "400m", "32Mi", "128Mi")
	s.resized("sized", "400m", "128Mi")
	s.limits("sized", "40000", "134217728")
	s.describes("pod", "sized", "ResizeStarted", "Pod resize started: {", "ResizeCompleted", "Pod resize completed: {")
	s.resize("sized", "100m", "300m", "32Mi", "96Mi")
	s.resized("sized", "300m", "96Mi")
	s.limits("sized", "30000", "100663296")

	// A memory limit below the current usage, of the pod and of its container, would kill the container.
	s.resize("sized", "100m", "300m", "64Ki", "64Ki")
	s.eventually("the resize fails", func() error {
		return s.resizeIs("sized", corev1.PodResizeInProgress, corev1.PodReasonError, "cannot decrease memory limits: [attempting to set pod memory limit (65536) below current usage (")
	})
	s.limits("sized", "30000", "100663296")
	s.resize("sized", "100m", "300m", "32Mi", "80Mi")
	s.resized("sized", "300m", "80Mi")
	s.limits("sized", "30000", "83886080")

	s.resize("fresh", "100m", "400m", "32Mi", "64Mi")
	s.resized("fresh", "400m", "64Mi")
	if status := s.containerStatus("fresh"); status.RestartCount != 0 {
		t.Errorf("more CPU restarted the container: %+v", status)
	}
	s.resize("fresh", "100m", "400m", "32Mi", "128Mi")
	s.resized("fresh", "400m", "128Mi")
	s.eventually("the container restarts", func() error {
		if status := s.containerStatus("fresh"); status.RestartCount != 1 || status.State.Running == nil {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
	s.limits("fresh", "40000", "134217728")
	s.describes("pod", "fresh", "Container c resize requires restart")

	// A resize that does not fit is deferred, also by the next agent, and happens when there is
	// room.
	s.resize("sized", share(allocatable, 60), share(allocatable, 60), "32Mi", "80Mi")
	waits := func() error {
		return s.resizeIs("sized", corev1.PodResizePending, corev1.PodReasonDeferred, "Node didn't have enough resource: cpu, requested: ")
	}
	s.eventually("the resize waits", waits)
	s.limits("sized", "30000", "83886080")
	s.describes("pod", "sized", "ResizeDeferred", "Pod resize OutOfcpu: {")
	c.kill(t)
	c.again(t)
	s.eventually("the resize still waits", waits)
	if got := s.containerStatus("sized"); got.AllocatedResources.Cpu().String() != "100m" || got.Resources.Limits.Cpu().String() != "300m" {
		t.Errorf("the next agent has %+v", got)
	}
	s.limits("sized", "30000", "83886080")
	s.resize("hog", share(allocatable, 10), "", "", "")
	s.resized("sized", share(allocatable, 60), "80Mi")
	if status := s.containerStatus("sized"); status.ContainerID != first || status.RestartCount != 0 {
		t.Errorf("the container was restarted: %+v", status)
	}
}

// TestResizeOfInitContainers resizes init containers while one runs and before the other has.
func TestResizeOfInitContainers(t *testing.T) {
	s := newSession(t, ownClusterWithNode(t))
	waits := `["sh", "-c", "trap exit TERM; until [ -e /tmp/go ]; do sleep 0.1; done"]`
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: sized}
spec:
  initContainers:
  - {name: first, image: "` + image + `", command: ` + waits + `, resources: ` + sizes("100m", "200m", "", "") + `}
  - {name: second, image: "` + image + `", command: [sh, -c, "` + cpuQuota + `"], resources: ` + sizes("100m", "200m", "", "") + `}
  containers:
  - {name: c, image: "` + image + `", command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]}
`)
	quota := func() (string, error) {
		r := s.try("exec", "sized", "-c", "first", "--", "sh", "-c", cpuQuota)
		if r.code != 0 {
			return "", fmt.Errorf("%s", r.err)
		}
		return r.out, nil
	}
	expect := func(want string) {
		t.Helper()
		s.eventually("the init container has the quota "+want, func() error {
			if got, err := quota(); err != nil || got != want+"\n" {
				return fmt.Errorf("%q, %v", got, err)
			}
			return nil
		})
	}
	expect("20000")
	s.kubectl("patch", "pod", "sized", "--subresource", "resize", "-p", `{"spec": {"initContainers": [
		{"name": "first", "resources": `+sizes("200m", "300m", "", "")+`}, {"name": "second", "resources": `+sizes("200m", "400m", "", "")+`}]}}`)
	expect("30000")
	s.kubectl("exec", "sized", "-c", "first", "--", "touch", "/tmp/go")
	s.ready("sized")
	s.prints("40000\n", "logs", "sized", "-c", "second")
	if restarts := s.jsonpath("{.status.initContainerStatuses[*].restartCount}", "pod", "sized"); restarts != "0 0" {
		t.Errorf("restarts %s", restarts)
	}
}

// TestResizeOfPodResources resizes the resources of a pod whose containers have none of their own (KEP-5419).
func TestResizeOfPodResources(t *testing.T) {
	s := withNode(t)
	// Each container uses 24 MiB. They share /dev/shm.
	container := func(name string) string {
		return `
  - name: ` + name + `
    image: "` + image + `"
    command: [sh, -c, "dd if=/dev/zero of=/dev/shm/` + name + ` bs=1M count=24; touch /tmp/done; trap exit TERM; sleep 3600 & wait"]
    readinessProbe: {exec: {command: [cat, /tmp/done]}, periodSeconds: 1}`
	}
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  resources: {requests: {memory: 64Mi}, limits: {memory: 96Mi}}
  containers:` + container("a") + container("b"))
	s.ready("shared")
	resize := func(memory string) {
		t.Helper()
		s.kubectl("patch", "pod", "shared", "--subresource", "resize", "-p", `{"spec": {"resources": {"limits": {"memory": "`+memory+`"}, "requests": {"memory": "32Mi"}}}}`)
	}
	s.podMemoryLimit("shared", "100663296")
	resize("32Mi") // more than either container uses, and less than both
	s.eventually("the resize fails", func() error {
		return s.resizeIs("shared", corev1.PodResizeInProgress, corev1.PodReasonError, "cannot decrease memory limits: attempting to set pod memory limit (33554432) below current usage (")
	})
	s.podMemoryLimit("shared", "100663296")
	resize("128Mi")
	s.eventually("the resize succeeds", func() error {
		if got := s.pod("shared").Status; got.Resources == nil || got.Resources.Limits.Memory().String() != "128Mi" || got.AllocatedResources.Memory().String() != "32Mi" {
			return fmt.Errorf("%+v", got.Resources)
		}
		return nil
	})
	s.podMemoryLimit("shared", "134217728")
	if restarts := s.jsonpath("{.status.containerStatuses[*].restartCount}", "pod", "shared"); restarts != "0 0" {
		t.Errorf("restarts %s", restarts)
	}
}

// sizedPod returns a pod with the given requests and limits; empty ones are left out.
func sizedPod(name, cpu, cpuLimit, memory, memoryLimit, more string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  containers:
  - name: c
    image: "` + image + `"
    command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]
    resources: ` + sizes(cpu, cpuLimit, memory, memoryLimit) + `
    ` + more + "\n"
}

func sizes(cpu, cpuLimit, memory, memoryLimit string) string {
	list := func(cpu, memory string) string {
		var parts []string
		for name, value := range map[string]string{"cpu": cpu, "memory": memory} {
			if value != "" {
				parts = append(parts, fmt.Sprintf("%q: %q", name, value))
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return `{"requests": ` + list(cpu, memory) + `, "limits": ` + list(cpuLimit, memoryLimit) + "}"
}

// share returns a percentage of a quantity of CPU.
func share(cpu resource.Quantity, percent int64) string {
	return fmt.Sprintf("%dm", cpu.MilliValue()*percent/100)
}

func (s *session) allocatableCPU() resource.Quantity {
	s.Helper()
	return resource.MustParse(s.jsonpath("{.items[0].status.allocatable.cpu}", "nodes"))
}

func (s *session) resize(pod, cpu, cpuLimit, memory, memoryLimit string) {
	s.Helper()
	s.kubectl("patch", "pod", pod, "--subresource", "resize", "-p",
		`{"spec": {"containers": [{"name": "c", "resources": `+sizes(cpu, cpuLimit, memory, memoryLimit)+`}]}}`)
}

// resized waits until a pod's container has the given limits and no resize is in progress.
func (s *session) resized(pod, cpu, memory string) {
	s.Helper()
	s.eventually("the resize of "+pod, func() error {
		p := s.pod(pod)
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodResizePending || condition.Type == corev1.PodResizeInProgress {
				return fmt.Errorf("condition %+v", condition)
			}
		}
		got := p.Status.ContainerStatuses[0]
		limits := got.Resources.Limits
		if limits.Cpu().String() != cpu || limits.Memory().String() != memory || !got.Ready {
			return fmt.Errorf("CPU %s, memory %s, ready %t", limits.Cpu(), limits.Memory(), got.Ready)
		}
		return nil
	})
}

func (s *session) resizeIs(pod string, t corev1.PodConditionType, reason, message string) error {
	s.Helper()
	p := s.pod(pod)
	for _, c := range p.Status.Conditions {
		if c.Type == t && c.Reason == reason && strings.HasPrefix(c.Message, message) && c.ObservedGeneration == p.Generation {
			return nil
		}
	}
	return fmt.Errorf("generation %d, conditions %+v", p.Generation, p.Status.Conditions)
}

// limits checks the cgroups of a pod with one container, and of the container.
func (s *session) limits(pod, quota, memory string) {
	s.Helper()
	s.prints(quota+"\n", "exec", pod, "--", "sh", "-c", cpuQuota)
	s.prints(memory+"\n", "exec", pod, "--", "sh", "-c", memoryLimit)
	s.podMemoryLimit(pod, memory)
}

// podMemoryLimit checks the memory limit of a pod's cgroup.
func (s *session) podMemoryLimit(pod, memory string) {
	s.Helper()
	found := 0
	for _, pattern := range []string{"memory/kindred-*/pods/burstable/pod%s/memory.limit_in_bytes", "kindred-*/pods/burstable/pod%s/memory.max"} {
		files, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", fmt.Sprintf(pattern, s.pod(pod).UID)))
		if err != nil {
			s.Fatal(err)
		}
		for _, file := range files {
			found++
			if data, err := os.ReadFile(file); err != nil || string(data) != memory+"\n" {
				s.Errorf("%s: %q, %v, want %s", file, data, err, memory)
			}
		}
	}
	if found != 1 {
		s.Errorf("%d cgroups of pod %s", found, pod)
	}
}

// TestResizeThatCannotBe: a resize beyond the node's capacity is refused at once, also for
// pod-level resources; any other is accepted.
func TestResizeThatCannotBe(t *testing.T) {
	s := withoutNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: whole}
spec:
  resources: {requests: {cpu: 200m}, limits: {cpu: 400m}}
  containers:
  - {name: c, image: registry.example/any:v1, resources: {requests: {cpu: 100m}}}
`)
	s.ready("whole")
	resize := []string{"patch", "pod", "whole", "--subresource=resize", "--type=merge", "-p"}
	s.refused([]string{`pods "whole" is forbidden: node didn't have enough allocatable resources: cpu, requested: 99000000, allocatable: `},
		append(resize, `{"spec":{"resources":{"requests":{"cpu":"99000"},"limits":{"cpu":"99000"}}}}`)...)
	s.kubectl(append(resize, `{"spec":{"resources":{"requests":{"cpu":"300m"}}}}`)...)
	if got := s.pod("whole").Spec.Resources.Requests.Cpu().String(); got != "300m" {
		t.Errorf("the pod asks for %s", got)
	}
}
