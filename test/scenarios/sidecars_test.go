// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kindred-project/kindred/test/servers"
)

const sidecarManifest = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: test.csi.example.com}
spec: {attachRequired: true, podInfoOnMount: true, storageCapacity: true, nodeAllocatableUpdatePeriodSeconds: 3600}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: csi}
provisioner: test.csi.example.com
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: silver}
driverName: test.csi.example.com
parameters: {speed: "1"}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: gold}
driverName: test.csi.example.com
parameters: {speed: "2"}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: wrong}
driverName: test.csi.example.com
parameters: {colour: blue}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: csi}
driver: test.csi.example.com
deletionPolicy: Delete
---
`

// csiClaim is a claim; more is part of its spec.
func csiClaim(name, size, more string) string {
	return `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ` + name + `}
spec: {accessModes: [ReadWriteOnce], storageClassName: csi, resources: {requests: {storage: ` + size + `}}` + more + `}
---
`
}

// csiPod is a pod with claims, which are mounted by their names.
func csiPod(name string, claims ...string) string {
	var mounts, volumes []string
	for _, claim := range claims {
		mounts = append(mounts, fmt.Sprintf("{name: %s, mountPath: /%s}", claim, claim))
		volumes = append(volumes, fmt.Sprintf("{name: %s, persistentVolumeClaim: {claimName: %s}}", claim, claim))
	}
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
    volumeMounts: [` + strings.Join(mounts, ", ") + `]
  volumes: [` + strings.Join(volumes, ", ") + `]
---
`
}

// csiSnapshot is a snapshot of a claim.
func csiSnapshot(name, claim string) string {
	return `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: ` + name + `}
spec: {volumeSnapshotClassName: csi, source: {persistentVolumeClaimName: ` + claim + `}}
`
}

// withSidecars returns a namespace on a cluster with a driver and all of upstream's sidecars, or skips the test
// unless it was requested, because building the sidecars takes minutes.
func withSidecars(t *testing.T, args ...string) (*session, *csiDriver) {
	t.Helper()
	if os.Getenv("KINDRED_SIDECARS") == "" {
		t.Skip("upstream's sidecars are built and run where KINDRED_SIDECARS is set, as by \"make sidecars\"")
	}
	programs, err := servers.BuildSidecars(t.Context(), "../servers")
	if err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	c, driver := ownClusterWithDriver(t, args...)
	s := newSession(t, c)
	s.registered(driver)
	for _, kind := range []string{"volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"} {
		s.kubectl("apply", "-f", filepath.Join(programs.SnapshotResources, "snapshot.storage.k8s.io_"+kind+".yaml"))
		s.kubectl("wait", "--for=condition=Established", "crd/"+kind+".snapshot.storage.k8s.io", "--timeout", patience.String())
	}
	run := func(program string, args ...string) {
		args = append(args, "--kubeconfig", c.kubeconfig(), "--retry-interval-start", "100ms", "--retry-interval-max", "1s")
		s.supervise(program, args...)
	}
	const noGroups = "--feature-gates=CSIVolumeGroupSnapshot=false" // their CustomResourceDefinitions are not applied
	run(programs.SnapshotController, noGroups)
	run(programs.Snapshotter, "--csi-address", driver.endpoint, noGroups)
	run(programs.Attacher, "--csi-address", driver.endpoint)
	run(programs.Resizer, "--csi-address", driver.endpoint)
	run(programs.Provisioner, "--csi-address", driver.endpoint,
		"--enable-capacity", "--capacity-poll-interval", "1s", "--capacity-ownerref-level", "-1")
	s.apply(sidecarManifest)
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(driver.data, ".violations")); !errors.Is(err, fs.ErrNotExist) {
			data, _ := os.ReadFile(filepath.Join(driver.data, ".violations"))
			t.Errorf("calls that the specification forbids: %s (%v)", data, err)
		}
	})
	return s, driver
}

// supervise runs a sidecar until the scenario ends. Sidecars exit when their driver dies.
func (s *session) supervise(program string, args ...string) {
	s.Helper()
	end, ended := make(chan struct{}), make(chan struct{})
	run := func() (*process, error) {
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "NAMESPACE="+s.namespace, "POD_NAME=none")
		return startProcess(cmd)
	}
	p, err := run()
	if err != nil {
		s.Fatal(err)
	}
	var output []string
	go func() {
		defer close(ended)
		for err == nil {
			select {
			case <-end:
				p.end()
				output = append(output, p.out.String())
				return
			case <-p.done:
				output = append(output, p.out.String())
				time.Sleep(100 * time.Millisecond)
				p, err = run()
			}
		}
	}()
	s.Cleanup(func() {
		close(end)
		<-ended
		if s.Failed() {
			s.Logf("%s (%d runs, %v):\n%s", filepath.Base(program), len(output), err, tail(strings.Join(output, "\n"), 6000))
		}
	})
}

// handle returns the driver's ID of a claim's volume.
func (s *session) handle(claim string) string {
	s.Helper()
	return s.jsonpath("{.spec.csi.volumeHandle}", "pv", s.jsonpath("{.spec.volumeName}", "pvc", claim))
}

// has waits until a field of an object has a value.
func (s *session) has(want, path string, object ...string) {
	s.Helper()
	s.eventually(strings.Join(object, " "), func() error { return s.equals(want, path, object...) })
}

// equals returns an error unless a field of an object has a value.
func (s *session) equals(want, path string, object ...string) error {
	r := s.try(append([]string{"get", "-o", "jsonpath=" + path}, object...)...)
	if r.code != 0 || r.out != want {
		return fmt.Errorf("%s is %q and not %q %s", path, r.out, want, r.err)
	}
	return nil
}

// hasEvent waits for an event about an object.
func (s *session) hasEvent(object, reason, message string) {
	s.Helper()
	s.eventually("event "+reason, func() error {
		out := s.kubectl("get", "events", "--field-selector", "involvedObject.name="+object+",reason="+reason, "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(out, message) {
			return fmt.Errorf("messages %q", out)
		}
		return nil
	})
}

// parameters returns the parameters that the driver has for a volume.
func (d *csiDriver) parameters(id string) map[string]string {
	d.Helper()
	data, err := os.ReadFile(filepath.Join(d.data, ".volumes", id+".json"))
	if err != nil {
		d.Fatal(err)
	}
	var v struct{ Parameters map[string]string }
	if err := json.Unmarshal(data, &v); err != nil {
		d.Fatal(err)
	}
	return v.Parameters
}

// snapshots returns the names of the driver's snapshots.
func (d *csiDriver) snapshots() []string { return d.list(".snapshots") }

// volumes returns the names of the driver's volumes.
func (d *csiDriver) volumes() []string { return d.list(".volumes") }

func (d *csiDriver) list(kind string) []string {
	paths, _ := filepath.Glob(filepath.Join(d.data, kind, "*.json"))
	slices.Sort(paths)
	return paths
}

// TestSidecars: upstream's sidecars provision, attach, expand, modify, snapshot and copy the volume of a pod on
// a real node.
func TestSidecars(t *testing.T) {
	s, driver := withSidecars(t, "--capacity", "8388608")
	s.apply(csiClaim("data", "1Mi", ", volumeAttributesClassName: silver") + csiPod("user", "data") + csiClaim("big", "16Mi", "") + csiPod("big", "big"))
	s.ready("user")
	id := s.handle("data")
	s.has("true", "{.items[*].status.attached}", "volumeattachments")
	s.has("silver", "{.status.currentVolumeAttributesClassName}", "pvc", "data")
	if speed := driver.parameters(id)["speed"]; speed != "1" {
		t.Errorf("speed %s", speed)
	}
	s.kubectl("exec", "user", "--", "sh", "-c", "echo one > /data/file")
	expectContent(t, filepath.Join(driver.data, id, "file"), "one\n")

	// The claim grows. The node learns of it within a minute.
	s.kubectl("patch", "pvc", "data", "-p", `{"spec": {"resources": {"requests": {"storage": "2Mi"}}}}`)
	s.has("2Mi", "{.spec.capacity.storage}", "pv", s.jsonpath("{.spec.volumeName}", "pvc", "data"))
	s.has("True", `{.status.conditions[?(@.type=="FileSystemResizePending")].status}`, "pvc", "data")

	// Its attributes change, to some that the driver does not know and back.
	s.attributes(driver, id)

	// A snapshot has the data as of its creation, a clone that of its own.
	s.apply(csiSnapshot("before", "data"))
	s.has("true", "{.status.readyToUse}", "volumesnapshot", "before")
	s.kubectl("exec", "user", "--", "sh", "-c", "echo two > /data/file")
	s.apply(csiClaim("clone", "2Mi", ", dataSource: {kind: PersistentVolumeClaim, name: data}") + csiPod("cloner", "clone"))
	s.ready("cloner")
	s.prints("two\n", "exec", "cloner", "--", "cat", "/clone/file")

	// No node has room for the large claim.
	s.hasEvent("big", "FailedScheduling", "node(s) did not have enough free storage")

	s.hasEvent("data", "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded")
	s.has("2Mi", "{.status.capacity.storage}", "pvc", "data")
	s.has("", `{.status.conditions[?(@.type=="FileSystemResizePending")].status}`, "pvc", "data")

	// The snapshot outlives the claim, and a new claim has its data.
	s.kubectl("delete", "pod", "user")
	s.kubectl("delete", "pvc", "data")
	s.apply(csiClaim("restored", "2Mi", ", dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: before}") + csiPod("restorer", "restored"))
	s.ready("restorer")
	s.prints("one\n", "exec", "restorer", "--", "cat", "/restored/file")
	s.eventually("the claim's volume goes", func() error {
		if volumes := driver.volumes(); len(volumes) != 2 {
			return fmt.Errorf("volumes %v", volumes)
		}
		return nil
	})

	s.kubectl("delete", "pod", "restorer", "cloner", "big")
	s.kubectl("delete", "pvc", "restored", "clone", "big")
	s.kubectl("delete", "volumesnapshot", "before")
	s.has("", "{.items[*].metadata.name}", "volumeattachments")
	s.has("", "{.items[*].metadata.name}", "pv")
	s.has("", "{.items[*].metadata.name}", "volumesnapshotcontents")
	if volumes, snapshots := driver.volumes(), driver.snapshots(); len(volumes)+len(snapshots) > 0 {
		t.Errorf("left: %v %v", volumes, snapshots)
	}
}

// attributes changes the attributes of the claim "data" from silver to gold.
func (s *session) attributes(driver *csiDriver, id string) {
	s.Helper()
	s.kubectl("patch", "pvc", "data", "-p", `{"spec": {"volumeAttributesClassName": "wrong"}}`)
	s.has("Infeasible wrong", "{.status.modifyVolumeStatus.status} {.status.modifyVolumeStatus.targetVolumeAttributesClassName}", "pvc", "data")
	s.has("silver", "{.status.currentVolumeAttributesClassName}", "pvc", "data")
	s.kubectl("patch", "pvc", "data", "-p", `{"spec": {"volumeAttributesClassName": "gold"}}`)
	s.has("gold", "{.status.currentVolumeAttributesClassName}", "pvc", "data")
	s.has("gold", "{.spec.volumeAttributesClassName}", "pv", s.jsonpath("{.spec.volumeName}", "pvc", "data"))
	s.has("", "{.status.modifyVolumeStatus}", "pvc", "data")
	if speed := driver.parameters(id)["speed"]; speed != "2" {
		s.Errorf("speed %s", speed)
	}
	// A class that is in use stays until it is not.
	s.kubectl("delete", "volumeattributesclass", "silver", "wrong")
	s.kubectl("delete", "volumeattributesclass", "gold", "--wait=false")
	if finalizers := s.jsonpath("{.metadata.finalizers}", "volumeattributesclass", "gold"); finalizers != `["kubernetes.io/vac-protection"]` {
		s.Errorf("finalizers of the class in use: %s", finalizers)
	}
}
