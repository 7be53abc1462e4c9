// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kindred-project/kindred/test/servers"
)

// TestClusterAPIKindredDiskFull: the disk of the host is full while a cluster is made. The machines say so, and the cluster is made once there is room.
func TestClusterAPIKindredDiskFull(t *testing.T) {
	needsClusterAPI(t)
	host := newHostMachines(t)
	host.dir = filepath.Join(smallDisk(t, 1<<30), "machines")
	release, err := servers.BuildKindredRelease(t.Context(), "../..", binary, ownVersion(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	k := newKindredManagementOn(t, host, release)
	k.create("first", 1, 0)
	k.nodesReady("first", 1, provisioning)
	heal := fill(t, filepath.Dir(host.dir))
	k.create("second", 1, 0)
	k.says("kindredmachine", "HostFailed", "no space left on device")
	heal()
	k.nodesReady("second", 1, provisioning)
	k.goes("second")
	k.goes("first")
}

// TestClusterAPIKindredOneDiskFull: the disk on which the management cluster is, and all machines, is nearly full while a cluster is made, so that
// writes are refused, and then full while it is deleted, which may end the management cluster. The other cluster stays, and what was begun is
// completed once there is room.
func TestClusterAPIKindredOneDiskFull(t *testing.T) {
	needsClusterAPI(t)
	disk := smallDisk(t, 4<<30)
	host := newHostMachines(t)
	host.dir = filepath.Join(disk, "machines")
	release, err := servers.BuildKindredRelease(t.Context(), "../..", binary, ownVersion(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", disk) // for the data directory
	k := newKindredManagementOn(t, host, release)
	owners := k.recordOwners()
	k.create("first", 1, 1)
	k.nodesReady("first", 2, provisioning)
	machines := k.host.list()

	k.create("second", 1, 1)
	heal := fillUpTo(t, disk, 128<<20)
	k.refusesWrites()
	heal()
	k.nodesReady("second", 2, provisioning)

	k.kubectl("delete", "cluster", "second", "--wait=false")
	heal = fill(t, disk)
	k.runsOutOfRoom()
	heal()
	if !k.cluster.running() {
		k.cluster.again(t)
	}
	k.kubectl("wait", "--for=delete", "cluster/second", "--timeout=120s")
	k.nodesReady("first", 2, provisioning)
	for _, m := range machines {
		if now := k.host.get(m.Name); now.PID != m.PID {
			t.Errorf("the machine %s was process %d, and is %d: it was replaced", m.Name, m.PID, now.PID)
		}
	}
	k.finds()
	k.goes("first")
	owners.good("although the disk was full")
	if left := k.host.list(); len(left) > 0 {
		t.Errorf("machines that are left: %+v", left)
	}
}

// fullPeriod is long enough for controllers to run out of room as well.
const fullPeriod = 15 * time.Second

// refusesWrites waits until writes are refused because of the disk, and fails the test unless a Cluster is then refused for some time.
func (k *kindredManagement) refusesWrites() {
	k.Helper()
	refused := func(r result) error {
		if r.code == 0 || r.out != "" || !strings.Contains(r.err, "writes are refused, the disk is nearly full") {
			return fmt.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
		}
		return nil
	}
	k.within(patience, "writes are refused", func() error { return refused(k.try("create", "configmap", "room")) })
	manifest := k.generated("", "third", 1, 0)
	for began := time.Now(); time.Since(began) < fullPeriod; {
		if err := refused(runCommand(k.command("create", "-f", "-"), manifest)); err != nil {
			k.Fatalf("a Cluster is not refused: %v", err)
		}
	}
}

// runsOutOfRoom waits for some time, or until the management cluster has ended, and fails the test unless it says why then.
func (k *kindredManagement) runsOutOfRoom() {
	k.Helper()
	select {
	case <-k.cluster.up.done:
		k.contains(k.cluster.up.out.String(), "no space left on device")
	case <-time.After(fullPeriod):
	}
}
