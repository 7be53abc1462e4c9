// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kindred-project/kindred/internal/providers"
	"github.com/kindred-project/kindred/test/images"
	"github.com/kindred-project/kindred/test/servers"
)

// workloadVersion is the version of Kubernetes that machines in memory claim to run.
const workloadVersion = "v1.36.0"

// provisioning limits the wait until a Cluster is Available, and until it is gone. Cluster API retries after 10 to 30 seconds.
const provisioning = 5 * time.Minute

// management is a namespace of a cluster that runs Cluster API.
type management struct {
	*session
	programs servers.ClusterAPI
}

// rootAuthority is the ConfigMap that every namespace has.
const rootAuthority = "configmap/kube-root-ca.crt"

// needsClusterAPI skips the test unless it was requested, because building Cluster API takes minutes.
func needsClusterAPI(t *testing.T) {
	t.Helper()
	if os.Getenv("KINDRED_CAPI") == "" {
		t.Skip("Cluster API is built and run where KINDRED_CAPI is set, as by \"make capi\"")
	}
}

// newManagement returns a management cluster with Cluster API's managers in pods: kubeadm's providers, and that of machines in memory.
func newManagement(t *testing.T) *management {
	t.Helper()
	needsClusterAPI(t)
	programs, err := servers.BuildClusterAPI(t.Context(), "../servers")
	if err != nil {
		t.Fatal(err)
	}
	m := &management{newSession(t, ownClusterWithNode(t)), programs}
	m.install(programs.Providers...)
	return m
}

// install applies providers with images of their programs, and waits until they are available.
func (m *management) install(all ...servers.Provider) {
	m.Helper()
	for _, p := range all {
		m.load(p)
		// Large definitions do not fit into the annotation of a client's apply.
		m.input(listOf(m.objectsOf(p)), "apply", "--namespace", p.Name+"-system", "--server-side", "-f", "-")
	}
	for _, p := range all {
		m.kubectl("wait", "--namespace", p.Name+"-system", "--for=condition=Available", "deployments", "--all", "--timeout", patience.String())
	}
}

// load makes the image of a provider, and loads it into the node's runtime.
func (m *management) load(p servers.Provider) {
	m.Helper()
	file := filepath.Join(m.TempDir(), "image.tar")
	if err := images.Program(file, p.Program, p.Image); err != nil {
		m.Fatal(err)
	}
	m.loadArchive(file)
}

// loadArchive loads images into the node's runtime.
func (m *management) loadArchive(file string) {
	m.Helper()
	if r := m.cluster.run("image", "load", file); r.code != 0 {
		m.Fatal(r.err)
	}
}

// objectsOf returns the objects of a provider.
func (m *management) objectsOf(p servers.Provider) []*unstructured.Unstructured {
	m.Helper()
	objects, err := manifest(p, m.kubectl("kustomize", p.Config), map[string]string{"CLUSTER_TOPOLOGY": "true", "EXP_RUNTIME_SDK": "true"})
	if err != nil {
		m.Fatalf("%s: %v", p.Name, err)
	}
	return objects
}

// listOf encodes objects as a List.
func listOf(objects []*unstructured.Unstructured) string {
	items := make([]any, len(objects))
	for i, o := range objects {
		items[i] = o.Object
	}
	// Cannot fail: all values were decoded.
	text, _ := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	return string(text)
}

// plainCluster is a Cluster without a ClusterClass: a control plane, a MachineDeployment and a MachineHealthCheck, whose machines are in
// the memory of their provider.
const plainCluster = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: plain, labels: {sets: "yes"}}
spec:
  clusterNetwork: {services: {cidrBlocks: [10.128.0.0/12]}, pods: {cidrBlocks: [192.168.0.0/16]}, serviceDomain: cluster.local}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevCluster, name: plain}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: plain}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevCluster
metadata: {name: plain}
spec: {backend: {inMemory: {}}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: plain}
spec:
  replicas: 1
  version: ` + workloadVersion + `
  machineTemplate:
    spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: plain}}
  kubeadmConfigSpec:
    clusterConfiguration: {apiServer: {certSANs: [localhost, 127.0.0.1]}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevMachineTemplate
metadata: {name: plain}
spec:
  template:
    spec:
      backend:
        inMemory:
          vm: {provisioning: {startupDuration: 1s}}
          node: {provisioning: {startupDuration: 1s}}
          apiServer: {provisioning: {startupDuration: 1s}}
          etcd: {provisioning: {startupDuration: 1s}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: plain}
spec: {template: {spec: {joinConfiguration: {nodeRegistration: {imagePullPolicy: IfNotPresent}}}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: plain}
spec:
  clusterName: plain
  replicas: 2
  selector: {matchLabels: {deployment: plain}}
  template:
    metadata: {labels: {deployment: plain, cluster.x-k8s.io/cluster-name: plain}}
    spec:
      clusterName: plain
      version: ` + workloadVersion + `
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: plain}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: plain}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: plain}
spec:
  clusterName: plain
  selector: {matchLabels: {deployment: plain}}
  checks: {unhealthyNodeConditions: [{type: Ready, status: "False", timeoutSeconds: 300}]}
`

// plainTree shows a plainCluster as its users think of it.
const plainTree = `
Namespace *
OBJECT CONTROLLED READINESS AGE NOTES
Cluster/plain * Ready *
├─ DevCluster/plain no Ready * infrastructure
├─ KubeadmControlPlane/plain no Ready * control plane, ` + workloadVersion + `, 1 of 1 ready
│ ├─ Machine/plain-* yes Ready * control plane, ` + workloadVersion + `, node plain-*
│ │ ├─ DevMachine/plain-* yes Ready *
│ │ └─ KubeadmConfig/plain-* yes Ready *
│ │ └─ Secret/plain-* yes Ready *
│ ├─ Secret/plain-ca yes Ready *
│ ├─ Secret/plain-etcd yes Ready *
│ ├─ Secret/plain-kubeconfig yes Ready *
│ ├─ Secret/plain-proxy yes Ready *
│ └─ Secret/plain-sa yes Ready *
├─ MachineDeployment/plain no Ready * workers, ` + workloadVersion + `, 2 of 2 ready
│ └─ MachineSet/plain-* yes Ready * workers, ` + workloadVersion + `, 2 of 2 ready
│ ├─ Machine/plain-* yes Ready * workers, ` + workloadVersion + `, node plain-*
│ │ ├─ DevMachine/plain-* yes Ready *
│ │ └─ KubeadmConfig/plain-* yes Ready *
│ │ └─ Secret/plain-* yes Ready *
│ └─ Machine/plain-* yes Ready * workers, ` + workloadVersion + `, node plain-*
│ ├─ DevMachine/plain-* yes Ready *
│ └─ KubeadmConfig/plain-* yes Ready *
│ └─ Secret/plain-* yes Ready *
├─ DevMachineTemplate/plain no Ready *
├─ KubeadmConfigTemplate/plain no Ready *
└─ MachineHealthCheck/plain no Ready *
`

// TestClusterAPIPlain: a Cluster whose objects name each other holds upstream's assertions, and nothing is left of it when it is deleted.
func TestClusterAPIPlain(t *testing.T) {
	m := newManagement(t)
	owners := m.watchOwners()
	m.apply(resourceSets)
	m.apply(plainCluster)
	m.available("plain", 3)
	owners.good("while it is created")
	m.shows(plainTree, "tree", "cluster/plain")
	m.holdsAssertions("plain", false)
	owners.saw("while its references are removed and changed", "lost-reference", "unserved-version")
	m.sharesResources("plain")
	owners.good("while two ClusterResourceSets bring the same objects")
	m.goes("plain")
	owners.good("while it is deleted")
	m.comesBack("plain", 3)
	owners.good("while it comes back")
}

// comesBack undeletes a Cluster. The answer says that its machines are probably gone, and its data with them; the provider of machines in memory
// makes them again.
func (m *management) comesBack(cluster string, machines int) {
	m.Helper()
	r := m.kindred("undelete", "cluster/"+cluster)
	if r.code != 0 {
		m.Fatalf("undelete: %d\n%s%s", r.code, r.out, r.err)
	}
	said := strings.Join(strings.Fields(r.out+r.err), " ") // lines are wrapped
	if gone := strings.Count(said, "is probably gone"); gone != 2*machines || !strings.Contains(said, "the machines of the control plane of Cluster "+cluster+" are probably gone") {
		m.Errorf("the answer names %d machines that are gone:\n%s%s", gone, r.out, r.err)
	}
	m.available(cluster, machines)
	m.finds()
}

// TestClusterAPITopology: the same for a Cluster that is made from a ClusterClass.
func TestClusterAPITopology(t *testing.T) {
	m := newManagement(t)
	owners := m.watchOwners()
	m.createClassy(1, 2)
	owners.good("while it is created")
	m.holdsAssertions("classy", true)
	owners.saw("while its references are removed and changed", "lost-reference", "unserved-version")
	m.goes("classy")
	owners.good("while it is deleted")
}

// createClassy creates a Cluster from a ClusterClass, with objects of two ClusterResourceSets, and waits until it is available.
func (m *management) createClassy(servers, workers int) {
	m.Helper()
	m.apply(resourceSets)
	m.apply(m.template("clusterclass-in-memory.yaml", nil))
	m.apply(m.template("cluster-template-in-memory.yaml", map[string]string{
		"CLUSTER_NAME": "classy", "KUBERNETES_VERSION": workloadVersion,
		"CONTROL_PLANE_MACHINE_COUNT": strconv.Itoa(servers), "WORKER_MACHINE_COUNT": strconv.Itoa(workers),
	}))
	m.kubectl("label", "cluster", "classy", "sets=yes")
	m.available("classy", servers+workers)
}

// template is one of upstream's examples.
func (m *management) template(file string, values map[string]string) string {
	m.Helper()
	text, err := os.ReadFile(filepath.Join(m.programs.Templates, file))
	if err != nil {
		m.Fatal(err)
	}
	all := map[string]string{"NAMESPACE": m.namespace}
	for key, value := range values {
		all[key] = value
	}
	substituted, err := providers.Substitute(string(text), func(name string) string { return all[name] })
	if err != nil {
		m.Fatal(err)
	}
	return substituted
}

// available waits until a Cluster is Available, with a number of Machines that have Nodes.
func (m *management) available(cluster string, machines int) {
	m.Helper()
	m.within(provisioning, cluster+" is available", func() error {
		if is := m.jsonpath(`{.status.conditions[?(@.type=="Available")].status}`, "cluster", cluster); is != "True" {
			return fmt.Errorf("Available is %q: %s", is, m.jsonpath(`{.status.conditions[?(@.type=="Available")].message}`, "cluster", cluster))
		}
		nodes := strings.Fields(m.jsonpath("{.items[*].status.nodeRef.name}", "machines", "-l", "cluster.x-k8s.io/cluster-name="+cluster))
		if len(nodes) != machines {
			return fmt.Errorf("%d of %d machines have a node", len(nodes), machines)
		}
		return nil
	})
}

// holdsAssertions runs upstream's assertions, or those that are named.
func (m *management) holdsAssertions(cluster string, topology bool, names ...string) {
	m.Helper()
	m.passes("the objects of the Cluster ("+strings.Join(names, "|")+")", "-cluster.namespace", m.namespace, "-cluster.name", cluster, fmt.Sprintf("-cluster.topology=%v", topology))
}

// passes runs those of upstream's specs that match an expression, of which there must be some.
func (m *management) passes(focus string, args ...string) {
	m.Helper()
	args = append([]string{"-ginkgo.v", "-ginkgo.no-color", "-ginkgo.fail-on-empty", "-ginkgo.focus", focus, "-cluster.kubeconfig", m.cluster.kubeconfig()}, args...)
	cmd := exec.CommandContext(m.Context(), m.programs.Specs, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		m.Fatalf("upstream's specs %q: %v\n%s", focus, err, tail(out.String(), 20_000))
	}
}

// members are all objects of Cluster API, and what they own, by name.
func (m *management) members() []string {
	m.Helper()
	var names []string
	// Its discovery is not cached, other than that of get.
	own := strings.Fields(m.kubectl("api-resources", "--categories", "cluster-api", "-o", "name"))
	for _, kinds := range []string{strings.Join(own, ","), "secrets,configmaps"} {
		for name := range strings.FieldsSeq(m.kubectl("get", kinds, "-o", "name")) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// previewed returns the objects that a preview of the deletion of a Cluster shows as deleted, named as members names them.
func (m *management) previewed(cluster string) []string {
	m.Helper()
	r := m.kindred("delete", "--preview", "cluster/"+cluster, "-o", "json")
	var preview struct {
		Status struct {
			Objects []struct{ APIVersion, Kind, Name, Outcome string }
		}
	}
	if err := json.Unmarshal([]byte(r.out), &preview); err != nil {
		m.Fatalf("%v: %s%s", err, r.out, r.err)
	}
	var names []string
	for _, o := range preview.Status.Objects {
		if o.Outcome != "Deleted" {
			continue
		}
		kind := strings.ToLower(o.Kind)
		if group, _, found := strings.Cut(o.APIVersion, "/"); found {
			kind += "." + group
		}
		names = append(names, kind+"/"+o.Name)
	}
	slices.Sort(names)
	return names
}

// goes deletes a Cluster and waits until nothing is left of it. What goes is what the preview shows.
func (m *management) goes(cluster string) {
	m.Helper()
	want, before := m.previewed(cluster), m.members()
	m.kubectl("delete", "cluster", cluster, "--wait=false")
	m.within(provisioning, cluster+" is gone", func() error {
		left := m.kubectl("get", "cluster-api,secrets,configmaps", "--ignore-not-found", "-o", "name", "-l", "cluster.x-k8s.io/cluster-name="+cluster)
		if left != "" {
			return fmt.Errorf("%s", left)
		}
		after := m.members()
		gone := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return slices.Contains(after, name) })
		if diff := cmp.Diff(want, gone); diff != "" {
			return fmt.Errorf("what went (-preview +deletion):\n%s", diff)
		}
		return nil
	})
}
