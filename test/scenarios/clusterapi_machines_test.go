// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newVersion is the version that machines are upgraded to.
const newVersion = "v1.36.1"

// replacing limits the wait until all machines are replaced. A control plane replaces one at a time.
const replacing = 15 * time.Minute

// TestClusterAPIMachines: the machines of a control plane and of a MachineDeployment are scaled, replaced by those of another version, and
// remediated. No object has other owners than documented at any moment.
func TestClusterAPIMachines(t *testing.T) {
	m := newManagement(t)
	owners := m.watchOwners()
	m.apply(plainCluster)
	m.available("plain", 3)
	m.scale(3, 2)
	owners.good("while machines are added")

	m.kubectl("patch", "kubeadmcontrolplane", "plain", "--type=merge", "-p", `{"spec":{"version":"`+newVersion+`"}}`)
	m.kubectl("patch", "machinedeployment", "plain", "--type=merge", "-p", `{"spec":{"template":{"spec":{"version":"`+newVersion+`"}}}}`)
	m.within(replacing, "all machines have the next version", func() error {
		versions := strings.Fields(m.jsonpath("{.items[*].spec.version}", "machines"))
		if len(versions) != 5 || slices.ContainsFunc(versions, func(v string) bool { return v != newVersion }) {
			return fmt.Errorf("%v", versions)
		}
		return nil
	})
	m.available("plain", 5)
	owners.good("while machines are replaced by those of another version")

	unhealthy := strings.Fields(m.kubectl("get", "machines", "-l", "deployment=plain", "-o", "name"))[0]
	m.kubectl("annotate", unhealthy, "cluster.x-k8s.io/remediate-machine=")
	m.within(provisioning, "the unhealthy machine is gone", func() error {
		if left := m.kubectl("get", unhealthy, "--ignore-not-found", "-o", "name"); left != "" {
			return fmt.Errorf("%s is still there", left)
		}
		return nil
	})
	m.available("plain", 5)
	owners.good("while a machine is remediated")

	m.scale(1, 1)
	owners.good("while machines are removed")
	m.goes("plain")
	owners.good("while it is deleted")
}

// scale sets the number of machines of a plainCluster.
func (m *management) scale(servers, workers int) {
	m.Helper()
	m.kubectl("scale", "kubeadmcontrolplane", "plain", fmt.Sprintf("--replicas=%d", servers))
	m.kubectl("scale", "machinedeployment", "plain", fmt.Sprintf("--replicas=%d", workers))
	m.within(replacing, "the machines are there", func() error {
		if machines := strings.Fields(m.kubectl("get", "machines", "-o", "name")); len(machines) != servers+workers {
			return fmt.Errorf("%d of %d machines", len(machines), servers+workers)
		}
		return nil
	})
	m.available("plain", servers+workers)
}

// machinePool is a MachinePool of a plainCluster. The provider has pools of containers only, which need Docker, so that the pool has owners,
// and no machines.
const machinePool = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachinePool
metadata: {name: pool}
spec:
  clusterName: plain
  replicas: 1
  template:
    spec:
      clusterName: plain
      version: ` + workloadVersion + `
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfig, name: pool}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachinePool, name: pool}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfig
metadata: {name: pool}
spec: {joinConfiguration: {nodeRegistration: {imagePullPolicy: IfNotPresent}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevMachinePool
metadata: {name: pool}
spec: {backend: {docker: {}}}
`

// poolOwners are the version, kind and name of the owners of a machinePool, and whether they are controllers.
var poolOwners = map[string]string{
	"machinepool/pool":    "cluster.x-k8s.io/v1beta2 Cluster plain",
	"devmachinepool/pool": "cluster.x-k8s.io/v1beta2 MachinePool pool true",
	"kubeadmconfig/pool":  "cluster.x-k8s.io/v1beta2 MachinePool pool true",
}

// poolHasOwners waits until a machinePool has its owners.
func (m *management) poolHasOwners() {
	m.Helper()
	for object, want := range poolOwners {
		m.within(provisioning, object+" has its owners", func() error {
			refs := m.jsonpath(`{range .metadata.ownerReferences[*]}{.apiVersion} {.kind} {.name} {.controller}{"\n"}{end}`, object)
			if diff := cmp.Diff(want, strings.TrimSpace(refs)); diff != "" {
				return fmt.Errorf("(-want +got):\n%s", diff)
			}
			return nil
		})
	}
}

// TestClusterAPIMachinePool: a MachinePool and what belongs to it have the owners of the table, get them again if they are removed or of an
// old version, and go with it.
func TestClusterAPIMachinePool(t *testing.T) {
	m := newManagement(t)
	owners := m.watchOwners()
	m.apply(plainCluster)
	m.available("plain", 3)
	m.apply(machinePool)
	m.poolHasOwners()
	time.Sleep(time.Minute) // for as long are other owners allowed
	owners.good("while it is created")
	for object := range poolOwners {
		m.kubectl("patch", object, "--type=merge", "-p", `{"metadata":{"ownerReferences":null}}`)
	}
	m.poolHasOwners()
	for object := range poolOwners {
		m.kubectl("patch", object, "--type=json", "-p", `[{"op":"replace","path":"/metadata/ownerReferences/0/apiVersion","value":"cluster.x-k8s.io/v1alpha2"}]`)
	}
	m.poolHasOwners()
	owners.settled("while its references are removed and changed")
	owners.record.saw("while its references are removed and changed", "lost-owners", "unserved-version")
	m.kubectl("delete", "machinepool", "pool", "--wait=false")
	m.within(provisioning, "the pool is gone", func() error {
		// Without Docker, the provider cannot find out that there are no containers.
		if m.kubectl("get", "devmachinepool", "pool", "--ignore-not-found", "-o", "jsonpath={.metadata.deletionTimestamp}") != "" {
			m.kubectl("patch", "devmachinepool", "pool", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		}
		if left := m.kubectl("get", "machinepool/pool", "devmachinepool/pool", "kubeadmconfig/pool", "--ignore-not-found", "-o", "name"); left != "" {
			return fmt.Errorf("%s", left)
		}
		return nil
	})
	owners.good("while it is deleted")
}
