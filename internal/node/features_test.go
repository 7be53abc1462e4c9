// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRealFeatures runs pods that use features of the runtime. Which of these it has depends on the installed containerd and
// runc: user namespaces need containerd 2.0 and runc 1.2.
func TestRealFeatures(t *testing.T) {
	b := newBed(t)
	b.start()
	defer func() { b.stop() }()
	for _, test := range []struct {
		name string
		run  func(*bed)
	}{
		{"user namespaces", userNamespaces},
		{"seccomp", seccomp},
		{"AppArmor", appArmor},
		{"restart of all containers", restartAll},
		{"huge pages", hugePageVolume},
		{"recursive read-only mounts", readOnlyMounts},
	} {
		b.T = t
		t.Run(test.name, func(t *testing.T) { b.T = t; test.run(b) })
		b.T = t
	}
}

// outputOf runs a pod to its end and returns what its container c wrote to its termination log.
func (b *bed) outputOf(p *v1.Pod) string {
	b.Helper()
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	b.create(p)
	p = b.until(p.Name, "over", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed })
	defer b.delete(p.Name)
	end := p.Status.ContainerStatuses[0].State.Terminated
	if end == nil || end.ExitCode != 0 {
		b.Fatalf("%s ended as %+v", p.Name, p.Status.ContainerStatuses[0].State)
	}
	return end.Message
}

func (b *bed) handler() v1.NodeRuntimeHandlerFeatures {
	for _, h := range b.agent.registration.current().Status.RuntimeHandlers {
		if h.Name == "" && h.Features != nil {
			return *h.Features
		}
	}
	return v1.NodeRuntimeHandlerFeatures{}
}

// userNamespaces runs pods in user namespaces: each has other IDs of the host, also if the agent is replaced, and sees the files
// of its volumes with their own owners. A runtime without user namespaces refuses them.
func userNamespaces(b *bed) {
	if f := b.handler(); f.UserNamespaces == nil || !*f.UserNamespaces {
		p := podOf("no-userns", busybox("c", "true"))
		p.Spec.HostUsers = new(false)
		b.create(p)
		want := "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces"
		b.untilEvent("Warning FailedCreatePodSandBox " + want)
		b.delete("no-userns")
		return
	}
	_, err := b.client.CoreV1().Secrets("default").Create(b.Context(), &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "key", Namespace: "default"}, Data: map[string][]byte{"key": []byte("k")},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	host := b.TempDir()
	namespaced := func(name, command string) *v1.Pod {
		p := podOf(name, busybox("c", command))
		p.Spec.HostUsers = new(false)
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(2000))}
		p.Spec.Volumes = []v1.Volume{
			{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key", DefaultMode: new(int32(0o440))}}},
			{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: host}}},
		}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
			{Name: "scratch", MountPath: "/scratch"}, {Name: "secret", MountPath: "/secret"}, {Name: "host", MountPath: "/host"},
		}
		return p
	}
	first := b.create(namespaced("first", "touch /host/of-root /scratch/file; "+exitOnTERM))
	b.until("first", "ready", podReady)

	b.stop()
	b.start()
	b.until("first", "still ready", podReady)
	second := namespaced("second", strings.Join([]string{
		"touch /scratch/file",
		"for f in /etc/hosts /scratch /scratch/file /secret/..data/key /host/of-root; do stat -c '%n %u:%g' $f; done > /dev/termination-log",
		"cat /proc/self/uid_map /proc/self/gid_map >> /dev/termination-log",
	}, "; "))
	got := b.outputOf(second)
	for _, want := range []string{"/etc/hosts 0:0", "/scratch 0:2000", "/scratch/file 0:2000", "/secret/..data/key 0:2000", "/host/of-root 0:0"} {
		if !strings.Contains(got, want+"\n") {
			b.Errorf("no %q in\n%s", want, got)
		}
	}
	if want := fmt.Sprintf("%d", 2<<16); strings.Count(got, want) != 2 {
		b.Errorf("the pod's users do not begin at %s:\n%s", want, got)
	}
	if _, err := os.Stat(b.options.layout().UserNamespaceFile(first.UID)); err != nil {
		b.Error(err)
	}
	info, err := os.Stat(filepath.Join(host, "of-root"))
	if err != nil {
		b.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 0 {
		b.Errorf("root in the pod wrote a file of user %d on the host", stat.Uid)
	}
	// Masked paths are mounts below /proc. A pod in a user namespace may do without.
	for name, masked := range map[string]bool{"masked": true, "unmasked": false} {
		p := namespaced(name, "grep -c ' /proc/[a-z]' /proc/mounts > /dev/termination-log; true")
		if !masked {
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{ProcMount: new(v1.UnmaskedProcMount)}
		}
		if got := strings.TrimSpace(b.outputOf(p)); (got != "0") != masked {
			b.Errorf("%s: %s mounts below /proc", name, got)
		}
	}
	b.delete("first")
	b.nothingLeft(first)
	if got := b.outputOf(namespaced("third", "cat /proc/self/uid_map > /dev/termination-log")); !strings.Contains(got, " 65536 ") {
		b.Errorf("the IDs of the first pod are not free: %s", got)
	}
}

// seccomp runs containers with each kind of profile: the kernel's mode is 2 with a filter, 0 without.
func seccomp(b *bed) {
	dir := filepath.Join(b.options.RootDir, "seccomp")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "audit.json"), []byte(`{"defaultAction": "SCMP_ACT_ALLOW"}`), 0o644); err != nil {
		b.Fatal(err)
	}
	with := func(name string, profile *v1.SeccompProfile) *v1.Pod {
		p := podOf(name, busybox("c", "grep '^Seccomp:' /proc/self/status > /dev/termination-log"))
		p.Spec.SecurityContext = &v1.PodSecurityContext{SeccompProfile: profile}
		return p
	}
	for name, test := range map[string]struct {
		profile *v1.SeccompProfile
		mode    string
	}{
		"seccomp-none":      {nil, "0"},
		"seccomp-default":   {&v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}, "2"},
		"seccomp-localhost": {&v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: new("audit.json")}, "2"},
	} {
		if got := strings.TrimSpace(b.outputOf(with(name, test.profile))); got != "Seccomp:\t"+test.mode {
			b.Errorf("%s: %q", name, got)
		}
	}
	b.create(with("seccomp-missing", &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: new("missing.json")}))
	p := b.until("seccomp-missing", "waiting for its profile", waitingFor("CreateContainerError"))
	if got := p.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(got, "cannot load seccomp profile") {
		b.Errorf("message %q", got)
	}
	b.delete("seccomp-missing")
}

// appArmor creates a pod that asks for a profile, on a kernel that enforces none.
func appArmor(b *bed) {
	if appArmorEnabled() {
		b.Skip("this kernel enforces AppArmor")
	}
	p := podOf("confined", busybox("c", exitOnTERM))
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}
	b.create(p)
	p = b.until("confined", "refused", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if want := "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host"; p.Status.Reason != "AppArmor" || p.Status.Message != want {
		b.Errorf("refused as %s: %s", p.Status.Reason, p.Status.Message)
	}
	b.delete("confined")
}

// restartAll runs a pod whose worker exits once with 42: initialization starts over, in the same sandbox and with the same volumes,
// also if the agent is replaced meanwhile.
func restartAll(b *bed) {
	worker := busybox("worker", "echo worker >> /log/order; test -f /log/restarted && { while :; do sleep 0.1; done; }; sleep 1; touch /log/restarted; exit 42")
	worker.RestartPolicy = new(v1.ContainerRestartPolicyNever)
	worker.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	p := podOf("again", busybox("bystander", "trap '' TERM; while :; do sleep 0.1; done"), worker)
	p.Spec.RestartPolicy, p.Spec.TerminationGracePeriodSeconds = v1.RestartPolicyNever, new(int64(1))
	p.Spec.InitContainers = []v1.Container{busybox("init", "echo init >> /log/order; sleep 1")}
	p.Spec.Volumes = []v1.Volume{{Name: "log", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	for _, c := range []*v1.Container{&p.Spec.InitContainers[0], &p.Spec.Containers[0], &p.Spec.Containers[1]} {
		c.VolumeMounts = []v1.VolumeMount{{Name: "log", MountPath: "/log"}}
	}
	b.create(p)
	p = b.until("again", "restarting", func(p *v1.Pod) bool {
		return conditionNamed(p, v1.AllContainersRestarting).Status == v1.ConditionTrue
	})
	ip := p.Status.PodIP
	b.stop()
	b.start()
	p = b.until("again", "ready again", func(p *v1.Pod) bool { return podReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1 })
	for _, c := range []v1.ContainerStatus{p.Status.InitContainerStatuses[0], p.Status.ContainerStatuses[0], p.Status.ContainerStatuses[1]} {
		want := map[string]int32{"init": 0, "bystander": 137, "worker": 42}[c.Name]
		if last := c.LastTerminationState.Terminated; c.RestartCount != 1 || last == nil || last.ExitCode != want {
			b.Errorf("%s: %d restarts, last %+v", c.Name, c.RestartCount, last)
		}
	}
	if p.Status.PodIP != ip || conditionNamed(p, v1.AllContainersRestarting).Status != v1.ConditionFalse {
		b.Errorf("the address was %s, then %+v", ip, p.Status)
	}
	b.delete("again")
	b.nothingLeft(p)
}

// hugePageVolume runs a pod with huge pages, of which the machine must have some to spare.
func hugePageVolume(b *bed) {
	const file = "/proc/sys/vm/nr_hugepages"
	before := line(file)
	count, err := strconv.Atoi(before)
	if err != nil {
		b.Skipf("the kernel has no huge pages: %v", err)
	}
	set := func(pages string) { _ = os.WriteFile(file, []byte(pages), 0o644) }
	set(strconv.Itoa(count + 2))
	b.Cleanup(func() { set(before) })
	if line(file) == before {
		b.Skip("the machine cannot reserve huge pages")
	}
	b.stop()
	b.start() // the node reads its capacity at the start
	p := podOf("huge", busybox("c", "grep /huge /proc/mounts > /dev/termination-log"))
	pages := v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi"), v1.ResourceMemory: resource.MustParse("16Mi")}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: pages, Limits: pages}
	p.Spec.Volumes = []v1.Volume{{Name: "pages", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "pages", MountPath: "/huge"}}
	if got := b.outputOf(p); !strings.Contains(got, " hugetlbfs ") || !strings.Contains(got, "pagesize=2M") {
		b.Errorf("mounted as %q", got)
	}
	b.nothingLeft(p)
}

// readOnlyMounts mounts a directory with a mount below it: that one is read-only as well if the runtime can do that.
func readOnlyMounts(b *bed) {
	dir := b.TempDir()
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", below, "tmpfs", 0, ""); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := syscall.Unmount(below, 0); err != nil {
			b.Error(err)
		}
	})
	p := podOf("recursive", busybox("c", "touch /host/below/file 2>/dev/null && echo writable > /dev/termination-log; true"))
	p.Spec.Volumes = []v1.Volume{{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{
		Name: "host", MountPath: "/host", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyIfPossible),
	}}
	want := "writable"
	if f := b.handler(); f.RecursiveReadOnlyMounts != nil && *f.RecursiveReadOnlyMounts {
		want = ""
	}
	if got := strings.TrimSpace(b.outputOf(p)); got != want {
		b.Errorf("the mount below is %q, want %q", got, want)
	}
}
