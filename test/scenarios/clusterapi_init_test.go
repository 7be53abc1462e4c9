// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kindred-project/kindred/test/servers"
)

// certManagerKinds are the kinds by which clusterctl sees that cert-manager is there. Kindred's providers do not use it.
const certManagerKinds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: issuers.cert-manager.io}
spec:
  group: cert-manager.io
  names: {kind: Issuer, listKind: IssuerList, plural: issuers, singular: issuer}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: certificates.cert-manager.io}
spec:
  group: cert-manager.io
  names: {kind: Certificate, listKind: CertificateList, plural: certificates, singular: certificate}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// TestClusterAPIKindredInit: clusterctl installs Kindred's providers from the repository of a release, in a management cluster that has the core and
// cert-manager's kinds. They make a cluster there.
func TestClusterAPIKindredInit(t *testing.T) {
	needsClusterAPI(t)
	host := newHostMachines(t)
	release, err := servers.BuildKindredRelease(t.Context(), "../..", binary, ownVersion(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	core := release
	core.Dir = coreOf(t, release.Dir)
	k := newKindredManagementOn(t, host, core)
	k.apply(certManagerKinds)
	if r := k.cluster.run("image", "load", filepath.Join(release.Dir, "manager.tar")); r.code != 0 {
		t.Fatal(r.err)
	}
	config := filepath.Join(t.TempDir(), "clusterctl.yaml")
	text, err := os.ReadFile(release.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, append(text, "cert-manager: {externallyProvisioned: \"true\"}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	k.clusterctl("init", "--config", config, "--kubeconfig", k.cluster.kubeconfig(), "--infrastructure", "kindred", "--bootstrap", "kindred", "--control-plane", "kindred", "--wait-providers")
	k.table(`NAMESPACE NAME AGE TYPE PROVIDER VERSION
capi-system cluster-api * CoreProvider cluster-api `+filepath.Base(glob(t, filepath.Join(core.Dir, "cluster-api", "*")))+`
kindred-bootstrap-system bootstrap-kindred * BootstrapProvider kindred v0.1.0
kindred-control-plane-system control-plane-kindred * ControlPlaneProvider kindred v0.1.0
kindred-infrastructure-system infrastructure-kindred * InfrastructureProvider kindred v0.1.0`, "get", "providers", "-A")
	k.create("work", 1, 1)
	k.available("work", 2)
	k.finds()
	k.goes("work")
	if left := k.host.list(); len(left) > 0 {
		t.Errorf("machines that are left: %+v", left)
	}
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

// coreOf returns a release with nothing but the core of another one.
func coreOf(t *testing.T, release string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"cluster-api", "core.tar", "clusterctl-api.yaml"} {
		if err := os.Symlink(filepath.Join(release, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// glob returns the only file that matches.
func glob(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s matches %v, %v", pattern, found, err)
	}
	return found[0]
}
