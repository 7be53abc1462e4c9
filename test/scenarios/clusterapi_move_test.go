// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
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
)

// classyRoots are what moves together: createClassy creates it.
var classyRoots = []string{"cluster/classy", "clusterclass/in-memory", "clusterresourceset/one", "clusterresourceset/two"}

// has fails the test unless a management cluster has exactly the objects that another one had, and the Cluster is healthy there.
func (m *management) has(members []string, where string) {
	m.Helper()
	if diff := cmp.Diff(members, m.members()); diff != "" {
		m.Errorf("what has moved %s (-source +target):\n%s", where, diff)
	}
	m.available("classy", 2)
	m.holdsAssertions("classy", true, "have the owners of the table")
	m.finds()
}

// hasNothing fails the test if anything of Cluster API is left.
func (m *management) hasNothing(where string) {
	m.Helper()
	if left := m.members(); !slices.Equal(left, []string{rootAuthority}) {
		m.Errorf("%s, the source still has %v", where, left)
	}
}

// clusterctl runs upstream's command for management clusters, and returns what it prints.
func (m *management) clusterctl(args ...string) string {
	m.Helper()
	cmd := exec.CommandContext(m.Context(), m.programs.Clusterctl, args...)
	cmd.Env = append(os.Environ(), "HOME="+m.TempDir(), "XDG_CONFIG_HOME="+m.TempDir(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		m.Fatalf("clusterctl %v: %v\n%s", args, err, tail(out.String()+errOut.String(), 10_000))
	}
	return out.String()
}

// TestClusterAPIMove: a Cluster with its ClusterClass and ClusterResourceSets moves to another management cluster, which holds upstream's
// assertions of owners then, and the source has nothing left. clusterctl moves it back, and there again through a directory.
func TestClusterAPIMove(t *testing.T) {
	from, to := newManagement(t), newManagement(t)
	here, there := from.recordOwners(), to.recordOwners()
	from.createClassy(1, 1)
	here.good("while it is created")
	roots := classyRoots
	move := func(more ...string) result {
		return from.kindred(append([]string{"move", "--to", to.cluster.kubeconfig()}, more...)...)
	}
	for _, test := range []struct {
		roots []string
		want  string
	}{
		{roots[:1], "is made from clusterclass.cluster.x-k8s.io/in-memory"},
		{roots[1:2], "is also the class of cluster.cluster.x-k8s.io/classy"},
		{roots[:2], "has objects of clusterresourceset.addons.cluster.x-k8s.io/one, which does not move"},
		{roots[:3], "is also owned by clusterresourceset.addons.cluster.x-k8s.io/two, which does not move"},
		{slices.Concat(roots, []string{"--keep-source"}), "both clusters would manage the same machines"},
	} {
		r := move(slices.Concat(test.roots, []string{"--yes"})...)
		if said := strings.Join(strings.Fields(r.out+r.err), " "); r.code != 1 || !strings.Contains(said, test.want) { // lines are wrapped
			t.Errorf("move %v: %d, %s%s; want %q", test.roots, r.code, r.out, r.err, test.want)
		}
	}
	before := from.members()
	if r := move(slices.Concat(roots, []string{"--yes"})...); r.code != 0 {
		t.Fatalf("move: %d, %s%s", r.code, r.out, r.err)
	}
	to.namespace = from.namespace
	from.hasNothing("after kindred move")
	to.has(before, "with kindred move")
	here.good("while kindred move removes it")
	there.good("while kindred move creates it")
	from.knowsWhatMoved("classy")

	before = to.members()
	to.clusterctl("move", "--kubeconfig", to.cluster.kubeconfig(), "--to-kubeconfig", from.cluster.kubeconfig(), "--namespace", from.namespace)
	to.hasNothing("after clusterctl move")
	from.has(before, "with clusterctl move")
	there.good("while clusterctl move removes it")
	here.good("while clusterctl move creates it")

	before = from.members()
	directory := filepath.Join(t.TempDir(), "moved")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	from.clusterctl("move", "--kubeconfig", from.cluster.kubeconfig(), "--to-directory", directory, "--namespace", from.namespace)
	to.clusterctl("move", "--to-kubeconfig", to.cluster.kubeconfig(), "--from-directory", directory)
	to.has(before, "with clusterctl move through a directory")
	there.good("while clusterctl move creates it from a directory")
}

// knowsWhatMoved: the undeletion of a Cluster that was moved brings back none of its machines, which run on, and warns of two that manage them.
func (m *management) knowsWhatMoved(cluster string) {
	m.Helper()
	r := m.kindred("undelete", "--dry-run", "cluster/"+cluster)
	said := strings.Join(strings.Fields(r.out+r.err), " ") // lines are wrapped
	if !strings.Contains(said, "would be restored: 1,") || strings.Contains(said, "is probably gone") || !strings.Contains(said, "another cluster manages its machines") {
		m.Errorf("what undeletion says of a Cluster that was moved:\n%s%s", r.out, r.err)
	}
}

// TestClusterAPIMoveKilled: kindred move is killed again and again after some of its writes, and goes on, with the same roots in another order.
// The Cluster is never active in both management clusters, and no object is ever missing from both.
func TestClusterAPIMoveKilled(t *testing.T) {
	from, to := newManagement(t), newManagement(t)
	here, there := from.recordOwners(), to.recordOwners()
	from.createClassy(1, 1)
	here.good("while it is created")
	before := from.members()
	to.namespace = from.namespace
	wire := &tripwire{}
	source, target := wire.before(t, from.cluster), wire.before(t, to.cluster)
	rng := newRandom(t)
	flags := []string{"-n", from.namespace, "--kubeconfig", source, "--to", target, "--yes"}
	runs := 0
	for done := false; !done; {
		if runs++; runs > 100 {
			t.Fatal("it does not get through in 100 runs")
		}
		wire.let = rng.IntN(8)
		roots := slices.Clone(classyRoots)
		rng.Shuffle(len(roots), func(i, j int) { roots[i], roots[j] = roots[j], roots[i] })
		p := wire.start(t, from.cluster.command(slices.Concat([]string{"move"}, roots, flags)...))
		<-p.done
		code := p.cmd.ProcessState.ExitCode()
		// The process may have been killed after the very last write.
		done = code == 0 || strings.Contains(p.out.String(), "it may have been moved already")
		if !done && code > 0 {
			t.Fatalf("run %d with %v, which was to be killed, ended with %d:\n%s", runs, roots, code, p.out)
		}
		from.isHereOrIn(to, before, runs)
	}
	t.Logf("it took %d runs", runs)
	from.hasNothing("after the move")
	to.has(before, "with kindred move")
	here.good("while it is removed")
	there.good("while it is copied")
}

// newRandom returns random numbers whose seed the log of the test has.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("KINDRED_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("KINDRED_SEED=%d repeats this run", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// isHereOrIn checks what holds at every moment of a move.
func (m *management) isHereOrIn(to *management, all []string, run int) {
	m.Helper()
	here, there := m.members(), to.members()
	for _, object := range all {
		if !slices.Contains(here, object) && !slices.Contains(there, object) {
			m.Fatalf("after run %d, %s is nowhere", run, object)
		}
	}
	if m.isActive() && to.isActive() {
		m.Fatalf("after run %d, both management clusters work on the Cluster", run)
	}
}

// isActive reports whether the Cluster is there and not paused.
func (m *management) isActive() bool {
	m.Helper()
	return m.kubectl("get", "cluster", "classy", "--ignore-not-found", "-o", "name") != "" && m.jsonpath("{.spec.paused}", "cluster", "classy") != "true"
}

// TestClusterAPIMoveThroughDirectory: a Cluster that was written to a directory is restored from it where its management cluster is lost.
func TestClusterAPIMoveThroughDirectory(t *testing.T) {
	from, to := newManagement(t), newManagement(t)
	from.createClassy(1, 1)
	before := from.members()
	directory := filepath.Join(t.TempDir(), "moved")
	if r := from.kindred(slices.Concat([]string{"move"}, classyRoots, []string{"--to-directory", directory, "--yes"})...); r.code != 0 {
		t.Fatalf("move: %d, %s%s", r.code, r.out, r.err)
	}
	if !from.isActive() {
		t.Error("the source is not resumed")
	}
	from.cluster.up.end()
	to.namespace = from.namespace
	owners := to.recordOwners()
	if r := to.cluster.run("move", "--from-directory", directory, "--to", to.cluster.kubeconfig(), "--yes"); r.code != 0 {
		t.Fatalf("move: %d, %s%s", r.code, r.out, r.err)
	}
	to.has(before, "through a directory")
	owners.good("while it returns from a directory")
}

// TestClusterAPIStripped: objects that a backup tool as Velero restores to another management cluster, without owners and without status, get
// their owners again.
func TestClusterAPIStripped(t *testing.T) {
	from, to := newManagement(t), newManagement(t)
	from.createClassy(1, 1)
	before := from.members()
	from.kubectl("patch", "cluster", "classy", "--type=merge", "-p", `{"spec":{"paused":true}}`)
	stripped := from.stripped(before)
	from.cluster.up.end()
	to.namespace = from.namespace
	owners := to.recordRestored()
	to.input(stripped, "create", "-f", "-")
	to.kubectl("patch", "cluster", "classy", "--type=merge", "-p", `{"spec":{"paused":false}}`)
	to.has(before, "with a backup")
	owners.good("after it was restored without owners")
}

// TestClusterAPIKindredStripped: the same for a cluster of machines of this host. They run on, and no second first server begins another cluster.
func TestClusterAPIKindredStripped(t *testing.T) {
	from := newKindredManagement(t)
	to := newKindredManagementOn(t, from.host, from.release)
	from.create("work", 1, 1)
	from.available("work", 2)
	before, machines := from.members(), from.host.list()
	from.kubectl("patch", "cluster", "work", "--type=merge", "-p", `{"spec":{"paused":true}}`)
	stripped := from.stripped(before)
	from.cluster.up.end()
	to.namespace = from.namespace
	owners := to.recordRestored()
	to.input(stripped, "create", "-f", "-")
	to.kubectl("patch", "cluster", "work", "--type=merge", "-p", `{"spec":{"paused":false}}`)
	to.available("work", 2)
	owners.good("after it was restored without owners")
	if diff := cmp.Diff(before, to.members()); diff != "" {
		t.Errorf("what was restored (-source +target):\n%s", diff)
	}
	to.finds()
	to.tookOver(machines, "a backup was restored")
	to.nodesReady("work", 2, provisioning)
	to.goes("work")
	owners.good("while it is deleted")
	if left := to.host.list(); len(left) > 0 {
		t.Errorf("machines that are left: %+v", left)
	}
}

// stripped returns a List of objects as they are restored by a backup tool, classes first.
func (m *management) stripped(names []string) string {
	m.Helper()
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == rootAuthority })
	var list unstructured.UnstructuredList
	if err := json.Unmarshal([]byte(m.kubectl(append([]string{"get", "-o", "json"}, names...)...)), &list); err != nil {
		m.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for i := range list.Items {
		o := &list.Items[i]
		for _, field := range []string{"ownerReferences", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
		}
		unstructured.RemoveNestedField(o.Object, "status")
		objects = append(objects, o)
	}
	isClass := func(o *unstructured.Unstructured) bool { return o.GetKind() == "ClusterClass" }
	if i := slices.IndexFunc(objects, isClass); i > 0 {
		objects[0], objects[i] = objects[i], objects[0]
	}
	return listOf(objects)
}
