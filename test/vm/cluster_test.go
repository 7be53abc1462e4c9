// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kubelet is the configuration of all scenarios, but for the cgroup driver.
const kubelet = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: %s
failSwapOn: false
memorySwap: {swapBehavior: LimitedSwap}
podPidsLimit: 200
staticPodPath: /etc/kubernetes/manifests
shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
`

// install runs the cluster as a service of the machine, with a cgroup driver.
func (m *machine) install(t *testing.T, driver string) {
	t.Helper()
	m.sh(t, "mkdir -p /etc/kubernetes/manifests /results; mountpoint -q /media || mount -r /dev/vdb /media\n"+
		"cmp -s /media/kindred /usr/local/bin/kindred || cp /media/kindred /usr/local/bin/kindred\n"+
		"swapon --show | grep -q . || { rm -f /swap; fallocate -l 256M /swap; chmod 600 /swap; mkswap -q /swap; swapon /swap; }\ncat >/etc/kubernetes/kubelet.yaml <<'END'\n"+fmt.Sprintf(kubelet, driver)+"END\n"+
		"kindred install --no-start --kubelet-config /etc/kubernetes/kubelet.yaml; systemctl start --no-block kindred")
	// A slow machine may exceed the time limits of a start. systemd tries again.
	await(t, "the cluster is ready", func() error {
		_, err := m.shell(t.Context(), "systemctl is-active kindred || { systemctl status kindred; false; }")
		return err
	})
	m.sh(t, "kindred image load /media/busybox.tar")
	config := m.sh(t, "cat /var/lib/kindred/kubeconfig")
	config = strings.ReplaceAll(config, "127.0.0.1:6443", "127.0.0.1:"+m.api)
	if err := os.WriteFile(m.kubeconfig(), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) kubeconfig() string { return filepath.Join(m.dir, "kubeconfig") }

// try runs kubectl on this host.
func (m *machine) try(stdin string, args ...string) (string, error) {
	cmd := exec.Command(m.bin, append([]string{"kubectl", "--kubeconfig", m.kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w\n%s%s", strings.Join(args, " "), err, &out, &errOut)
	}
	return strings.TrimSpace(out.String()), nil
}

// kubectl is try, with a failure as the test's.
func (m *machine) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := m.try("", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (m *machine) apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := m.try(manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// pod returns the manifest of a pod that sleeps until it is told to end. spec and container are more fields, as YAML in one
// line: {securityContext: ...}.
func pod(name, spec, container string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %[1]s}}
spec:
  <<: %s
  terminationGracePeriodSeconds: 1
  containers:
  - <<: %s
    name: c
    image: %s
    imagePullPolicy: Never
    command: [sh, -c, "trap 'exit 0' TERM; sleep 1000000 & wait"]
---
`, name, spec, container, busybox)
}

// ready waits until pods are ready.
func (m *machine) ready(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		await(t, "pod "+name+" is ready", func() error {
			if _, err := m.try("", "wait", "--for=condition=Ready", "--timeout=1s", "pod/"+name); err != nil {
				events, _ := m.try("", "get", "events", "--field-selector=involvedObject.name="+name, "-o=jsonpath={range .items[*]}{.reason}: {.message}\n{end}")
				return fmt.Errorf("%w\n%s", err, events)
			}
			return nil
		})
	}
}

// field returns a field of a pod.
func (m *machine) field(t *testing.T, name, path string) string {
	t.Helper()
	return m.kubectl(t, "get", "pod", name, "-o=jsonpath={"+path+"}")
}

// scenario runs a scenario, and removes its pods.
func (m *machine) scenario(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Cleanup(func() {
			if _, err := m.try("", "delete", "pods", "--all", "--now"); err != nil {
				t.Log(err)
			}
		})
		test(t)
	})
}

// is compares what a scenario saw.
func is(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// has looks for a text.
func has(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: %q, want %q in it", what, got, want)
	}
}
