// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const nodeName = "test-node"

// TestRealRuntime runs pods on a real containerd.
func TestRealRuntime(t *testing.T) {
	b := newBed(t)
	b.options.Config.PodPidsLimit = new(int64(100))
	b.start()
	defer func() { b.stop() }()
	for _, test := range []struct {
		name string
		run  func(*bed)
	}{
		{"life", life},
		{"job", job},
		{"stages", stages},
		{"crash loop", crashLoop},
		{"liveness", liveness},
		{"missing parts", missingParts},
		{"deadline", deadline},
		{"stubborn", stubborn},
		{"force", force},
		{"broken sandbox", brokenSandbox},
		{"memory limit", memoryLimit},
		{"process limit", processLimit},
		{"refusal", refusal},
		{"many pods", many},
		{"new agent", takeOver},
	} {
		b.T = t
		if !t.Run(test.name, func(t *testing.T) { b.T = t; test.run(b) }) {
			break
		}
		b.T = t
	}
}

// exitOnTERM is a shell program that runs until SIGTERM.
const exitOnTERM = "trap 'exit 0' TERM; while :; do sleep 0.01; done"

func life(b *bed) {
	begin := time.Now()
	b.create(podOf("web", busybox("c", exitOnTERM)))
	b.until("web", "ready", podReady)
	b.Logf("create to ready: %v", time.Since(begin))
	begin = time.Now()
	b.delete("web")
	b.Logf("delete to removed: %v", time.Since(begin))
}

func job(b *bed) {
	p := podOf("job", busybox("c", "echo done > /dev/termination-log; exit 3"))
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	b.create(p)
	p = b.until("job", "failed", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if end := p.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 3 || end.Reason != "Error" || strings.TrimSpace(end.Message) != "done" {
		b.Errorf("job ended as %+v", end)
	}
	if c := conditionNamed(p, v1.PodReady); c.Status != v1.ConditionFalse || c.Reason != "PodFailed" {
		b.Errorf("condition Ready of a failed pod is %+v", c)
	}
	b.delete("job")
}

func conditionNamed(p *v1.Pod, t v1.PodConditionType) v1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return v1.PodCondition{}
}

// stages runs a pod with init container, sidecar, hooks, probes, volumes and environment.
func stages(b *bed) {
	_, err := b.client.CoreV1().ConfigMaps("default").Create(b.Context(), &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "default"}, Data: map[string]string{"greeting": "hello"},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	log := filepath.Join(b.TempDir(), "log")
	say := func(what string) string { return "echo " + what + " >> /log/order; " }
	mount := []v1.VolumeMount{{Name: "log", MountPath: "/log"}}
	always := v1.ContainerRestartPolicyAlways

	first := busybox("first", say("first"))
	sidecar := busybox("sidecar", say("sidecar")+"trap 'echo sidecar-end >> /log/order; exit 0' TERM; touch /started; while :; do sleep 0.01; done")
	sidecar.RestartPolicy = &always
	sidecar.StartupProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"test", "-f", "/started"}}}, PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 10, SuccessThreshold: 1}
	app := busybox("app", say("$(GREETING)-$(cat /config/greeting)")+"trap 'echo app-end >> /log/order; exit 0' TERM; while :; do sleep 0.01; done")
	app.Env = []v1.EnvVar{{Name: "GREETING", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}, Key: "greeting"}}}}
	app.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"grep", "post", "/log/order"}}}, PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 1, SuccessThreshold: 1}
	app.Lifecycle = &v1.Lifecycle{
		PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", say("post")}}},
		PreStop:   &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", say("pre")}}},
	}
	for _, c := range []*v1.Container{&first, &sidecar, &app} {
		c.VolumeMounts = mount
	}
	app.VolumeMounts = append(app.VolumeMounts, v1.VolumeMount{Name: "config", MountPath: "/config", ReadOnly: true})
	p := podOf("stages", app)
	p.Spec.InitContainers = []v1.Container{first, sidecar}
	p.Spec.Volumes = []v1.Volume{
		{Name: "log", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: log, Type: ptr(v1.HostPathDirectoryOrCreate)}}},
		{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}, DefaultMode: ptr(int32(0o644))}}},
	}
	b.create(p)
	b.until("stages", "ready", podReady)
	b.delete("stages")
	// The fake clientset ignores field selectors: a later watch of another ConfigMap would get this one.
	if err := b.client.CoreV1().ConfigMaps("default").Delete(b.Context(), "settings", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	order, err := os.ReadFile(filepath.Join(log, "order"))
	if err != nil {
		b.Fatal(err)
	}
	want := "first sidecar hello-hello post pre app-end sidecar-end"
	if got := strings.Join(strings.Fields(string(order)), " "); got != want {
		b.Errorf("the pod's containers did %q, want %q", got, want)
	}
}

func ptr[T any](v T) *T { return &v }

func crashLoop(b *bed) {
	b.create(podOf("crash", busybox("c", "exit 1")))
	p := b.until("crash", "in back-off", func(p *v1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CrashLoopBackOff"
	})
	c := p.Status.ContainerStatuses[0]
	if want := fmt.Sprintf("back-off 10s restarting failed container=c pod=crash_default(%s)", p.UID); c.State.Waiting.Message != want {
		b.Errorf("message is %q, want %q", c.State.Waiting.Message, want)
	}
	if c.RestartCount != 1 || c.LastTerminationState.Terminated == nil || p.Status.Phase != v1.PodRunning {
		b.Errorf("after the first restart: phase %s, %+v", p.Status.Phase, c)
	}
	// Its previous run is the one that has just crashed, not the one before.
	newest, _ := b.agent.Lookup().Container(b.Context(), p.UID, "c", false)
	previous, ok := b.agent.Lookup().Container(b.Context(), p.UID, "c", true)
	if id := c.LastTerminationState.Terminated.ContainerID; !ok || previous != newest || !strings.HasSuffix(id, "://"+previous.ID) {
		b.Errorf("previous run %+v of %+v, the last in the status is %s", previous, newest, id)
	}
	b.delete("crash")
}

func liveness(b *bed) {
	c := busybox("c", "touch /alive; sleep 1; rm /alive; "+exitOnTERM)
	c.LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"test", "-f", "/alive"}}}, PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 1, SuccessThreshold: 1}
	b.create(podOf("sick", c))
	p := b.until("sick", "restarted", func(p *v1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) > 0 && s[0].RestartCount == 1 && s[0].State.Running != nil
	})
	if last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil {
		b.Errorf("the last state is missing: %+v", p.Status.ContainerStatuses[0])
	}
	b.delete("sick")
}

func waitingFor(reason string) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == reason
	}
}

func missingParts(b *bed) {
	c := busybox("c", exitOnTERM)
	c.EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "late"}}}}
	b.create(podOf("needy", c))
	p := b.until("needy", "waiting for its configuration", waitingFor("CreateContainerConfigError"))
	if got, want := p.Status.ContainerStatuses[0].State.Waiting.Message, `configmap "late" not found`; got != want {
		b.Errorf("message is %q, want %q", got, want)
	}
	_, err := b.client.CoreV1().ConfigMaps("default").Create(b.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late", Namespace: "default"}}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.until("needy", "ready", podReady)
	b.delete("needy")

	c = busybox("c", exitOnTERM)
	c.Image = "example.invalid/nothing:1"
	b.create(podOf("imageless", c))
	b.until("imageless", "without an image", waitingFor("ErrImageNeverPull"))
	b.delete("imageless")
}

func deadline(b *bed) {
	p := podOf("brief", busybox("c", exitOnTERM))
	p.Spec.ActiveDeadlineSeconds = ptr(int64(1))
	b.create(p)
	p = b.until("brief", "failed", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if p.Status.Reason != "DeadlineExceeded" {
		b.Errorf("reason is %q", p.Status.Reason)
	}
	b.delete("brief")
}

// stubborn runs a container that ignores SIGTERM: it gets SIGKILL after its grace period, which is at least 2 s.
func stubborn(b *bed) {
	p := podOf("stubborn", busybox("c", "trap '' TERM; while :; do sleep 0.1; done"))
	p.Spec.TerminationGracePeriodSeconds = ptr(int64(1))
	b.create(p)
	b.until("stubborn", "ready", podReady)
	begin := time.Now()
	b.delete("stubborn")
	if took := time.Since(begin); took < 1500*time.Millisecond {
		b.Errorf("killed after %v, before its grace period was over", took)
	}
}

// force deletes a pod as kubectl delete --force does: it is removed from the API first.
func force(b *bed) {
	p := b.create(podOf("forced", busybox("c", exitOnTERM)))
	b.until("forced", "ready", podReady)
	if err := b.client.CoreV1().Pods("default").Delete(b.Context(), "forced", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	b.nothingLeft(p)
}

// nothingLeft waits until the pod has left no state in the runtime and on disk.
func (b *bed) nothingLeft(p *v1.Pod) {
	b.Helper()
	layout := b.options.layout()
	var left []string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		left = nil
		seen, err := b.agent.view.List(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if seen[p.UID] != nil {
			left = append(left, fmt.Sprintf("%+v", seen[p.UID]))
		}
		for _, path := range []string{layout.PodDir(p.UID), layout.PodLogsDir(p.Namespace, p.Name, p.UID),
			filepath.Join("/sys/fs/cgroup/cpu", b.options.CgroupParent, "besteffort", "pod"+string(p.UID))} {
			if _, err := os.Stat(path); err == nil {
				left = append(left, path)
			}
		}
		if len(left) == 0 {
			return
		}
	}
	b.Errorf("left of pod %s: %v", p.Name, left)
}

// brokenSandbox kills the pause process of a pod: the pod gets a new sandbox.
func brokenSandbox(b *bed) {
	p := b.create(podOf("fragile", busybox("c", exitOnTERM)))
	b.until("fragile", "ready", podReady)
	sandbox, ok := b.agent.Lookup().Sandbox(b.Context(), p.UID)
	if !ok {
		b.Fatal("the ready pod has no sandbox")
	}
	status, err := b.agent.Runtime().PodSandboxStatus(b.Context(), sandbox, true)
	if err != nil {
		b.Fatal(err)
	}
	var info struct{ PID int }
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil || info.PID == 0 {
		b.Fatalf("no process in %v: %v", status.Info, err)
	}
	if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	b.until("fragile", "running again", func(p *v1.Pod) bool {
		return podReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	b.delete("fragile")
	b.nothingLeft(p)
}

func memoryLimit(b *bed) {
	c := busybox("c", "tail /dev/zero")
	c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi"), v1.ResourceCPU: resource.MustParse("500m")}
	p := podOf("greedy", c)
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	b.create(p)
	p = b.until("greedy", "failed", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if end := p.Status.ContainerStatuses[0].State.Terminated; end.Reason != "OOMKilled" || end.ExitCode != 137 {
		b.Errorf("ended as %+v", end)
	}
	b.delete("greedy")
	b.nothingLeft(p)
}

// processLimit runs a pod that starts more processes than podPidsLimit.
func processLimit(b *bed) {
	p := podOf("forks", busybox("c", "for i in $(seq 150); do sleep 30 & done; exit 0"))
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	b.create(p)
	p = b.until("forks", "over", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded })
	if p.Status.Phase == v1.PodSucceeded {
		b.Error("a pod with 100 processes at most has started 150")
	}
	b.delete("forks")
	b.nothingLeft(p)
}

func refusal(b *bed) {
	p := podOf("windows", busybox("c", exitOnTERM))
	p.Spec.OS = &v1.PodOS{Name: v1.Windows}
	b.create(p)
	p = b.until("windows", "refused", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if want := "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS"; p.Status.Reason != "PodOSNotSupported" || p.Status.Message != want {
		b.Errorf("refused as %s: %s", p.Status.Reason, p.Status.Message)
	}
	b.delete("windows")
}

// many starts and deletes many pods at the same time.
func many(b *bed) {
	const crowd = 8
	begin := time.Now()
	var pods []*v1.Pod
	for i := range crowd {
		pods = append(pods, b.create(podOf(fmt.Sprintf("one-of-many-%d", i), busybox("c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"))))
	}
	for _, p := range pods {
		b.until(p.Name, "ready", podReady)
	}
	b.Logf("%d pods: all ready after %v", crowd, time.Since(begin))
	begin = time.Now()
	for _, p := range pods {
		b.beginDelete(p.Name)
	}
	for _, p := range pods {
		b.untilGone(p.Name)
	}
	b.Logf("%d pods: all gone after %v", crowd, time.Since(begin))
	for _, p := range pods {
		b.nothingLeft(p)
	}
}

// takeOver replaces the agent: running pods are not restarted, and pods that were deleted from the API in
// the meantime are removed.
func takeOver(b *bed) {
	b.create(podOf("stays", busybox("c", exitOnTERM)))
	leaves := b.create(podOf("leaves", busybox("c", exitOnTERM)))
	before := b.until("stays", "ready", podReady)
	b.until("leaves", "ready", podReady)
	b.stop()
	if err := b.client.CoreV1().Pods("default").Delete(b.Context(), "leaves", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	b.start()
	b.nothingLeft(leaves)
	after := b.until("stays", "ready", podReady)
	if diff := cmp.Diff(before.Status, after.Status); diff != "" {
		b.Errorf("the new agent changed the status:\n%s", diff)
	}
	b.delete("stays")
	b.nothingLeft(before)
}
