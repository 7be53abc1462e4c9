// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// rawPod is a pod with the block device of a claim at /dev/raw.
func rawPod(name, claim string) string {
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
    volumeDevices: [{name: raw, devicePath: /dev/raw}]
  volumes: [{name: raw, persistentVolumeClaim: {claimName: ` + claim + `}}]
---
`
}

// devices returns the loop devices of the driver's volumes.
func (d *csiDriver) devices() []string {
	d.Helper()
	out, err := exec.Command("losetup", "--noheadings", "--output", "NAME,BACK-FILE").CombinedOutput()
	if err != nil {
		d.Fatalf("list loop devices: %v %s", err, out)
	}
	var devices []string
	for line := range strings.Lines(string(out)) {
		if device, file, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(strings.TrimSpace(file), d.data+"/") {
			devices = append(devices, device)
		}
	}
	return devices
}

// TestSidecarsOfBlockVolume: upstream's sidecars provision, attach, expand and copy a raw block volume, which the
// pod has as a device.
func TestSidecarsOfBlockVolume(t *testing.T) {
	s, driver := withSidecars(t)
	t.Cleanup(func() {
		for _, device := range driver.devices() {
			t.Errorf("left: %s", device)
			_ = exec.Command("losetup", "--detach", device).Run()
		}
	})
	s.apply(csiClaim("raw", "16Mi", ", volumeMode: Block") + rawPod("user", "raw"))
	s.ready("user")
	s.has("true", "{.items[*].status.attached}", "volumeattachments")
	s.prints("16777216\n", "exec", "user", "--", "blockdev", "--getsize64", "/dev/raw")
	s.kubectl("exec", "user", "--", "sh", "-c", "printf kept | dd of=/dev/raw conv=fsync 2>/dev/null")
	file, err := os.Open(filepath.Join(driver.data, s.handle("raw")))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data := make([]byte, len("kept"))
	if _, err := io.ReadFull(file, data); err != nil || string(data) != "kept" {
		t.Errorf("the volume has %q, %v", data, err)
	}

	// The device grows while the pod uses it. The node learns of it within a minute.
	s.kubectl("patch", "pvc", "raw", "-p", `{"spec": {"resources": {"requests": {"storage": "32Mi"}}}}`)
	s.within(3*patience, "the claim grows", func() error { return s.equals("32Mi", "{.status.capacity.storage}", "pvc", "raw") })
	s.prints("33554432\n", "exec", "user", "--", "blockdev", "--getsize64", "/dev/raw")

	s.apply(csiClaim("clone", "32Mi", ", volumeMode: Block, dataSource: {kind: PersistentVolumeClaim, name: raw}") + rawPod("cloner", "clone"))
	s.ready("cloner")
	s.prints("kept", "exec", "cloner", "--", "head", "-c", "4", "/dev/raw")

	// The next pod has the data, on a device that was attached again.
	s.kubectl("delete", "pod", "user", "cloner")
	s.has("", "{.items[*].metadata.name}", "volumeattachments")
	if devices := driver.devices(); len(devices) > 0 {
		t.Errorf("attached without a pod: %v", devices)
	}
	s.apply(rawPod("next", "raw"))
	s.ready("next")
	s.prints("kept", "exec", "next", "--", "head", "-c", "4", "/dev/raw")

	s.kubectl("delete", "pod", "next")
	s.kubectl("delete", "pvc", "raw", "clone")
	s.has("", "{.items[*].metadata.name}", "pv")
	if volumes := driver.volumes(); len(volumes) > 0 {
		t.Errorf("left: %v", volumes)
	}
}
