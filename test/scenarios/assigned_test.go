// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// assignedPods are a Guaranteed pod with a whole CPU and a device, and one without.
const assignedPods = `
apiVersion: v1
kind: Pod
metadata: {name: pinned}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: ` + image + `
    command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]
    resources: {limits: {cpu: "1", memory: 32Mi, example.com/device: "1"}}
---
apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: ` + image + `
    command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]
`

// TestAssignedResources: with the static CPU policy, a container has a CPU and a device of its own, also after the
// process was killed; other containers run on the other CPUs, and on all of them when the pod is gone.
func TestAssignedResources(t *testing.T) {
	if runtime.NumCPU() != 2 {
		t.Skip("the scenario names the CPUs of a machine with two")
	}
	needContainers(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "kubelet.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: '0'\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kubelet := filepath.Join(dir, "kubelet")
	c := ownClusterWithNode(t, "--kubelet-config", file, "--kubelet-dir", kubelet)
	startDevicePlugin(t, filepath.Join(kubelet, "device-plugins"))
	s := newSession(t, c)
	s.eventually("the node has the devices", func() error {
		return s.expect("2 1", "get", "nodes", "-o", "jsonpath={.items[0].status.allocatable['example\\.com/device']} {.items[0].status.allocatable.cpu}")
	})
	s.apply(assignedPods)
	s.ready("pinned")
	s.ready("shared")
	check := func(pinned, shared string) {
		t.Helper()
		for pod, cpus := range map[string]string{"pinned": pinned, "shared": shared} {
			if cpus != "" {
				s.eventually(pod+" is on CPUs "+cpus, func() error {
					return s.expect("Cpus_allowed_list:\t"+cpus, "exec", pod, "--", "grep", "Cpus_allowed_list", "/proc/1/status")
				})
			}
		}
	}
	check("1", "0")
	s.prints("a c\n", "exec", "pinned", "--", "sh", "-c", "test -c /dev/a && echo $DEVICES c")
	c.kill(t)
	c.again(t)
	check("1", "0")
	s.prints("a c\n", "exec", "pinned", "--", "sh", "-c", "test -c /dev/a && echo $DEVICES c")
	s.eventually("the node has the devices again", func() error {
		return s.expect("2", "get", "nodes", "-o", "jsonpath={.items[0].status.allocatable['example\\.com/device']}")
	})
	s.eventually("the status has the device's health", func() error {
		return s.expect("a Healthy", "get", "pod", "pinned", "-o", "jsonpath={.status.containerStatuses[0].allocatedResourcesStatus[0].resources[0]['resourceID','health']}")
	})
	s.kubectl("delete", "pod", "pinned")
	check("", "0-1")
}

// expect returns an error unless kubectl prints want.
func (s *session) expect(want string, args ...string) error {
	r := s.try(args...)
	if got := strings.TrimSpace(r.out); r.code != 0 || got != want {
		return &unexpected{got + r.err, want}
	}
	return nil
}

type unexpected struct{ got, want string }

func (u *unexpected) Error() string { return "printed " + u.got + ", want " + u.want }

func startDevicePlugin(t *testing.T, dir string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "deviceplugin")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../deviceplugin").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	plugin := exec.Command(binary, "-dir", dir)
	if err := plugin.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = plugin.Process.Kill()
		_ = plugin.Wait()
	})
}
