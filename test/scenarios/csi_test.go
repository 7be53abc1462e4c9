// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const csiManifest = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: test.csi.example.com}
spec: {attachRequired: false, podInfoOnMount: true}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: csi}
provisioner: test.csi.example.com
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: csi, resources: {requests: {storage: 1Mi}}}
---
`

const csiVolume = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: made-by-hand}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Mi}
  storageClassName: csi
  csi: {driver: test.csi.example.com, volumeHandle: vol}
---
`

func csiUser(name string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: ` + image + `
    command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`
}

// TestCSI: a driver, as a plain process, registers with the node. A pod's data outlives the pod and SIGKILLs of
// the cluster and the driver.
func TestCSI(t *testing.T) {
	c, driver := ownClusterWithDriver(t)
	s := newSession(t, c)
	s.registered(driver)
	if value := s.jsonpath(`{.metadata.labels.topology\.test\.csi\.example\.com/node}`, "node", driver.node); value != driver.node {
		t.Errorf("topology label %q", value)
	}
	file := filepath.Join(driver.data, "vol", "file")
	if err := os.Mkdir(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	s.apply(csiVolume + csiManifest + csiUser("first"))
	s.ready("first")
	s.kubectl("exec", "first", "--", "sh", "-c", "echo kept > /data/file")
	expectContent(t, file, "kept\n")

	// The cluster and the driver die. The pod keeps its volume, and a second one shares it.
	c.kill(t)
	driver.kill()
	c.again(t)
	driver.start()
	s.apply(csiUser("second"))
	s.ready("second")
	for _, pod := range []string{"first", "second"} {
		s.prints("kept\n", "exec", pod, "--", "cat", "/data/file")
	}
	s.kubectl("delete", "pod", "first")
	s.prints("kept\n", "exec", "second", "--", "cat", "/data/file")

	// A pod is deleted while the driver is down. It goes when the driver is back.
	driver.kill()
	s.kubectl("delete", "pod", "second", "--wait=false")
	s.eventually("an event says what the pod waits for", func() error {
		out := s.kubectl("get", "events", "--field-selector", "involvedObject.name=second,reason=FailedKillPod")
		if !strings.Contains(out, "UnmountVolume.TearDown failed") {
			return fmt.Errorf("events:\n%s", out)
		}
		return nil
	})
	driver.start()
	s.gone("pod", "second")
	expectContent(t, file, "kept\n")
}

// ownClusterWithDriver starts a cluster and a driver on its node.
func ownClusterWithDriver(t *testing.T, args ...string) (*cluster, *csiDriver) {
	t.Helper()
	kubelet := filepath.Join(t.TempDir(), "kubelet")
	c := ownClusterWithNode(t, "--kubelet-dir", kubelet)
	nodes, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatalf("nodes %v, %v", nodes, err)
	}
	driver := newCSIDriver(t, nodes.Items[0].Name, kubelet)
	driver.start(args...)
	return c, driver
}

func expectContent(t *testing.T, path, want string) {
	t.Helper()
	if data, err := os.ReadFile(path); err != nil || string(data) != want {
		t.Errorf("%s has %q, %v", path, data, err)
	}
}

// registered waits until the CSINode has the driver.
func (s *session) registered(d *csiDriver) {
	s.Helper()
	s.eventually("the driver registers", func() error {
		r := s.try("get", "csinode", d.node, "-o", "jsonpath={.spec.drivers[*].name}")
		if r.out != "test.csi.example.com" {
			return fmt.Errorf("drivers %q", r.out)
		}
		return nil
	})
}

// csiDriver is the driver of test/csidriver.
type csiDriver struct {
	*testing.T
	binary, node, data, endpoint, registry string
	process                                *process
}

func newCSIDriver(t *testing.T, node, kubelet string) *csiDriver {
	t.Helper()
	dir := t.TempDir()
	d := &csiDriver{
		T: t, node: node, binary: filepath.Join(dir, "csidriver"), data: filepath.Join(dir, "data"),
		endpoint: filepath.Join(dir, "csi.sock"), registry: filepath.Join(kubelet, "plugins_registry"),
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", d.binary, "../csidriver")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the driver: %v\n%s", err, out)
	}
	t.Cleanup(d.kill)
	return d
}

func (d *csiDriver) start(args ...string) {
	d.Helper()
	args = append([]string{"--node", d.node, "--data", d.data, "--endpoint", d.endpoint, "--registry", d.registry}, args...)
	p, err := startProcess(exec.Command(d.binary, args...))
	if err != nil {
		d.Fatal(err)
	}
	d.process = p
}

// kill ends the driver as SIGKILL does. Its sockets stay.
func (d *csiDriver) kill() {
	if d.process != nil {
		_ = d.process.cmd.Process.Kill()
		<-d.process.done
		d.process = nil
	}
}
