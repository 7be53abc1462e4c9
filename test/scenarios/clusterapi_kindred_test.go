// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kindred-project/kindred/test/servers"
)

// kindredManagement is a management cluster with Cluster API's core and Kindred's own providers.
type kindredManagement struct {
	*management
	release servers.KindredRelease
	host    *hostMachines
	// dir has the kubeconfigs of workload clusters.
	dir string
}

// ownVersion is the version of Kubernetes that Kindred reports.
func ownVersion(t *testing.T) string {
	t.Helper()
	version, err := servers.KubernetesVersion(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// newKindredManagement returns a management cluster whose machines are in a directory of their own.
func newKindredManagement(t *testing.T) *kindredManagement {
	t.Helper()
	host := newHostMachines(t)
	release, err := servers.BuildKindredRelease(t.Context(), "../..", binary, ownVersion(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return newKindredManagementOn(t, host, release)
}

// newKindredManagementOn is newKindredManagement for machines in a directory that other management clusters may use as well.
func newKindredManagementOn(t *testing.T, host *hostMachines, release servers.KindredRelease) *kindredManagement {
	t.Helper()
	needsClusterAPI(t)
	t.Setenv("KINDRED_MACHINES_DIR", host.dir)
	cluster := ownClusterWithNode(t, "--cluster-api", release.Dir)
	m := &management{newSession(t, cluster), servers.ClusterAPI{Clusterctl: release.Clusterctl}}
	m.within(provisioning, "Cluster API is ready", func() error {
		if printed := cluster.up.out.String(); !strings.Contains(printed, "Cluster API is ready after") {
			return fmt.Errorf("kindred up printed:\n%s", printed)
		}
		return nil
	})
	return &kindredManagement{m, release, host, t.TempDir()}
}

// elsewhere returns this management cluster with another namespace, which it creates.
func (k *kindredManagement) elsewhere() *kindredManagement {
	k.Helper()
	other := *k
	other.management = &management{inNamespace(k.T, k.cluster, k.namespace+"-other"), k.programs}
	other.dir = k.TempDir()
	k.kubectl("create", "namespace", other.namespace)
	return &other
}

// create creates a Cluster with a number of servers and workers from the release's template.
func (k *kindredManagement) create(name string, controlPlane, workers int) {
	k.Helper()
	k.createFrom("", name, controlPlane, workers)
}

// createFrom creates a Cluster from a flavor of the release's template; "" is the default one.
func (k *kindredManagement) createFrom(flavor, name string, controlPlane, workers int) {
	k.Helper()
	k.apply(k.generated(flavor, name, controlPlane, workers))
}

// generated is what createFrom applies.
func (k *kindredManagement) generated(flavor, name string, controlPlane, workers int) string {
	k.Helper()
	return k.clusterctl("generate", "cluster", name, "--config", k.release.Config, "--kubeconfig", k.cluster.kubeconfig(), "--infrastructure", "kindred",
		"--flavor", flavor, "--target-namespace", k.namespace, "--kubernetes-version", k.release.Version,
		"--control-plane-machine-count", strconv.Itoa(controlPlane), "--worker-machine-count", strconv.Itoa(workers))
}

// inCluster runs kubectl in a workload cluster.
func (k *kindredManagement) inCluster(name string, args ...string) (string, error) {
	k.Helper()
	encoded := k.jsonpath("{.data.value}", "secret", name+"-kubeconfig", "--ignore-not-found")
	config, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(config) == 0 {
		return "", fmt.Errorf("the cluster has no kubeconfig yet: %w", err)
	}
	file := filepath.Join(k.dir, name)
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return "", err
	}
	r := runCommand(exec.Command(binary, append([]string{"kubectl", "--kubeconfig", file}, args...)...), "")
	if r.code != 0 {
		return "", fmt.Errorf("%s%s", r.out, r.err)
	}
	return r.out, nil
}

// nodesReady waits until a workload cluster has a number of nodes that are Ready.
func (k *kindredManagement) nodesReady(name string, nodes int, limit time.Duration) {
	k.Helper()
	k.within(limit, "the nodes are Ready", func() error {
		out, err := k.inCluster(name, "get", "nodes", "--no-headers")
		if err != nil {
			return err
		}
		if strings.Count(out, " Ready ") != nodes || strings.Count(out, "\n") != nodes {
			return fmt.Errorf("want %d nodes:\n%s", nodes, out)
		}
		return nil
	})
}

// loadImages loads the images of the tests in all machines.
func (k *kindredManagement) loadImages() {
	k.Helper()
	for _, m := range k.host.list() {
		k.host.loadImages(m.Name)
	}
}

// TestClusterAPIKindred: Kindred's own providers make a workload cluster of namespaces of this host, with real pods, scale it, replace its
// machines, and remove it.
func TestClusterAPIKindred(t *testing.T) {
	before := hostTraces(t)
	k := newKindredManagement(t)
	owners := k.watchOwners()
	work := k.generated("", "work", 1, 2)
	began := time.Now()
	k.apply(work)
	k.nodesReady("work", 3, provisioning)
	t.Logf("a cluster of 1 + 2 machines has its nodes after %v", time.Since(began).Round(time.Millisecond))
	k.available("work", 3)
	t.Logf("the Cluster is Available after %v", time.Since(began).Round(time.Millisecond))
	owners.good("while it is created")

	k.loadImages()
	k.runsPods("work")
	k.kubectl("scale", "machinedeployment", "work", "--replicas=3")
	k.available("work", 4)
	k.kubectl("scale", "kindredcontrolplane", "work", "--replicas=3")
	k.available("work", 6)
	k.nodesReady("work", 6, provisioning)
	owners.good("while machines are added")

	k.replaced("work")
	owners.good("while machines are replaced")
	k.remediated("work")
	owners.good("while dead machines are replaced")

	k.kubectl("scale", "kindredcontrolplane", "work", "--replicas=1")
	k.available("work", 4)
	k.nodesReady("work", 4, provisioning)
	k.goes("work")
	owners.good("while it is deleted")
	if left := k.host.list(); len(left) > 0 {
		t.Errorf("machines that are left: %+v", left)
	}
	k.resetRemoves(before)
}

// runsPods runs a Deployment in a workload cluster.
func (k *kindredManagement) runsPods(name string) {
	k.Helper()
	for _, args := range [][]string{
		{"create", "deployment", "web", "--image=" + image, "--replicas=3", "--", "httpd", "-f"},
		{"rollout", "status", "deployment/web", "--timeout=60s"},
	} {
		if _, err := k.inCluster(name, args...); err != nil {
			k.Fatal(err)
		}
	}
}

// replaced replaces the machines of the control plane, because their configuration changes.
func (k *kindredManagement) replaced(name string) {
	k.Helper()
	before := k.serverNames(name)
	k.kubectl("patch", "kindredcontrolplane", name, "--type=merge", "-p", `{"spec":{"kindredConfigSpec":{"flags":{"terminated-pod-gc-threshold":"100"}}}}`)
	k.within(replacing, "all machines of the control plane are others", func() error {
		now := k.serverNames(name)
		if len(now) != 3 || slices.ContainsFunc(now, func(m string) bool { return slices.Contains(before, m) }) {
			return fmt.Errorf("they were %v and are %v", before, now)
		}
		return nil
	})
	k.available(name, 6)
	k.nodesReady(name, 6, provisioning)
}

func (k *kindredManagement) serverNames(name string) []string {
	k.Helper()
	return strings.Fields(k.jsonpath("{.items[*].metadata.name}", "machines", "-l", "cluster.x-k8s.io/control-plane,cluster.x-k8s.io/cluster-name="+name))
}

// healthCheck replaces machines whose node is not Ready.
const healthCheck = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: work}
spec:
  clusterName: work
  selector: {matchLabels: {cluster.x-k8s.io/cluster-name: work}}
  checks: {unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 10}, {type: Ready, status: "False", timeoutSeconds: 10}]}
`

// remediated kills the first process of a worker, and then that of a server, whose machines a MachineHealthCheck then replaces.
func (k *kindredManagement) remediated(name string) {
	k.Helper()
	k.apply(healthCheck)
	for _, kind := range []string{"cluster.x-k8s.io/deployment-name=" + name, "cluster.x-k8s.io/control-plane"} {
		victim := strings.Fields(k.jsonpath("{.items[*].metadata.name}", "machines", "-l", kind))[0]
		id := k.jsonpath("{.spec.providerID}", "machine", victim)
		if err := syscall.Kill(k.host.get(strings.TrimPrefix(id, "kindred:///")).PID, syscall.SIGKILL); err != nil {
			k.Fatal(err)
		}
		k.within(provisioning, "the dead machine is replaced", func() error {
			if left := k.kubectl("get", "machine", victim, "--ignore-not-found", "-o", "name"); left != "" {
				return fmt.Errorf("%s is there", left)
			}
			return nil
		})
		k.available(name, 6)
	}
	k.kubectl("delete", "machinehealthcheck", "work")
}

// TestClusterAPIKindredMove: clusterctl moves a cluster of machines of this host to another management cluster on it, and "kindred move" moves it back.
// That scales it and deletes it. Its machines run on meanwhile, and stay when the other management cluster is reset.
func TestClusterAPIKindredMove(t *testing.T) {
	home := newKindredManagement(t)
	away := newKindredManagementOn(t, home.host, home.release)
	homeOwners, awayOwners := home.recordOwners(), away.recordOwners()
	home.create("work", 1, 1)
	home.available("work", 2)
	homeOwners.good("while it is created")
	away.namespace = home.namespace
	home.handsOver(away, "clusterctl move", func() {
		home.clusterctl("move", "--kubeconfig", home.cluster.kubeconfig(), "--to-kubeconfig", away.cluster.kubeconfig(), "--namespace", home.namespace)
	})
	away.handsOver(home, "kindred move", func() {
		if r := away.kindred("move", "--to", home.cluster.kubeconfig(), "cluster/work", "--yes"); r.code != 0 {
			t.Fatalf("move: %d, %s%s", r.code, r.out, r.err)
		}
	})
	homeOwners.good("while it moves away and returns")
	awayOwners.good("while it arrives and moves back")
	away.cluster.terminate(t)
	if r := away.cluster.run("reset"); r.code != 0 || strings.Contains(r.out, "removed machine") {
		t.Errorf("reset of the other management cluster: %d\n%s%s", r.code, r.out, r.err)
	}
	home.kubectl("scale", "machinedeployment", "work", "--replicas=2")
	home.available("work", 3)
	home.goes("work")
	homeOwners.good("while it is scaled and deleted")
	if left := home.host.list(); len(left) > 0 {
		t.Errorf("machines that are left: %+v", left)
	}
}

// handsOver moves the Cluster work to another management cluster. The machines run on, and belong to that one.
func (k *kindredManagement) handsOver(to *kindredManagement, how string, move func()) {
	k.Helper()
	before, machines := k.members(), k.host.list()
	move()
	k.hasNothing("after " + how)
	if diff := cmp.Diff(before, to.members()); diff != "" {
		k.Errorf("what has moved with %s (-source +target):\n%s", how, diff)
	}
	to.available("work", 2)
	to.finds()
	to.tookOver(machines, how)
}

// tookOver fails the test unless the host has the machines that it had, they run on, and belong to this management cluster instead of another one.
func (k *kindredManagement) tookOver(machines []hostMachine, how string) {
	k.Helper()
	now := k.host.list()
	if len(now) != len(machines) {
		k.Fatalf("after %s, the host has the machines %+v, and had %+v", how, now, machines)
	}
	for i, m := range now {
		if was := machines[i]; m.Name != was.Name || m.PID != was.PID || m.Phase != "Running" || m.Owner == was.Owner {
			k.Errorf("after %s, machine %+v was %+v", how, m, was)
		}
	}
}

// TestClusterAPIKindredTopology: the same for a Cluster that is made from the release's ClusterClass.
func TestClusterAPIKindredTopology(t *testing.T) {
	k := newKindredManagement(t)
	owners := k.watchOwners()
	k.createFrom("topology", "work", 1, 1)
	k.available("work", 2)
	owners.good("while it is created")
	k.kubectl("patch", "cluster", "work", "--type=json", "-p", `[{"op":"replace","path":"/spec/topology/workers/machineDeployments/0/replicas","value":2}]`)
	k.available("work", 3)
	k.nodesReady("work", 3, provisioning)
	k.kubectl("patch", "kindredmachinetemplate", "kindred-worker", "--type=merge", "--dry-run=server", "-p",
		`{"metadata":{"annotations":{"topology.cluster.x-k8s.io/dry-run":""}},"spec":{"template":{"spec":{"memory":"1Gi"}}}}`) // as the topology controller does
	r := k.try("patch", "kindredmachinetemplate", "kindred-worker", "--type=merge", "-p", `{"spec":{"template":{"spec":{"memory":"1Gi"}}}}`)
	if r.code == 0 || !strings.Contains(r.err, "the spec of a template cannot be changed") {
		t.Errorf("a template that is changed: %d, %s%s", r.code, r.out, r.err)
	}
	k.upgraded("work", 3)
	owners.good("while it is upgraded")
	before := k.members()
	k.explained("work")
	owners.good("while it is deleted")
	k.comesBackWithoutMachines("work", 3, before)
	owners.good("while its objects come back, and go again")
	if left := k.host.list(); len(left) > 0 {
		t.Errorf("machines that are left: %+v", left)
	}
}

// nextKubernetes is a version of Kubernetes that another build of Kindred reports.
const nextKubernetes = "v1.38.0"

// upgraded upgrades a Cluster to the version of another build, which replaces its machines: first the servers, then the workers.
func (k *kindredManagement) upgraded(name string, machines int) {
	k.Helper()
	upgrade := func() {
		k.kubectl("patch", "cluster", name, "--type=merge", "-p", `{"spec":{"topology":{"version":"`+nextKubernetes+`"}}}`)
	}
	upgrade()
	missing := "the host has no Kindred of version \"" + nextKubernetes + "\""
	k.within(provisioning, "a machine says that the version is missing", func() error {
		if said := k.jsonpath("{.items[*].status.conditions[*].message}", "kindredmachines"); !strings.Contains(said, missing) {
			return fmt.Errorf("the conditions say %q", said)
		}
		return nil
	})
	if out, err := exec.Command(buildWith(k.T, "KUBERNETES_VERSION="+nextKubernetes), "machine", "install", nextKubernetes, "--machines-dir", k.host.dir).CombinedOutput(); err != nil {
		k.Fatalf("machine install: %v: %s", err, out)
	}
	want := strings.TrimSpace(strings.Repeat(nextKubernetes+" ", machines))
	k.within(replacing, "all nodes have the other version", func() error {
		if versions := k.jsonpath("{.items[*].spec.version}", "machines"); versions != want {
			return fmt.Errorf("the machines have the versions %s", versions)
		}
		versions, err := k.inCluster(name, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
		if err != nil || versions != want {
			return fmt.Errorf("the nodes have the versions %s, %v", versions, err)
		}
		return nil
	})
	k.available(name, machines)
	k.within(provisioning, "the MachineSet of the other version is alone", func() error {
		if sets := strings.Fields(k.jsonpath("{.items[*].metadata.name}", "machinesets")); len(sets) != 1 {
			return fmt.Errorf("there are %v", sets)
		}
		return nil
	})
}

// comesBackWithoutMachines undeletes a Cluster, whose objects return, and deletes it again. The answer says before that its machines are probably gone; none
// is made in the place of another one, above all no first server that begins an empty cluster with the keys of the former one. That takes the deletion of the
// Machines.
func (k *kindredManagement) comesBackWithoutMachines(name string, machines int, members []string) {
	k.Helper()
	began := time.Now()
	for _, args := range [][]string{{"--dry-run"}, nil} {
		r := k.kindred(slices.Concat([]string{"undelete", "cluster/" + name}, args)...)
		said := strings.Join(strings.Fields(r.out+r.err), " ") // lines are wrapped
		if r.code != 0 || strings.Count(said, "is probably gone") != 2*machines || !strings.Contains(said, "the machines of the control plane of Cluster "+name+" are probably gone") {
			k.Errorf("undelete %v: %d\n%s%s", args, r.code, r.out, r.err)
		}
	}
	want := strings.TrimSpace(strings.Repeat("MachineGone ", machines))
	k.within(provisioning, "the KindredMachines say that their machines are gone", func() error {
		if reasons := k.jsonpath(`{.items[*].status.conditions[?(@.type=="Ready")].reason}`, "kindredmachines"); reasons != want {
			return fmt.Errorf("their reasons are %q", reasons)
		}
		return nil
	})
	time.Sleep(5 * time.Second) // several reconciliations of each controller
	if diff := cmp.Diff(members, k.members()); diff != "" {
		k.Errorf("what has come back (-before +after):\n%s", diff)
	}
	if made := k.host.list(); len(made) > 0 {
		k.Errorf("machines that were made: %+v", made)
	}
	k.kubectl("delete", "machines", "--all")
	k.nodesReady(name, machines, provisioning)
	k.goes(name)
	if left := k.host.list(); len(left) > 0 {
		k.Errorf("machines that are left: %+v", left)
	}
	k.Logf("a Cluster came back, got other machines and went in %v", time.Since(began).Round(time.Second))
}

// chains are the kinds of the owners of each kind, the nearest first. A Machine and its parts are those of a server or of a worker.
var chains = map[string][]string{
	"machine":             {"KindredControlPlane Cluster", "MachineSet MachineDeployment Cluster"},
	"kindredmachine":      {"Machine KindredControlPlane Cluster", "Machine MachineSet MachineDeployment Cluster"},
	"kindredconfig":       {"Machine KindredControlPlane Cluster", "Machine MachineSet MachineDeployment Cluster"},
	"machineset":          {"MachineDeployment Cluster"},
	"kindredcontrolplane": {"Cluster"},
	"kindredcluster":      {"Cluster"},
}

// explained deletes a Cluster, and lets "kindred why" explain each of its objects before that and afterwards: first by the owner that keeps it, then by
// each owner up to the Cluster.
func (k *kindredManagement) explained(name string) {
	k.Helper()
	owners := map[string][]string{}
	for kind, want := range chains {
		var seen []string
		for _, n := range strings.Fields(k.jsonpath("{.items[*].metadata.name}", kind)) {
			part := kind + "/" + n
			owners[part] = k.ownersOf(part)
			seen = append(seen, kindsOf(owners[part]))
		}
		slices.Sort(seen)
		if got := slices.Compact(seen); !slices.Equal(got, want) {
			k.Errorf("the owners of the objects of kind %s are %q, want %q", kind, got, want)
		}
	}
	for part, all := range owners {
		k.whySays(part, " exists: ", " "+all[0]+" exists; it is garbage collected when none of its owners exists.")
	}
	k.goes(name)
	for part, all := range owners {
		for _, owner := range all {
			kind, n, _ := strings.Cut(owner, " ")
			k.whySays(part, kind+" "+k.namespace+"/"+n+" was deleted ", " its owner "+owner+" was ")
		}
	}
}

// whySays fails the test unless "kindred why" says all of this about an object.
func (k *kindredManagement) whySays(object string, want ...string) {
	k.Helper()
	r := k.kindred("why", object)
	said := strings.Join(strings.Fields(r.out), " ") + " " // lines are wrapped
	for _, part := range want {
		if r.code != 0 || !strings.Contains(said, part) {
			k.Errorf("why %s: %d, want %q in\n%s%s", object, r.code, part, r.out, r.err)
		}
	}
}

// ownersOf returns the owner of an object, as "Kind name", its owner, and so on.
func (k *kindredManagement) ownersOf(object string) (all []string) {
	k.Helper()
	for {
		owner := strings.TrimSpace(k.jsonpath("{range .metadata.ownerReferences[*]}{.kind} {.name}{end}", object))
		if owner == "" {
			return all
		}
		all = append(all, owner)
		kind, name, _ := strings.Cut(owner, " ")
		object = kind + "/" + name
	}
}

// kindsOf returns the kinds of owners.
func kindsOf(owners []string) string {
	var kinds []string
	for _, owner := range owners {
		kind, _, _ := strings.Cut(owner, " ")
		kinds = append(kinds, kind)
	}
	return strings.Join(kinds, " ")
}
