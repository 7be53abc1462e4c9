// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kindred-project/kindred/test/images"
	"github.com/kindred-project/kindred/test/servers"
)

// kindredInit is a management cluster in which clusterctl installs the providers.
type kindredInit struct {
	*kindredManagement
	certManager servers.CertManager
}

// TestClusterAPIKindredInit: clusterctl installs cert-manager, Cluster API's core and Kindred's providers from the repository of a release, in a
// cluster that has nothing of them but their images. They make a cluster; clusterctl installs the next version of the providers, which scales the
// cluster and deletes it.
func TestClusterAPIKindredInit(t *testing.T) {
	k := newKindredInit(t)
	k.provides("v0.1.0")
	k.runs("init", "--infrastructure", "kindred", "--bootstrap", "kindred", "--control-plane", "kindred", "--wait-providers")
	k.has("v0.1.0")
	k.create("work", 1, 1)
	k.available("work", 2)
	k.finds()

	k.provides("v0.1.1")
	before := k.host.list()
	k.runs("upgrade", "apply", "--infrastructure", "kindred:v0.1.1", "--bootstrap", "kindred:v0.1.1", "--control-plane", "kindred:v0.1.1", "--wait-providers")
	k.has("v0.1.1")
	k.kubectl("scale", "machinedeployment", "work", "--replicas=2")
	k.available("work", 3)
	for _, machine := range before {
		if now := k.host.get(machine.Name); now.PID != machine.PID {
			t.Errorf("machine %s was process %d, and is %d after the upgrade of the providers", machine.Name, machine.PID, now.PID)
		}
	}
	k.finds()
	k.goes("work")
	if left := k.host.list(); len(left) > 0 {
		t.Errorf("machines that are left: %+v", left)
	}
}

func newKindredInit(t *testing.T) *kindredInit {
	t.Helper()
	needsClusterAPI(t)
	host := newHostMachines(t)
	t.Setenv("KINDRED_MACHINES_DIR", host.dir)
	release, err := servers.BuildKindredRelease(t.Context(), "../..", binary, ownVersion(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	certManager, err := servers.BuildCertManager(t.Context(), "../servers", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &management{newSession(t, ownClusterWithNode(t)), servers.ClusterAPI{Clusterctl: release.Clusterctl}}
	k := &kindredInit{&kindredManagement{m, release, host, t.TempDir()}, certManager}
	k.loadArchive(filepath.Join(release.Dir, "core.tar"))
	for reference, program := range certManager.Programs {
		k.loadUnprivileged(reference, program)
	}
	return k
}

// loadUnprivileged loads an image of a program that does not run as root, as the pods of cert-manager want it.
func (k *kindredInit) loadUnprivileged(reference, program string) {
	k.Helper()
	image, err := images.ProgramImage(program, "1000")
	if err != nil {
		k.Fatal(err)
	}
	file := filepath.Join(k.TempDir(), "image.tar")
	if err := images.Write(file, image, reference); err != nil {
		k.Fatal(err)
	}
	k.loadArchive(file)
}

// provides adds a version of Kindred's providers to the release, and loads its image.
func (k *kindredInit) provides(version string) {
	k.Helper()
	if err := k.release.WriteProviders(k.Context(), version); err != nil {
		k.Fatal(err)
	}
	k.loadArchive(filepath.Join(k.release.Dir, "manager.tar"))
	config, err := os.ReadFile(k.release.Config)
	if err != nil {
		k.Fatal(err)
	}
	config = fmt.Appendf(config, "cert-manager: {url: %s, version: %s}\n", k.certManager.Manifest, k.certManager.Version)
	if err := os.WriteFile(k.release.Config, config, 0o600); err != nil {
		k.Fatal(err)
	}
}

// runs runs clusterctl with the release, for this cluster.
func (k *kindredInit) runs(args ...string) {
	k.Helper()
	k.clusterctl(append(args, "--config", k.release.Config, "--kubeconfig", k.cluster.kubeconfig())...)
}

// has compares what clusterctl has installed.
func (k *kindredInit) has(version string) {
	k.Helper()
	k.table(fmt.Sprintf(`NAMESPACE NAME AGE TYPE PROVIDER VERSION
capi-system cluster-api * CoreProvider cluster-api %[1]s
kindred-bootstrap-system bootstrap-kindred * BootstrapProvider kindred %[2]s
kindred-control-plane-system control-plane-kindred * ControlPlaneProvider kindred %[2]s
kindred-infrastructure-system infrastructure-kindred * InfrastructureProvider kindred %[2]s`, k.release.ClusterAPI, version), "get", "providers", "-A")
	k.kubectl("wait", "--namespace", "cert-manager", "--for=condition=Available", "deployments", "--all", "--timeout", patience.String())
}

// TestClusterAPIKindredBesideKubeadm: one management cluster has Kindred's providers, those of kubeadm, and that of machines in memory. A Cluster of
// each is made, and one goes without the other.
func TestClusterAPIKindredBesideKubeadm(t *testing.T) {
	k := newKindredManagement(t)
	others, err := servers.BuildClusterAPI(t.Context(), "../servers")
	if err != nil {
		t.Fatal(err)
	}
	k.install(slices.DeleteFunc(others.Providers, func(p servers.Provider) bool { return p.Role == "core" })...)
	owners := k.watchOwners()
	k.create("work", 1, 1)
	k.apply(plainCluster)
	k.available("work", 2)
	k.available("plain", 3)
	owners.good("while both are created")
	k.goes("plain")
	k.available("work", 2)
	k.nodesReady("work", 2, provisioning)
	k.apply(plainCluster)
	k.available("plain", 3)
	k.goes("work")
	k.available("plain", 3)
	owners.good("while one goes")
	if left := k.host.list(); len(left) > 0 {
		t.Errorf("machines that are left: %+v", left)
	}
}
