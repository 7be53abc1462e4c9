// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/node/rootdir"
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
	if _, err := os.Stat(rootdir.Layout{Root: b.options.RootDir}.UserNamespaceFile(first.UID)); err != nil {
		b.Error(err)
	}
	info, err := os.Stat(filepath.Join(host, "of-root"))
	if err != nil {
		b.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 0 {
		b.Errorf("root in the pod wrote a file of user %d on the host", stat.Uid)
	}
	b.delete("first")
	b.nothingLeft(first)
	if got := b.outputOf(namespaced("third", "cat /proc/self/uid_map > /dev/termination-log")); !strings.Contains(got, " 65536 ") {
		b.Errorf("the IDs of the first pod are not free: %s", got)
	}
}
