// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRestartPolicies: each policy decides what follows when a container ends.
func TestRestartPolicies(t *testing.T) {
	s := withNode(t)
	before, err := s.cluster.client(t).CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	run := func(name, policy, script string) {
		s.Helper()
		s.kubectl("run", name, "--image="+image, "--restart="+policy, "--", "sh", "-c", script)
	}
	run("never-0", "Never", "exit 0")
	run("never-3", "Never", "exit 3")
	run("on-failure-0", "OnFailure", "exit 0")
	run("on-failure-3", "OnFailure", "exit 3")
	run("always-0", "Always", "exit 0")

	s.phase("never-0", corev1.PodSucceeded)
	s.phase("never-3", corev1.PodFailed)
	s.phase("on-failure-0", corev1.PodSucceeded)
	s.table("NAME READY STATUS RESTARTS AGE\nnever-0 0/1 Completed 0 *", "get", "pod", "never-0")
	s.table("NAME READY STATUS RESTARTS AGE\nnever-3 0/1 Error 0 *", "get", "pod", "never-3")
	if ended := s.pod("never-3").Status.ContainerStatuses[0].State.Terminated; ended == nil || ended.ExitCode != 3 || ended.Reason != "Error" || ended.ContainerID == "" {
		t.Errorf("never-3 ended as %+v", ended)
	}
	for name, exit := range map[string]int32{"on-failure-3": 3, "always-0": 0} {
		// The first pause ends before a slow machine asks for it. The watch shows it even then.
		s.showed(name+" backs off", before.ResourceVersion, name, func(status corev1.ContainerStatus) error {
			if status.State.Waiting == nil || status.State.Waiting.Reason != "CrashLoopBackOff" || status.RestartCount != 1 {
				return fmt.Errorf("%+v", status)
			}
			if last := status.LastTerminationState.Terminated; last == nil || last.ExitCode != exit {
				return fmt.Errorf("the last end was %+v", last)
			}
			if want := "back-off 10s restarting failed container=" + name + " pod=" + name + "_" + s.namespace; !strings.HasPrefix(status.State.Waiting.Message, want) {
				return fmt.Errorf("the message is %q, want %q...", status.State.Waiting.Message, want)
			}
			return nil
		})
		s.phase(name, corev1.PodRunning)
		s.eventually(name+" is shown as backing off", func() error {
			if out := s.kubectl("get", "pod", name); !strings.Contains(out, "CrashLoopBackOff") {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
	}
	s.describes("pod", "always-0", "BackOff", "Back-off restarting failed container always-0 in pod always-0_"+s.namespace, "Last State:", "Completed")
}

func (s *session) phase(pod string, want corev1.PodPhase) {
	s.Helper()
	s.eventually("phase of "+pod, func() error {
		if got := s.pod(pod).Status.Phase; got != want {
			return fmt.Errorf("%s, want %s", got, want)
		}
		return nil
	})
}

// showed waits until a pod's first container has had a status that the condition accepts, at any time since a
// version of the list of pods.
func (s *session) showed(what, since, pod string, condition func(corev1.ContainerStatus) error) {
	s.Helper()
	w, err := s.cluster.client(s.T).CoreV1().Pods(s.namespace).Watch(s.Context(), metav1.ListOptions{ResourceVersion: since, FieldSelector: "metadata.name=" + pod})
	if err != nil {
		s.Fatal(err)
	}
	defer w.Stop()
	err = errors.New("the pod has no container status")
	for timeout := time.After(patience); ; {
		select {
		case event, open := <-w.ResultChan():
			if !open {
				s.Fatalf("%s: the watch ended", what)
			}
			if p, ok := event.Object.(*corev1.Pod); ok && len(p.Status.ContainerStatuses) > 0 {
				err = condition(p.Status.ContainerStatuses[0])
			}
			if err == nil {
				return
			}
		case <-timeout:
			s.Fatalf("%s: after %s: %v", what, patience, err)
		}
	}
}

// containerStatus returns the status of a pod's first container, which is empty before there is
// one.
func (s *session) containerStatus(pod string) corev1.ContainerStatus {
	s.Helper()
	if statuses := s.pod(pod).Status.ContainerStatuses; len(statuses) > 0 {
		return statuses[0]
	}
	return corev1.ContainerStatus{}
}

// TestInitContainers: init containers run one after the other before the others start. A
// restartable one (a sidecar) keeps running beside those that follow it.
func TestInitContainers(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: staged}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  volumes: [{name: shared, emptyDir: {}}]
  initContainers:
  - {name: first, image: "` + image + `", command: [sh, -c, "sleep 1; echo one >> /shared/order"], volumeMounts: [&shared {name: shared, mountPath: /shared}]}
  - name: side
    image: "` + image + `"
    restartPolicy: Always
    command: [sh, -c, "echo side >> /shared/order; trap exit TERM; sleep 3600 & wait"]
    startupProbe: {periodSeconds: 1, timeoutSeconds: 10, exec: {command: [grep, side, /shared/order]}}
    volumeMounts: [*shared]
  - {name: last, image: "` + image + `", command: [sh, -c, "echo two >> /shared/order"], volumeMounts: [*shared]}
  containers:
  - {name: main, image: "` + image + `", command: [sh, -c, "cat /shared/order; sleep 1"], volumeMounts: [*shared]}
`)
	s.eventually("init containers are shown", func() error {
		if out := s.kubectl("get", "pod", "staged"); !strings.Contains(out, "Init:") && !strings.Contains(out, "Running") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	s.phase("staged", corev1.PodSucceeded)
	s.prints("one\nside\ntwo\n", "logs", "staged", "-c", "main")
	for _, status := range s.pod("staged").Status.InitContainerStatuses {
		if status.State.Terminated == nil || status.Name != "side" && status.State.Terminated.ExitCode != 0 {
			t.Errorf("init container %s is %+v", status.Name, status.State)
		}
	}

	// An init container that fails for good fails the pod, and nothing else starts.
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: barred}
spec:
  restartPolicy: Never
  initContainers: [{name: refused, image: "` + image + `", command: [sh, -c, "exit 9"]}]
  containers: [{name: main, image: "` + image + `", command: [sh, -c, "echo ran"]}]
`)
	s.phase("barred", corev1.PodFailed)
	s.table("NAME READY STATUS RESTARTS AGE\nbarred 0/1 Init:Error 0 *", "get", "pod", "barred")
	if status := s.containerStatus("barred"); status.State.Waiting == nil || status.State.Waiting.Reason != "PodInitializing" {
		t.Errorf("the container of a pod that was barred is %+v", status.State)
	}
}

// TestProbes: readiness over HTTP, liveness by exec, startup over TCP.
func TestProbes(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: "` + image + `"
    command: [sh, -c, "mkdir /www; touch /alive; sleep 1; exec httpd -f -p 8080 -h /www"]
    startupProbe: {periodSeconds: 1, failureThreshold: 60, tcpSocket: {port: 8080}}
    readinessProbe: {periodSeconds: 1, httpGet: {path: /ready, port: 8080}}
    livenessProbe: {periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 2, exec: {command: [test, -f, /alive]}}
`)
	s.eventually("it has started", func() error {
		if started := s.containerStatus("probed").Started; started == nil || !*started {
			return fmt.Errorf("started: %v", started)
		}
		return nil
	})
	if s.containerStatus("probed").Ready {
		t.Error("ready, though its page is not there")
	}
	s.eventually("the failed probe is told", func() error {
		if out := s.kubectl("get", "events", "--field-selector=involvedObject.name=probed"); !containsAll(out, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 404") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	s.kubectl("exec", "probed", "--", "sh", "-c", "echo yes > /www/ready")
	s.ready("probed")
	s.kubectl("exec", "probed", "--", "rm", "/www/ready")
	s.kubectl("wait", "--for=condition=Ready=false", "pod/probed", "--timeout", patience.String())
	if n := s.containerStatus("probed").RestartCount; n != 0 {
		t.Errorf("restarted %d times for a readiness probe", n)
	}

	s.kubectl("exec", "probed", "--", "rm", "/alive")
	s.eventually("the container that is not alive is restarted", func() error {
		if n := s.containerStatus("probed").RestartCount; n != 1 {
			return fmt.Errorf("restarted %d times", n)
		}
		return nil
	})
	s.describes("pod", "probed", "Killing", "Container web failed liveness probe, will be restarted", "Liveness probe failed:")
}

// TestHooksAndTermination: postStart before readiness, preStop before SIGTERM, and SIGKILL after
// the grace period.
func TestHooksAndTermination(t *testing.T) {
	s := withNode(t)
	scratch := t.TempDir()
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: polite}
spec:
  terminationGracePeriodSeconds: 30
  volumes: [{name: host, hostPath: {path: ` + scratch + `}}]
  containers:
  - name: c
    image: "` + image + `"
    command: [sh, -c, "trap 'echo term >> /host/order; exit 0' TERM; sleep 3600 & wait"]
    volumeMounts: [{name: host, mountPath: /host}]
    lifecycle:
      postStart: {exec: {command: [sh, -c, "echo started >> /host/order"]}}
      preStop: {exec: {command: [sh, -c, "sleep 1; echo stopping >> /host/order"]}}
---
apiVersion: v1
kind: Pod
metadata: {name: stubborn}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: c, image: "` + image + `", command: [sh, -c, "trap '' TERM; while true; do sleep 1; done"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: witness}
spec:
  volumes: [{name: host, hostPath: {path: ` + scratch + `}}]
  containers: [{name: c, image: "` + image + `", command: [sleep, "3600"], volumeMounts: [{name: host, mountPath: /host}]}]
`)
	s.ready("polite")
	s.ready("stubborn")
	s.ready("witness")
	s.prints("started\n", "exec", "witness", "--", "cat", "/host/order")
	s.took(time.Second, 20*time.Second, "delete", "pod", "polite")
	s.prints("started\nstopping\nterm\n", "exec", "witness", "--", "cat", "/host/order")
	s.took(2*time.Second, 20*time.Second, "delete", "pod", "stubborn")

	// A forced deletion waits for nothing.
	s.kubectl("run", "forced", "--image="+image, "--", "sh", "-c", "trap '' TERM; while true; do sleep 1; done")
	s.ready("forced")
	s.took(0, 10*time.Second, "delete", "pod", "forced", "--force", "--grace-period=0")
	s.gone("pod", "forced")
	s.eventually("the machine is rid of it too", func() error {
		if out := s.kubectl("get", "pods", "-o", "name"); strings.Contains(out, "forced") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// took runs a command that must succeed, and checks its duration.
func (s *session) took(least, most time.Duration, args ...string) {
	s.Helper()
	began := time.Now()
	s.kubectl(args...)
	if took := time.Since(began); took < least || took > most {
		s.Errorf("kubectl %s took %v, want %v to %v", strings.Join(args, " "), took, least, most)
	}
}

// TestImagePull: a missing image is reported as the reason.
func TestImagePull(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: never}
spec:
  containers: [{name: c, image: "busybox:absent", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Pod
metadata: {name: invalid}
spec:
  containers: [{name: c, image: "Not A Name"}]
`)
	for name, reason := range map[string]string{"never": "ErrImageNeverPull", "invalid": "InvalidImageName"} {
		s.eventually(name, func() error {
			if w := s.containerStatus(name).State.Waiting; w == nil || w.Reason != reason {
				return fmt.Errorf("%+v, want %s", w, reason)
			}
			return nil
		})
	}
	s.describes("pod", "never", `Container image "busybox:absent" is not present with pull policy of Never`)
}

// TestRefusedByTheNode: a pod that this node cannot run fails with a reason.
func TestRefusedByTheNode(t *testing.T) {
	s := withNode(t)
	node := s.jsonpath("{.items[0].metadata.name}", "nodes")
	// This pod sets its node name, as a static scheduler would.
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: foreign}
spec:
  nodeName: ` + node + `
  os: {name: windows}
  containers: [{name: c, image: "` + image + `"}]
---
apiVersion: v1
kind: Pod
metadata: {name: huge}
spec:
  nodeName: ` + node + `
  containers: [{name: c, image: "` + image + `", resources: {requests: {memory: 100Ti}}}]
`)
	s.phase("foreign", corev1.PodFailed)
	if status := s.pod("foreign").Status; status.Reason != "PodOSNotSupported" {
		t.Errorf("foreign: %s: %s", status.Reason, status.Message)
	}
	s.phase("huge", corev1.PodFailed)
	if status := s.pod("huge").Status; status.Reason != "OutOfmemory" || !strings.Contains(status.Message, "Node didn't have enough resource: memory") {
		t.Errorf("huge: %s: %s", status.Reason, status.Message)
	}
	// The condition explains why the scheduler found no node.
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: nowhere}
spec:
  containers: [{name: c, image: "` + image + `", resources: {requests: {cpu: 10k}}}]
`)
	s.eventually("the scheduler says why", func() error {
		out := s.kubectl("describe", "pod", "nowhere")
		if !containsAll(out, "FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu.") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// TestReadinessGates: a pod is ready when its containers and its readiness gates are.
func TestReadinessGates(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: gated}
spec:
  readinessGates: [{conditionType: example.com/registered}]
  containers: [{name: c, image: "` + image + `", command: [sleep, "3600"]}]
`)
	s.kubectl("wait", "--for=condition=ContainersReady", "pod/gated", "--timeout", patience.String())
	s.prints("False ReadinessGatesNotReady", "get", "pod", "gated", "-o",
		`jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].reason}`)
	s.table("NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES\ngated 1/1 Running 0 * * * <none> 0/1", "get", "pod", "gated", "-o", "wide")
	s.kubectl("patch", "pod", "gated", "--subresource=status", "-p", `{"status":{"conditions":[{"type":"example.com/registered","status":"True"}]}}`)
	s.ready("gated")
}

// TestSchedulingGates: a pod is not scheduled before its gates are removed.
func TestSchedulingGates(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: held}
spec:
  schedulingGates: [{name: example.com/quota}]
  containers: [{name: c, image: "` + image + `", command: [sleep, "3600"]}]
`)
	s.eventually("it is held", func() error {
		if out := s.kubectl("get", "pod", "held"); !strings.Contains(out, "SchedulingGated") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	s.kubectl("patch", "pod", "held", "--type=json", "-p", `[{"op":"remove","path":"/spec/schedulingGates"}]`)
	s.ready("held")
}
