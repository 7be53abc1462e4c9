// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kindred-project/kindred/test/servers"
)

// killed kills the management cluster, or the managers of Kindred's providers alone, a number of times, each after a random time.
func (k *kindredManagement) killed(random *rand.Rand, times int, limit time.Duration) {
	k.Helper()
	for range times {
		time.Sleep(time.Duration(random.Int64N(int64(limit))))
		if random.IntN(3) == 0 {
			k.killManagers()
			continue
		}
		k.cluster.kill(k.T)
		k.cluster.again(k.T)
	}
}

// killManagers kills the processes of Kindred's providers. The kubelet's part of Kindred starts them again.
func (k *kindredManagement) killManagers() {
	k.Helper()
	var pods []string
	for _, provider := range []string{"infrastructure", "bootstrap", "control-plane"} {
		pods = append(pods, strings.Fields(k.jsonpath("{.items[*].metadata.uid}", "pods", "--namespace", "kindred-"+provider+"-system"))...)
	}
	for pid := range processes(k.T) {
		groups, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if err != nil {
			continue // it has ended
		}
		if slices.ContainsFunc(pods, func(uid string) bool { return strings.Contains(string(groups), "pod"+uid) }) {
			number, err := strconv.Atoi(pid)
			if err != nil {
				k.Fatal(err)
			}
			_ = syscall.Kill(number, syscall.SIGKILL) // it may have ended
		}
	}
}

// hasMachines fails the test unless the machines on the host are those of the KindredMachines.
func (k *kindredManagement) hasMachines() {
	k.Helper()
	k.within(provisioning, "the host has the machines of the KindredMachines", func() error {
		var have []string
		for _, m := range k.host.list() {
			have = append(have, "kindred:///"+m.Name)
		}
		want := strings.Fields(k.jsonpath("{.items[*].spec.providerID}", "kindredmachines"))
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			return fmt.Errorf("the host has %v, the KindredMachines name %v", have, want)
		}
		return nil
	})
}

// TestClusterAPIKindredKilled: the management cluster, or the managers of its providers alone, are killed at random while they make a cluster, replace
// all its machines, move it away and delete it. Each of them ends as if nothing had happened.
func TestClusterAPIKindredKilled(t *testing.T) {
	random := newRandom(t)
	k := newKindredManagement(t)
	owners := k.recordOwners()
	k.create("work", 1, 2)
	k.killed(random, 5, 4*time.Second)
	k.available("work", 3)
	k.nodesReady("work", 3, provisioning)
	k.hasMachines()
	k.finds()
	owners.good("while it is created")

	names := func() []string { return strings.Fields(k.jsonpath("{.items[*].metadata.name}", "machines")) }
	before := names()
	k.kubectl("patch", "kindredcontrolplane", "work", "--type=merge", "-p", `{"spec":{"kindredConfigSpec":{"flags":{"terminated-pod-gc-threshold":"100"}}}}`)
	k.kubectl("patch", "machinedeployment", "work", "--type=merge", "-p", `{"spec":{"rollout":{"after":"`+time.Now().UTC().Format(time.RFC3339)+`"}}}`)
	k.killed(random, 6, 6*time.Second)
	k.within(replacing, "all machines are others", func() error {
		if now := names(); len(now) != 3 || slices.ContainsFunc(now, func(m string) bool { return slices.Contains(before, m) }) {
			return fmt.Errorf("it was %v and is %v", before, now)
		}
		return nil
	})
	k.available("work", 3)
	k.nodesReady("work", 3, provisioning)
	k.hasMachines()
	k.finds()
	owners.good("while its machines are replaced")

	to := newKindredManagementOn(t, k.host, k.release)
	there := to.recordOwners()
	to.namespace = k.namespace
	move := func() result { return k.kindred("move", "--to", to.cluster.kubeconfig(), "cluster/work", "--yes") }
	paused := k.background("get", "cluster", "work", "--watch", "--output", `jsonpath={.metadata.name} {.spec.paused}{"\n"}`)
	k.eventually("the Cluster is watched", func() error {
		if paused.out.String() == "" {
			return errors.New("not yet")
		}
		return nil
	})
	broken := make(chan result)
	go func() { broken <- move() }()
	for !strings.Contains(paused.out.String(), "true") { // the first thing that it does
		select {
		case r := <-broken:
			t.Fatalf("the move ended before its source was seen paused: %d, %s%s", r.code, r.out, r.err)
		case <-time.After(time.Millisecond):
		}
	}
	// The source stays away until the move has noticed: it starts in a second, which the move may spend in the target.
	k.cluster.kill(t)
	r := <-broken
	k.cluster.again(t)
	if r.code == 0 {
		t.Fatal("the move ended before its source was killed")
	}
	kills := movesDespite(t, move, to, k)
	if t.Logf("the move goes on, and is complete after %d further kills", kills); kills == 0 {
		t.Error("the move was complete before a cluster was killed")
	}
	k.hasNothing("after a move that was interrupted")
	to.available("work", 3)
	to.hasMachines()
	to.finds()
	owners.good("while it moves away")
	there.good("while it arrives")

	to.kubectl("delete", "cluster", "work", "--wait=false")
	to.killed(random, 4, 3*time.Second)
	to.within(provisioning, "the cluster is gone", func() error {
		if left := to.members(); !slices.Equal(left, []string{rootAuthority}) {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
	there.good("while it is deleted")
	if left := k.host.list(); len(left) > 0 {
		t.Errorf("machines that are left: %+v", left)
	}
}

// movesDespite repeats a move until it is complete. During it the clusters are killed, in turn and each time later.
func movesDespite(t *testing.T, move func() result, clusters ...*kindredManagement) (kills int) {
	t.Helper()
	var r result
	for began := time.Now(); time.Since(began) < provisioning; {
		ended := make(chan result, 1)
		go func() { ended <- move() }()
		select {
		case r = <-ended:
			time.Sleep(100 * time.Millisecond)
		case <-time.After(time.Duration(1+kills) * 300 * time.Millisecond):
			victim := clusters[kills%len(clusters)]
			victim.cluster.kill(t)
			r = <-ended
			victim.cluster.again(t)
			kills++
		}
		if r.code == 0 {
			return kills
		}
	}
	t.Fatalf("the move is not complete after %v and %d kills: %d, %s%s", provisioning, kills, r.code, r.out, r.err)
	return kills
}

// TestClusterAPIKindredQuickStart: upstream's end-to-end test of the quick start passes with Kindred's providers, with and without a ClusterClass.
func TestClusterAPIKindredQuickStart(t *testing.T) {
	k := newKindredManagement(t)
	specs, err := servers.BuildClusterAPISpecs(t.Context(), "../servers")
	if err != nil {
		t.Fatal(err)
	}
	k.programs.Specs = specs
	for _, flavor := range []string{"", "topology"} {
		began := time.Now()
		k.passes("the quick start", "-clusterctl.config", k.release.Config, "-infrastructure", "kindred", "-flavor", flavor, "-kubernetes.version", k.release.Version,
			"-workers", "2", "-artifacts", t.TempDir())
		t.Logf("the quick start with the flavor %q takes %v", flavor, time.Since(began).Round(time.Millisecond))
		if left := k.host.list(); len(left) > 0 {
			t.Errorf("machines that are left: %+v", left)
		}
	}
}

// reason is the reason and message of a condition of an object.
func (k *kindredManagement) reason(object, condition string) string {
	k.Helper()
	filter := `{.status.conditions[?(@.type=="` + condition + `")]`
	return k.jsonpath(filter+".reason}: "+filter+".message}", object)
}

// says waits until the condition Ready of one of the objects of a kind says something.
func (k *kindredManagement) says(kind string, want ...string) {
	k.Helper()
	k.within(provisioning, "a "+kind+" says "+strings.Join(want, " ... "), func() error {
		var all []string
		for _, name := range strings.Fields(k.kubectl("get", kind, "-o", "name")) {
			said := k.reason(name, "Ready")
			if !slices.ContainsFunc(want, func(part string) bool { return !strings.Contains(said, part) }) {
				return nil
			}
			all = append(all, said)
		}
		return fmt.Errorf("they say %q", all)
	})
}

// TestClusterAPIKindredRefused: what cannot be made is named in a condition, and its deletion leaves nothing: a machine with too little memory, an
// endpoint that another cluster has, pods with addresses of machines. While Cluster API's webhooks are away, the objects of a Cluster that do not
// need them are created and wait for the Cluster. Clusters of the same name in two namespaces are two clusters.
func TestClusterAPIKindredRefused(t *testing.T) {
	k := newKindredManagement(t)
	k.create("work", 1, 0)
	k.nodesReady("work", 1, provisioning)
	k.isAlone("work")

	address := k.jsonpath("{.spec.controlPlaneEndpoint.host}", "kindredcluster", "work")
	k.input(fmt.Sprintf(`{apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1, kind: KindredCluster, metadata: {name: twin}, spec: {controlPlaneEndpoint: {host: %s, port: 6443}}}`, address), "create", "-f", "-")
	k.create("twin", 1, 0)
	k.says("kindredcluster", "EndpointFailed", "the address "+address+" is taken")
	k.kubectl("delete", "cluster", "twin", "--timeout=60s")

	k.apply(withPods(t, k.generated("", "wide", 1, 0), "10.192.0.0/11"))
	k.says("kindredcluster", "RangeTaken", "10.192.0.0/11 of spec.clusterNetwork.pods of the Cluster overlaps ")
	k.kubectl("delete", "cluster", "wide", "--timeout=60s")

	k.input(`{apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1, kind: KindredMachineTemplate, metadata: {name: small-control-plane}, spec: {template: {spec: {memory: 40Mi}}}}`, "create", "-f", "-")
	k.create("small", 1, 0)
	k.says("kindredmachine", "KindredEnds", "signal: killed")
	k.kubectl("delete", "cluster", "small", "--timeout=60s")

	deployment := []string{"--namespace", "capi-system", "deployment/capi-controller-manager"}
	k.kubectl(append([]string{"scale", "--replicas=0"}, deployment...)...)
	k.kubectl("wait", "--namespace", "capi-system", "--for=delete", "pod", "--all", "--timeout=60s")
	manifest := k.generated("", "late", 1, 0)
	k.isHalfMade("late", manifest)
	k.staysAsItIs("work")
	k.kubectl(append([]string{"scale", "--replicas=1"}, deployment...)...)
	k.kubectl(append([]string{"wait", "--for=condition=Available", "--timeout=60s"}, deployment...)...)
	k.within(patience, "the Cluster is made when the webhooks are back", func() error {
		if r := runCommand(k.command("apply", "-f", "-"), manifest); r.code != 0 {
			return fmt.Errorf("%s%s", r.out, r.err)
		}
		return nil
	})
	k.nodesReady("late", 1, provisioning)
	k.goes("late")
	k.goes("work")
	if left := k.host.list(); len(left) > 0 {
		t.Errorf("machines that are left: %+v", left)
	}
}

// withPods gives the Cluster of a manifest a range of pods.
func withPods(t *testing.T, manifest, cidr string) string {
	t.Helper()
	const spec = "spec:\n  controlPlaneRef:"
	if strings.Count(manifest, spec) != 1 {
		t.Fatalf("a manifest without one Cluster:\n%s", manifest)
	}
	return strings.Replace(manifest, spec, "spec:\n  clusterNetwork: {pods: {cidrBlocks: ["+cidr+"]}}\n  controlPlaneRef:", 1)
}

// isHalfMade applies the manifest of a Cluster while Cluster API's webhooks are away, so that the kinds of the core are refused. The other objects are
// created, those of them with a status say that they wait for the Cluster, and the host has no machine of them.
func (k *kindredManagement) isHalfMade(name, manifest string) {
	k.Helper()
	before, machines := k.members(), k.host.list()
	r := runCommand(k.command("apply", "-f", "-"), manifest)
	if r.code == 0 || !strings.Contains(r.err, "failed calling webhook") {
		k.Errorf("a Cluster without webhooks: %d, %s%s", r.code, r.out, r.err)
	}
	want := []string{
		"kindredcluster.infrastructure.cluster.x-k8s.io/" + name, "kindredconfigtemplate.bootstrap.cluster.x-k8s.io/" + name,
		"kindredcontrolplane.controlplane.cluster.x-k8s.io/" + name, "kindredmachinetemplate.infrastructure.cluster.x-k8s.io/" + name,
		"kindredmachinetemplate.infrastructure.cluster.x-k8s.io/" + name + "-control-plane",
	}
	waits := "WaitingForCluster: no Cluster owns this object yet: create the Cluster, or delete this object"
	for object, condition := range map[string]string{"kindredcluster/" + name: "Ready", "kindredcontrolplane/" + name: "Available"} {
		k.within(patience, object+" says that it waits for its Cluster", func() error {
			if said := k.reason(object, condition); said != waits {
				return fmt.Errorf("it says %q", said)
			}
			return nil
		})
	}
	made := slices.DeleteFunc(k.members(), func(object string) bool { return slices.Contains(before, object) })
	if diff := cmp.Diff(want, made); diff != "" {
		k.Errorf("what was made without webhooks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(machines, k.host.list()); diff != "" {
		k.Errorf("machines of the host (-before +after):\n%s", diff)
	}
}

// staysAsItIs tries to delete and to move a Cluster while Cluster API's webhooks are away. Both are refused, and nothing of it changes.
func (k *kindredManagement) staysAsItIs(name string) {
	k.Helper()
	before := k.members()
	for _, r := range []result{
		k.try("delete", "cluster", name, "--wait=false"),
		k.kindred("move", "cluster/"+name, "--to-directory", k.TempDir(), "--yes"),
	} {
		if r.code == 0 || !strings.Contains(r.err, "failed calling webhook") {
			k.Errorf("a change of a Cluster without webhooks: %d, %s%s", r.code, r.out, r.err)
		}
	}
	if changed := k.jsonpath("{.metadata.deletionTimestamp}{.spec.paused}", "cluster", name); changed != "" {
		k.Errorf("the Cluster has changed: %s", changed)
	}
	if diff := cmp.Diff(before, k.members()); diff != "" {
		k.Errorf("objects without webhooks (-before +after):\n%s", diff)
	}
}

// isAlone makes a Cluster of the same name in another namespace: it has another machine, endpoint and node, and goes alone.
func (k *kindredManagement) isAlone(name string) {
	k.Helper()
	first := k.host.list()
	other := k.elsewhere()
	other.create(name, 1, 0)
	other.nodesReady(name, 1, provisioning)
	for _, cluster := range []*kindredManagement{k, other} {
		cluster.hasNodes(name, 1)
	}
	both := k.host.list()
	if len(first) != 1 || len(both) != 2 || both[0].Name == both[1].Name || both[0].Address == both[1].Address {
		k.Fatalf("machines of two clusters: %+v, first %+v", both, first)
	}
	for object, field := range map[string]string{"machines": "{.items[*].spec.providerID}", "cluster/" + name: "{.spec.controlPlaneEndpoint.host}"} {
		if mine, theirs := k.jsonpath(field, object), other.jsonpath(field, object); mine == "" || mine == theirs {
			k.Errorf("%s of the %s of both clusters: %q and %q", field, object, mine, theirs)
		}
	}
	k.leadsElsewhere(name, other)
	other.goes(name)
	if diff := cmp.Diff(first, k.host.list()); diff != "" {
		k.Errorf("machines of the host after the other cluster was deleted (-want +got):\n%s", diff)
	}
	k.nodesReady(name, 1, provisioning)
	k.hasNodes(name, 1)
	k.kubectl("delete", "namespace", other.namespace, "--wait=false")
}

// hasNodes waits until a Cluster has a number of Machines, all with Nodes. It is Available only half a minute later.
func (k *kindredManagement) hasNodes(name string, machines int) {
	k.Helper()
	k.within(provisioning, "the machines of "+name+" have nodes", func() error {
		all := k.jsonpath("{.items[*].metadata.name}", "machines", "-l", "cluster.x-k8s.io/cluster-name="+name)
		nodes := k.jsonpath("{.items[*].status.nodeRef.name}", "machines", "-l", "cluster.x-k8s.io/cluster-name="+name)
		if all != nodes || len(strings.Fields(nodes)) != machines {
			return fmt.Errorf("the machines %q have the nodes %q", all, nodes)
		}
		return nil
	})
}

// leadsElsewhere fails the test if the kubeconfigs of two clusters lead to the same cluster.
func (k *kindredManagement) leadsElsewhere(name string, other *kindredManagement) {
	k.Helper()
	var ids []string
	for _, cluster := range []*kindredManagement{k, other} {
		id, err := cluster.inCluster(name, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
		if err != nil {
			k.Fatal(err)
		}
		ids = append(ids, id)
	}
	if ids[0] == ids[1] {
		k.Errorf("both kubeconfigs lead to the cluster with the namespace %s", ids[0])
	}
}

// TestClusterAPIKindredMemoryShort: the host runs out of memory while nodes are added to a cluster. The machines in which the kernel kills Kindred say so,
// and the cluster is complete once there is memory.
func TestClusterAPIKindredMemoryShort(t *testing.T) {
	k := newKindredManagement(t)
	owners := k.recordOwners()
	k.create("work", 1, 0)
	k.nodesReady("work", 1, provisioning)
	before := k.host.list()
	all := k.host.memory()
	limit, err := os.ReadFile(all.limitFile())
	if err != nil {
		t.Fatal(err)
	}
	// Some memory is left, and less than four nodes need.
	all.limit(t, strconv.Itoa(all.used(t)+50<<20))
	k.kubectl("scale", "machinedeployment", "work", "--replicas=4")
	k.says("kindredmachine", "KindredEnds", "signal: killed")
	all.limit(t, strings.TrimSpace(string(limit)))
	k.available("work", 5)
	k.nodesReady("work", 5, provisioning)
	if now := k.host.get(before[0].Name); now.PID != before[0].PID {
		t.Errorf("the server's machine was process %d, and is %d: it was replaced", before[0].PID, now.PID)
	}
	k.finds()
	k.goes("work")
	owners.good("although the host was short of memory")
	if left := k.host.list(); len(left) > 0 {
		t.Errorf("machines that are left: %+v", left)
	}
}
