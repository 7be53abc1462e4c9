// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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

// TestUserNamespace: pods with hostUsers: false have user IDs that are others on the host, each pod its own. The files of
// their volumes keep the owners that the containers see, by ID-mapped mounts. Where the runtime has no user namespaces, such
// pods wait with an event that says why.
func TestUserNamespace(t *testing.T) { checkUserNamespaces(t, withNode(t)) }

func checkUserNamespaces(t *testing.T, s *session) {
	t.Helper()
	dir := t.TempDir()
	s.kubectl("create", "configmap", "config", "--from-literal=key=value")
	s.apply(ownUsers("own-users", dir) + ownUsers("other-users", dir))
	if s.jsonpath("{.items[0].status.runtimeHandlers[?(@.name=='')].features.userNamespaces}", "nodes") != "true" {
		s.eventually("the event", func() error {
			const want = "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
			if got := s.kubectl("describe", "pod", "own-users"); !strings.Contains(got, want) {
				return fmt.Errorf("no %q in %s", want, got)
			}
			return nil
		})
		return
	}
	first := map[string]bool{}
	for _, pod := range []string{"own-users", "other-users"} {
		s.ready(pod)
		ids := strings.Fields(s.kubectl("exec", pod, "--", "cat", "/proc/self/uid_map"))
		if len(ids) != 3 || ids[0] != "0" || ids[1] == "0" || ids[2] != "65536" || first[ids[1]] {
			t.Errorf("%s has the IDs %q", pod, ids)
			continue
		}
		first[ids[1]] = true
	}
	// As root of the container: files of its volumes belong to it, and those that it makes to the same ID on the host.
	s.prints("0 0 0\nvalue", "exec", "own-users", "--", "sh", "-c",
		"touch /scratch/x /host/x; echo $(stat -c %u /scratch/x /host/x /config/..data/key); cat /config/key")
	info, err := os.Stat(filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 {
		t.Errorf("the container's root owns its file on the host as %d", owner)
	}
}

func ownUsers(name, dir string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 1
  volumes: [{name: scratch, emptyDir: {}}, {name: config, configMap: {name: config}}, {name: host, hostPath: {path: "` + dir + `"}}]
  containers:
  - name: c
    image: "` + image + `"
    command: [sleep, "3600"]
    volumeMounts: [{name: scratch, mountPath: /scratch}, {name: config, mountPath: /config}, {name: host, mountPath: /host}]
---`
}

// TestRecursiveReadOnlyMounts: a mount below a read-only mount is writable, unless the mount is read-only recursively. Where
// the runtime cannot do that, a pod that needs it waits with the reason.
func TestRecursiveReadOnlyMounts(t *testing.T) { checkRecursiveReadOnlyMounts(t, withNode(t)) }

func checkRecursiveReadOnlyMounts(t *testing.T, s *session) {
	t.Helper()
	dir := t.TempDir()
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", below, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(below, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	modes := []corev1.RecursiveReadOnlyMode{corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled}
	var pods strings.Builder
	for _, mode := range modes {
		fmt.Fprintf(&pods, `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: host, hostPath: {path: %q}}]
  containers:
  - name: c
    image: %q
    command: [sleep, "3600"]
    volumeMounts: [{name: host, mountPath: /host, readOnly: true, recursiveReadOnly: %s}]
---`, strings.ToLower(string(mode)), dir, image, mode)
	}
	s.apply(pods.String())
	supported := s.jsonpath("{.items[0].status.runtimeHandlers[?(@.name=='')].features.recursiveReadOnlyMounts}", "nodes") == "true"
	for _, mode := range modes {
		pod := strings.ToLower(string(mode))
		if mode == corev1.RecursiveReadOnlyEnabled && !supported {
			s.eventually(pod, func() error {
				if w := s.containerStatus(pod).State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, "failed to resolve recursive read-only mode") {
					return fmt.Errorf("%+v", w)
				}
				return nil
			})
			continue
		}
		s.ready(pod)
		recursive := supported && mode != corev1.RecursiveReadOnlyDisabled
		s.refused([]string{"Read-only file system"}, "exec", pod, "--", "touch", "/host/x")
		if recursive {
			s.refused([]string{"Read-only file system"}, "exec", pod, "--", "touch", "/host/below/x")
		} else {
			s.kubectl("exec", pod, "--", "touch", "/host/below/x")
		}
		want := corev1.RecursiveReadOnlyDisabled
		if recursive {
			want = corev1.RecursiveReadOnlyEnabled
		}
		got := s.jsonpath("{.status.containerStatuses[0].volumeMounts[?(@.name=='host')].recursiveReadOnly}", "pod", pod)
		if got != string(want) {
			t.Errorf("%s: the mount is %q, want %s", pod, got, want)
		}
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
	// containerd 1 does not report its handlers.
	if all := s.jsonpath("{.items[0].status.runtimeHandlers[*].name}", "nodes"); all != "" && !slices.Contains(strings.Fields(all), "crun") {
		t.Errorf("the Node has the handlers %q", all)
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
