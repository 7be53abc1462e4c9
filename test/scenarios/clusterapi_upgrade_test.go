// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kindred-project/kindred/test/etcd"
	"github.com/kindred-project/kindred/test/servers"
)

// upgrade is a management cluster whose providers clusterctl installs and upgrades.
type upgrade struct {
	*management
	store string // the URL of its etcd
	// config is that of clusterctl.
	config        string
	before, after []servers.Provider
}

// TestClusterAPIUpgrade: clusterctl upgrades Cluster API from its previous minor version, while the objects of a Cluster are stored in the API's
// version before. They are in the new version afterwards, are the same objects with the same owners, and the Cluster is scaled and deleted.
func TestClusterAPIUpgrade(t *testing.T) {
	u := newUpgrade(t)
	u.runs("init", "--core", "cluster-api:"+u.before[0].Version, "--bootstrap", "kubeadm:"+u.before[1].Version,
		"--control-plane", "kubeadm:"+u.before[2].Version, "--infrastructure", "docker:"+u.before[3].Version, "--wait-providers")
	kinds := u.storeIn("v1beta1", "v1beta2")
	owners := u.recordOwners()
	u.apply(resourceSets)
	u.apply(plainCluster)
	u.available("plain", 3)
	u.finds()
	owners.good("while it is created")
	if stored := u.stored(); stored["v1beta2"] > 0 || stored["v1beta1"] == 0 {
		t.Fatalf("versions in the store before the upgrade: %v", stored)
	}
	members := u.members()

	if plan := u.runs("upgrade", "plan"); !strings.Contains(plan, u.after[0].Version) {
		t.Errorf("clusterctl upgrade plan does not offer %s:\n%s", u.after[0].Version, plan)
	}
	u.runs("upgrade", "apply", "--contract", "v1beta2", "--wait-providers")
	u.migrated(kinds)
	u.available("plain", 3)
	if diff := cmp.Diff(members, u.members()); diff != "" {
		t.Errorf("objects before and after the upgrade (-before +after):\n%s", diff)
	}
	u.holdsAssertions("plain", false, "have the owners of the table")
	u.finds()
	owners.good("while Cluster API is upgraded")
	u.kubectl("scale", "machinedeployment", "plain", "--replicas=3")
	u.available("plain", 4)
	u.goes("plain")
	u.finds()
	owners.good("while it is scaled and deleted")
}

// certManagerKinds are the kinds by which clusterctl sees that cert-manager is there.
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

// newUpgrade returns a cluster with the images of both versions of the providers, and their repository.
func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	needsClusterAPI(t)
	before, err := servers.BuildPreviousClusterAPI(t.Context(), "../servers")
	if err != nil {
		t.Fatal(err)
	}
	programs, err := servers.BuildClusterAPI(t.Context(), "../servers")
	if err != nil {
		t.Fatal(err)
	}
	store := "http://" + etcd.Local(t, t.TempDir()).Address
	m := &management{newSession(t, ownClusterWithNode(t, "--etcd-servers", store)), programs}
	u := &upgrade{management: m, store: store, before: before, after: programs.Providers}
	u.config = m.repository(before, programs.Providers)
	m.apply(certManagerKinds)
	return u
}

// runs runs clusterctl with the repository, for this cluster.
func (u *upgrade) runs(args ...string) string {
	u.Helper()
	return u.clusterctl(append(args, "--config", u.config, "--kubeconfig", u.cluster.kubeconfig())...)
}

// providerTypes are the roles of providers in clusterctl's configuration.
var providerTypes = map[string]string{
	"core": "CoreProvider", "bootstrap": "BootstrapProvider", "control-plane": "ControlPlaneProvider", "infrastructure": "InfrastructureProvider",
}

// repository loads the images of releases, the newest last, and writes their manifests as a repository of clusterctl, whose configuration it
// returns. The manifests have certificates, so that they ask cert-manager for nothing.
func (m *management) repository(releases ...[]servers.Provider) (config string) {
	m.Helper()
	dir := m.TempDir()
	entries := map[string]string{}
	for _, p := range slices.Concat(releases...) {
		m.load(p)
		folder := p.Role + "-" + p.Label
		if p.Role == "core" {
			folder = p.Label
		}
		components := filepath.Join(dir, folder, p.Version, p.Role+"-components.yaml")
		m.writeRelease(p, components)
		entries[folder] = fmt.Sprintf("- {name: %s, type: %s, url: %s}\n", p.Label, providerTypes[p.Role], components)
	}
	config = filepath.Join(dir, "clusterctl.yaml")
	text := "cert-manager: {externallyProvisioned: \"true\"}\nproviders:\n" + strings.Join(slices.Sorted(maps.Values(entries)), "")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		m.Fatal(err)
	}
	return config
}

// writeRelease writes the manifest of a provider, and its metadata beside it.
func (m *management) writeRelease(p servers.Provider, components string) {
	m.Helper()
	metadata, err := os.ReadFile(p.Metadata)
	if err != nil {
		m.Fatal(err)
	}
	var documents strings.Builder
	for _, o := range m.objectsOf(p) {
		text, err := json.Marshal(o)
		if err != nil {
			m.Fatal(err)
		}
		fmt.Fprintf(&documents, "---\n%s\n", text)
	}
	if err := os.MkdirAll(filepath.Dir(components), 0o755); err != nil {
		m.Fatal(err)
	}
	for file, text := range map[string]string{components: documents.String(), filepath.Join(filepath.Dir(components), "metadata.yaml"): string(metadata)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			m.Fatal(err)
		}
	}
}

// storeIn lets objects of Cluster API be stored in a version and not in another, as an older release did, and returns their kinds.
func (m *management) storeIn(version, other string) (definitions []string) {
	m.Helper()
	for definition := range strings.FieldsSeq(m.kubectl("get", "customresourcedefinitions", "-l", "clusterctl.cluster.x-k8s.io", "-o", "name")) {
		versions := strings.Fields(m.jsonpath("{.spec.versions[*].name}", definition))
		to, from := slices.Index(versions, version), slices.Index(versions, other)
		if to < 0 || from < 0 {
			continue
		}
		m.kubectl("patch", definition, "--type=json", "-p",
			fmt.Sprintf(`[{"op":"replace","path":"/spec/versions/%d/storage","value":false},{"op":"replace","path":"/spec/versions/%d/storage","value":true}]`, from, to))
		definitions = append(definitions, definition)
	}
	if len(definitions) == 0 {
		m.Fatalf("no kind has the versions %s and %s", version, other)
	}
	return definitions
}

// migrated waits until all objects of kinds are stored in v1beta2, as their definitions say.
func (u *upgrade) migrated(definitions []string) {
	u.Helper()
	u.within(provisioning, "objects are stored in v1beta2", func() error {
		for _, definition := range definitions {
			if versions := u.jsonpath("{.status.storedVersions[*]}", definition); versions != "v1beta2" {
				return fmt.Errorf("%s may be stored in %s", definition, versions)
			}
		}
		if stored := u.stored(); stored["v1beta1"] > 0 || stored["v1beta2"] == 0 {
			return fmt.Errorf("versions in the store: %v", stored)
		}
		return nil
	})
}

// stored returns how many objects of Cluster API the store has in each version.
func (u *upgrade) stored() map[string]int {
	u.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{u.store}})
	if err != nil {
		u.Fatal(err)
	}
	defer client.Close()
	answer, err := client.Get(u.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil {
		u.Fatal(err)
	}
	versions := map[string]int{}
	for _, kv := range answer.Kvs {
		var object struct{ APIVersion string }
		if json.Unmarshal(kv.Value, &object) != nil {
			continue // kinds that are not custom are stored in another encoding
		}
		if group, version, _ := strings.Cut(object.APIVersion, "/"); strings.HasSuffix(group, "cluster.x-k8s.io") {
			versions[version]++
		}
	}
	return versions
}
