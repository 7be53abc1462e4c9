// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestRestartOfAllContainers: when a container exits with 42, its rule has all containers of the pod start again, init container
// first, in a pod that otherwise never restarts any (KEP-5532).
func TestRestartOfAllContainers(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  volumes: [{name: log, emptyDir: {}}]
  initContainers:
  - {name: init, image: "` + image + `", command: [sh, -c, "echo init >> /log/order"], volumeMounts: [{name: log, mountPath: /log}]}
  containers:
  - {name: bystander, image: "` + image + `", command: [sleep, "3600"]}
  - name: worker
    image: "` + image + `"
    command: [sh, -c, "echo worker >> /log/order; test -f /log/restarted && exec sleep 3600; touch /log/restarted; exit 42"]
    volumeMounts: [{name: log, mountPath: /log}]
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
`)
	s.eventually("the restart", func() error {
		status := s.pod("again").Status
		for _, c := range append(status.InitContainerStatuses, status.ContainerStatuses...) {
			if c.RestartCount != 1 || !c.Ready {
				return fmt.Errorf("%s: %d restarts, %+v", c.Name, c.RestartCount, c.State)
			}
		}
		if len(status.ContainerStatuses) != 2 {
			return fmt.Errorf("%d containers", len(status.ContainerStatuses))
		}
		return nil
	})
	s.prints("init\nworker\ninit\nworker\n", "exec", "again", "-c", "worker", "--", "cat", "/log/order")
	for _, c := range s.pod("again").Status.Conditions {
		if c.Type == corev1.AllContainersRestarting && c.Status != corev1.ConditionFalse {
			t.Errorf("condition %+v", c)
		}
	}
}

// TestUserNamespace: a pod with hostUsers: false has user IDs that are others on the host, or waits with an event that says why.
func TestUserNamespace(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: own-users}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "` + image + `", command: [sleep, "3600"]}]
`)
	if supported := s.jsonpath("{.items[0].status.runtimeHandlers[?(@.name=='')].features.userNamespaces}", "nodes"); supported != "true" {
		s.eventually("the event", func() error {
			const want = "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
			if got := s.kubectl("describe", "pod", "own-users"); !strings.Contains(got, want) {
				return fmt.Errorf("no %q in %s", want, got)
			}
			return nil
		})
		return
	}
	s.ready("own-users")
	if got := strings.Fields(s.kubectl("exec", "own-users", "--", "cat", "/proc/self/uid_map")); len(got) != 3 || got[0] != "0" || got[1] == "0" {
		t.Errorf("IDs %q", got)
	}
}

// TestRuntimeClassWithCrun: on a machine with crun, pods whose RuntimeClass has the handler crun run in it, beside those of runc.
// Where crun refuses the runtime's version of the OCI specification, or the machine's cgroups, they wait with its reason.
func TestRuntimeClassWithCrun(t *testing.T) {
	if _, err := exec.LookPath("crun"); err != nil {
		t.Skip("needs crun, which is optional: apt-get install crun")
	}
	s := withNode(t)
	s.apply(`
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: ` + s.namespace + `}
handler: crun
---
apiVersion: v1
kind: Pod
metadata: {name: in-crun}
spec:
  runtimeClassName: ` + s.namespace + `
  terminationGracePeriodSeconds: 1
  initContainers: [{name: init, image: "` + image + `", command: ["true"]}]
  containers:
  - name: c
    image: "` + image + `"
    command: [sh, -c, "echo ready; exec sleep 3600"]
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
    resources: {limits: {memory: 64Mi, cpu: 100m}}
    securityContext: {seccompProfile: {type: RuntimeDefault}, allowPrivilegeEscalation: false}
`)
	refused := false
	s.eventually("the pod is ready, or crun refuses it", func() error {
		events := s.kubectl("describe", "pod", "in-crun")
		refused = strings.Contains(events, "unknown version specified") || strings.Contains(events, "cgroups in hybrid mode not supported")
		if ready := s.jsonpath("{.status.conditions[?(@.type=='Ready')].status}", "pod", "in-crun"); ready != "True" && !refused {
			return fmt.Errorf("neither: %s", events)
		}
		return nil
	})
	if refused {
		s.kubectl("delete", "pod/in-crun", "runtimeclass/"+s.namespace)
		t.Skip("crun cannot run on this machine and runtime; its reason is an event of the pod")
	}
	s.prints("ready\n", "logs", "in-crun")
	if got := s.jsonpath("{.items[0].status.runtimeHandlers[?(@.name=='crun')].name}", "nodes"); got != "crun" {
		t.Errorf("the Node has the handler %q", got)
	}
	s.contains(s.kubectl("exec", "in-crun", "--", "grep", "NoNewPrivs", "/proc/1/status"), "1")
	s.kubectl("delete", "pod/in-crun", "runtimeclass/"+s.namespace)
}

// TestOverhead: the overhead of a RuntimeClass counts for the scheduler, and in the limits of the pod's cgroup.
func TestOverhead(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: ` + s.namespace + `}
handler: runc
overhead: {podFixed: {cpu: 100m, memory: 16Mi}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: ` + s.namespace + `-huge}
handler: runc
overhead: {podFixed: {cpu: 10k}}
`)
	t.Cleanup(func() { s.try("delete", "runtimeclass", s.namespace, s.namespace+"-huge") })
	s.apply(sizedPod("small", "100m", "200m", "16Mi", "32Mi", "") + "  runtimeClassName: " + s.namespace)
	s.apply(sizedPod("huge", "100m", "", "", "", "") + "  runtimeClassName: " + s.namespace + "-huge")
	s.ready("small")
	s.prints("20000\n", "exec", "small", "--", "sh", "-c", cpuQuota)
	s.prints("33554432\n", "exec", "small", "--", "sh", "-c", memoryLimit)
	s.podMemoryLimit("small", "50331648")
	for line := range strings.Lines(s.kubectl("describe", "nodes")) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == s.namespace && fields[1] == "small" && fields[2] != "200m" {
			t.Errorf("100m of the container and 100m of the class are %s", line)
		}
	}
	s.hasEvent("huge", "FailedScheduling", "1 Insufficient cpu.")
}
