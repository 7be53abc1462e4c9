// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kindred-project/kindred/test/servers"
)

// TestCSIProvisioner: upstream's external-provisioner creates a volume when a pod needs it, and deletes it with
// its claim.
func TestCSIProvisioner(t *testing.T) {
	needContainers(t)
	provisioner, err := servers.BuildProvisioner(t.Context(), "../servers")
	if err != nil {
		t.Fatal(err)
	}
	c, driver := ownClusterWithDriver(t)
	s := newSession(t, c)
	s.registered(driver)
	sidecar, err := startProcess(exec.Command(provisioner, "--csi-address", driver.endpoint, "--kubeconfig", c.kubeconfig()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sidecar.end()
		if t.Failed() {
			t.Logf("external-provisioner:\n%s", sidecar.out)
		}
	})
	s.apply(csiManifest + csiUser("user"))
	s.ready("user")
	s.kubectl("exec", "user", "--", "sh", "-c", "echo kept > /data/file")
	volume := s.jsonpath("{.spec.volumeName}", "pvc", "data")
	file := filepath.Join(driver.data, s.jsonpath("{.spec.csi.volumeHandle}", "pv", volume), "file")
	expectContent(t, file, "kept\n")
	s.kubectl("delete", "pod", "user")
	expectContent(t, file, "kept\n")
	s.kubectl("delete", "pvc", "data")
	s.gone("pv", volume)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the deleted volume's data: %v", err)
	}
}
