// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const movedKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: stacks.move.example.com}
spec:
  group: move.example.com
  scope: Namespaced
  names: {plural: stacks, singular: stack, kind: Stack}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-preserve-unknown-fields: true
        properties:
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
            properties: {observedGeneration: {type: integer, minimum: 1}}
`

// migration is a move between two clusters.
type migration struct {
	*session          // the user at the source
	there    *session // at the target
}

func newMigration(t *testing.T) *migration {
	t.Helper()
	t.Parallel()
	return newMigrationTo(t, ownCluster(t, "--no-node", "--simulated-nodes", "1"))
}

func newMigrationTo(t *testing.T, target *cluster) *migration {
	t.Helper()
	m := &migration{newSession(t, ownCluster(t, "--no-node", "--simulated-nodes", "1")), nil}
	m.there = inNamespace(t, target, m.namespace)
	for _, s := range []*session{m.session, m.there} {
		s.apply(movedKind)
		s.kubectl("wait", "--for=condition=Established", "crd/stacks.move.example.com")
	}
	return m
}

// back is the migration the other way.
func (m *migration) back() *migration { return &migration{m.there, m.session} }

// move types the verb at the source.
func (m *migration) move(args ...string) result {
	args = append([]string{"move", "--data-dir", m.cluster.dir}, args...)
	if !slices.Contains(args, "--from-directory") {
		args = append(args, "-n", m.namespace)
	}
	return runCommand(m.cluster.command(args...), "")
}

// moves types a move that works.
func (m *migration) moves(args ...string) string {
	m.Helper()
	r := m.move(args...)
	if r.code != 0 {
		m.Fatalf("move %s: exit status %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

func (m *migration) refusesMove(parts []string, args ...string) {
	m.Helper()
	r := m.move(args...)
	if r.code == 0 {
		m.Errorf("move %s works and should not:\n%s", strings.Join(args, " "), r.out)
	}
	for _, part := range parts {
		// The plan wraps its lines.
		if said := strings.Join(strings.Fields(r.out+r.err), " "); !strings.Contains(said, part) {
			m.Errorf("move %s says\n%s%s\nwithout %q", strings.Join(args, " "), r.out, r.err, part)
		}
	}
}

// teardown is a finalizer that Kubernetes does not use. It has no slash, like most of Cluster API's.
const teardown = "stack.move.example.com"

// stack makes a tree of custom resources, three deep, with UIDs all over, and a status that lags
// behind the last change.
func (m *migration) stack() {
	m.Helper()
	m.apply(`
apiVersion: move.example.com/v1
kind: Stack
metadata: {name: top, finalizers: [` + teardown + `]}
spec: {size: 2}
`)
	m.owned("stack/top", `
apiVersion: move.example.com/v1
kind: Stack
metadata: {name: middle, ownerReferences: OWNERS, labels: {top: UID}, annotations: {ref: '{"uid":"UID"}'}}
spec: {above: {uid: UID}, volume: pvc-UID}
`)
	m.owned("stack/middle", `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, ownerReferences: OWNERS}
data: {owner: UID}
`)
	m.owned("configmap/settings", `
apiVersion: v1
kind: Secret
metadata: {name: key, ownerReferences: OWNERS}
stringData: {key: secret}
`)
	// Objects that controllers recreate are not copied; other dependents are.
	m.owned("stack/top", `
apiVersion: v1
kind: Pod
metadata: {name: runner, ownerReferences: OWNERS}
spec: {containers: [{name: c, image: "any:v1"}]}
`)
	m.kubectl("patch", "stack", "top", "--subresource=status", "--type=merge", "-p",
		`{"status":{"observedGeneration":1,"phase":"Ready","below":{"uid":"`+m.uid("stack/middle")+`"}}}`)
	m.kubectl("patch", "stack", "top", "--type=merge", "-p", `{"spec":{"size":3}}`)
}

var stackObjects = []string{"stack/top", "stack/middle", "configmap/settings", "secret/key"}

// checkStack: the target has the whole tree, and its UIDs are its own.
func (m *migration) checkStack() {
	m.Helper()
	there := func(path, object string) string { m.Helper(); return m.there.jsonpath(path, object) }
	top, middle, settings := there("{.metadata.uid}", "stack/top"), there("{.metadata.uid}", "stack/middle"), there("{.metadata.uid}", "configmap/settings")
	for _, c := range []struct{ object, path, want string }{
		{"stack/middle", "{.metadata.ownerReferences[*].uid}", top},
		{"stack/middle", "{.metadata.labels.top}", top},
		{"stack/middle", "{.metadata.annotations.ref}", `{"uid":"` + top + `"}`},
		{"stack/middle", "{.spec.above.uid}", top},
		{"configmap/settings", "{.metadata.ownerReferences[*].uid}", middle},
		{"configmap/settings", "{.data.owner}", middle},
		{"secret/key", "{.metadata.ownerReferences[*].uid}", settings},
		{"secret/key", "{.data.key}", "c2VjcmV0"},
		{"stack/top", "{.spec.size}", "3"},
		{"stack/top", "{.status.phase}", "Ready"},
		{"stack/top", "{.status.below.uid}", middle},
		{"stack/top", "{.metadata.finalizers[*]}", teardown},
		{"stack/top", "{.status.observedGeneration}", ""},
	} {
		if got := there(c.path, c.object); got != c.want {
			m.Errorf("%s of %s is %q at the target, not %q", c.path, c.object, got, c.want)
		}
	}
	m.there.refused([]string{"NotFound"}, "get", "pod", "runner")
	m.unmarked()
}

// unmarked checks that no marks of the move are left at the target.
func (m *migration) unmarked() {
	m.Helper()
	all := m.there.kubectl("get", "stacks,deployments,replicasets,configmaps,secrets,pods,services", "-o", "yaml")
	if i := strings.Index(all, "ownership.kindred.dev"); i >= 0 {
		m.Errorf("a mark is left at the target:\n%s", all[max(0, i-500):min(len(all), i+300)])
	}
	m.there.prints("", "get", "namespace", m.namespace, "-o", "jsonpath={.metadata.annotations}")
	m.there.prints("", "get", "configmaps", "--all-namespaces", "-l", "ownership.kindred.dev/move", "-o", "name")
}

// copied are the names of what is to be copied, as far as a side has it.
func (m *migration) copied(s *session) []string {
	m.Helper()
	found := strings.Fields(s.kubectl("get", "stacks,deployments,replicasets,configmaps,secrets", "-o", "name"))
	return slices.DeleteFunc(found, func(name string) bool {
		return name == "configmap/kube-root-ca.crt" || strings.HasPrefix(name, "configmap/kindred-move-")
	})
}

// podsGo waits until the source has none any more, and nothing that would make some.
func (m *migration) podsGo() {
	m.Helper()
	m.eventually("the source's pods go", func() error {
		if left := m.kubectl("get", "deployments,replicasets,pods", "-o", "name"); left != "" {
			return fmt.Errorf("still there: %s", left)
		}
		return nil
	})
}

func (m *migration) has(s *session, object string) bool {
	return s.try("get", object).code == 0
}

// TestMove: a Deployment with its history and a tree of custom resources go to another
// cluster; what would lose something is refused before anything is written.
func TestMove(t *testing.T) {
	m := newMigration(t)
	m.kubectl("create", "deployment", "web", "--image=any:v1", "--replicas=3")
	m.rolledOut("web")
	m.kubectl("set", "image", "deployment/web", "any=any:v2")
	m.rolledOut("web")
	m.kubectl("create", "service", "clusterip", "web", "--tcp=80")
	m.stack()
	to := m.there.cluster.kubeconfig()
	roots := []string{"deployment/web", "service/web", "stack/top", "--to", to}
	with := func(more ...string) []string { return append(slices.Clone(roots), more...) }

	m.refusesMove([]string{"cannot ask for confirmation"}, roots...)
	m.refusesMove([]string{"stack.move.example.com/top in namespace move has the finalizer " + teardown, "--drop-finalizers", "nothing was changed"}, with("--yes")...)
	m.refusesMove([]string{"is owned by stack.move.example.com/middle as well", "--drop-outside-owners"}, "configmap/settings", "--to", to, "--yes")
	m.refusesMove([]string{"not found in the source", "deployment.apps/absent"}, "deployment/absent", "--to", to, "--yes")
	m.refusesMove([]string{"is the same cluster"}, "deployment/web", "--to", m.cluster.kubeconfig(), "--yes")
	m.refusesMove([]string{"a namespace owns nothing"}, "namespace/"+m.namespace, "--to", to, "--yes")
	for _, object := range append(stackObjects, "deployment/web", "namespace/"+m.namespace) {
		if m.has(m.there, object) {
			t.Errorf("%s is at the target, after nothing but refusals", object)
		}
	}

	var plan struct {
		Namespaces []string
		Objects    []struct{ Kind, Name, Action, Hold string }
	}
	if err := json.Unmarshal([]byte(m.moves(with("--dry-run", "--drop-finalizers", "-o", "json")...)), &plan); err != nil {
		t.Fatal(err)
	}
	actions := map[string]int{}
	for _, object := range plan.Objects {
		actions[object.Kind+" "+object.Action]++
	}
	for what, n := range map[string]int{"Deployment Move": 1, "ReplicaSet Move": 2, "Pod Remake": 4, "Stack Move": 2, "Secret Move": 1, "EndpointSlice Remake": 1, "Service Move": 1} {
		if actions[what] != n {
			t.Errorf("the plan has %d of %s, not %d: %v", actions[what], what, n, actions)
		}
	}
	if !slices.Equal(plan.Namespaces, []string{m.namespace}) || m.has(m.there, "namespace/"+m.namespace) {
		t.Errorf("the plan creates namespaces %v", plan.Namespaces)
	}

	out := m.moves(with("--yes", "--drop-finalizers")...)
	for line := range strings.Lines(out) {
		if len([]rune(line)) > 101 {
			t.Errorf("wider than 100 columns: %s", line)
		}
	}
	m.checkStack()
	m.there.rolledOut("web")
	m.there.table("NAME READY UP-TO-DATE AVAILABLE AGE\nweb 3/3 3 3 *", "get", "deployment", "web")
	m.there.contains(m.there.kubectl("rollout", "history", "deployment/web"), "\n1 ", "\n2 ")
	if n := len(strings.Fields(m.there.kubectl("get", "replicasets", "-o", "name"))); n != 2 {
		t.Errorf("%d ReplicaSets at the target", n)
	}
	for _, object := range append(stackObjects, "deployment/web", "service/web") {
		m.refused([]string{"NotFound"}, "get", object)
	}
	m.podsGo()
	// The history is one: what was before the move can be gone back to.
	m.there.kubectl("rollout", "undo", "deployment/web")
	m.there.rolledOut("web")
	m.there.prints("any:v1", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
}

// TestMoveIsRefusedByTheTarget: kinds that are not served, names that are taken, and what
// admission would not have.
func TestMoveIsRefusedByTheTarget(t *testing.T) {
	m := newMigration(t)
	m.kubectl("create", "configmap", "taken")
	m.stack()
	to := m.there.cluster.kubeconfig()
	// A move that is refused removes the namespace that it created.
	m.kubectl("run", "plain", "--image=any:v1")
	m.kubectl("label", "namespace", m.namespace, "pod-security.kubernetes.io/enforce=restricted")
	m.refusesMove([]string{"violates PodSecurity", "nothing was changed but for namespaces that were created and removed again"}, "pod/plain", "--to", to, "--yes")
	m.there.gone("namespace", m.namespace)

	m.there.kubectl("create", "namespace", m.namespace)
	m.there.kubectl("create", "configmap", "taken")
	m.refusesMove([]string{"configmap/taken in namespace " + m.namespace + " exists at the target and is not a copy"}, "configmap/taken", "--to", to, "--yes")

	m.there.kubectl("create", "quota", "none", "--hard=secrets=0")
	m.there.eventually("the quota is in force", func() error {
		if got := m.there.jsonpath("{.status.hard.secrets}", "quota", "none"); got != "0" {
			return fmt.Errorf("hard: %q", got)
		}
		return nil
	})
	m.refusesMove([]string{"refuses secret/key", "exceeded quota"}, "stack/top", "--to", to, "--yes", "--drop-finalizers")
	m.there.kubectl("delete", "quota", "none")

	m.there.kubectl("delete", "crd", "stacks.move.example.com")
	m.refusesMove([]string{"does not serve kind Stack of move.example.com/v1", "apply its CustomResourceDefinition there first"}, "stack/top", "--to", to, "--yes", "--drop-finalizers")
	for _, object := range stackObjects {
		if !m.has(m.session, object) {
			t.Errorf("%s is not at the source any more", object)
		}
	}
}

func TestMoveKilled(t *testing.T) {
	m := newMigration(t)
	m.kubectl("create", "deployment", "web", "--image=any:v1", "--replicas=2")
	m.rolledOut("web")
	m.stack()
	m.movesThoughKilled()
	m.there.rolledOut("web")
	m.there.table("NAME READY UP-TO-DATE AVAILABLE AGE\nweb 2/2 2 2 *", "get", "deployment", "web")
}

// movesThoughKilled moves a Deployment and the stack. The process is killed after each of its
// writes, and started again, until a run has nothing left to write. At each moment each object
// is somewhere, and nothing of the source has gone before everything was at the target.
func (m *migration) movesThoughKilled() {
	m.Helper()
	t, tripwire := m.T, &tripwire{}
	from, to := tripwire.before(t, m.cluster), tripwire.before(t, m.there.cluster)
	all := m.copied(m.session)
	runs := 0
	for {
		if runs++; runs > 200 {
			t.Fatal("it does not get through in 200 runs")
		}
		p := tripwire.start(t, m.cluster.command("move", "deployment/web", "stack/top", "-n", m.namespace, "--kubeconfig", from, "--to", to, "--yes", "--drop-finalizers"))
		<-p.done
		// The last write of all may have been the one it was killed after.
		if strings.Contains(p.out.String(), "it may have been moved already") {
			break
		}
		if code := p.cmd.ProcessState.ExitCode(); code == 0 {
			break
		} else if code > 0 {
			t.Fatalf("run %d, which was to be killed, ended with %d:\n%s", runs, code, p.out)
		}
		here, there := m.copied(m.session), m.copied(m.there)
		for _, object := range all {
			if !slices.Contains(here, object) && !slices.Contains(there, object) {
				t.Fatalf("after run %d, %s is nowhere", runs, object)
			}
		}
		if len(here) < len(all) && len(there) < len(all) {
			t.Fatalf("after run %d, %d of %d objects are at the source and %d at the target", runs, len(here), len(all), len(there))
		}
	}
	// Each object is created, removed and released at least, each in a run of its own.
	if runs < 3*len(all) {
		t.Errorf("it got through in %d runs: not every write was the last of one", runs)
	}
	t.Logf("it took %d runs", runs)
	m.checkStack()
	m.podsGo()
	m.prints("", "get", "stacks,secrets", "-o", "name")
}

// TestMoveOfWhatChanges: what somebody changes between verification and removal is not
// removed, and neither is what it owns.
func TestMoveOfWhatChanges(t *testing.T) {
	m := newMigration(t)
	m.stack()
	var once sync.Once
	to := listenIn(t, m.there.cluster, func(in *http.Request, body string) {
		if in.Method == http.MethodPost && strings.Contains(body, `"stage":"Remove"`) {
			once.Do(func() { m.kubectl("patch", "configmap", "settings", "-p", `{"data":{"late":"yes"}}`) })
		}
	})
	m.refusesMove([]string{
		"stays: configmap/settings in namespace " + m.namespace + ": it changed after it was copied",
		"stays: secret/key in namespace " + m.namespace + ": its owner stays",
		"2 objects stay at the source",
	}, "stack/top", "--to", to, "--yes", "--drop-finalizers")
	m.checkStack()
	m.prints("yes", "get", "configmap", "settings", "-o", "jsonpath={.data.late}")
	m.prints("", "get", "configmap", "settings", "-o", "jsonpath={.metadata.ownerReferences}")
	m.prints("secret/key\n", "get", "secrets", "-o", "name")
	for _, object := range []string{"stack/top", "stack/middle", "pod/runner"} {
		m.refused([]string{"NotFound"}, "get", object)
	}
}

// TestMoveFollowsChanges: what changes at the source while it is copied is copied again, what
// is new there comes along, and what a controller of the target was faster to make is taken
// over.
func TestMoveFollowsChanges(t *testing.T) {
	m := newMigration(t)
	m.stack()
	var change, faster sync.Once
	to := listenIn(t, m.there.cluster, func(in *http.Request, body string) {
		if in.Method != http.MethodPost || in.URL.Query().Get("dryRun") != "" {
			return
		}
		if strings.Contains(body, `"name":"middle"`) {
			faster.Do(func() {
				uid := m.there.jsonpath("{.metadata.uid}", "stack/middle")
				m.there.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, ownerReferences: [{apiVersion: move.example.com/v1, kind: Stack, name: middle, uid: ` + uid + `, controller: true}]}
data: {owner: nobody}
`)
			})
		}
		if strings.Contains(body, `"kind":"Secret"`) {
			change.Do(func() {
				m.kubectl("patch", "stack", "top", "--type=merge", "-p", `{"spec":{"late":"yes"}}`)
				m.kubectl("label", "stack", "top", "late=yes")
				m.owned("stack/middle", "{apiVersion: v1, kind: ConfigMap, metadata: {name: newcomer, ownerReferences: OWNERS}, data: {owner: UID}}")
			})
		}
	})
	m.moves("stack/top", "--to", to, "--yes", "--drop-finalizers")
	m.checkStack()
	m.there.prints("yes yes", "get", "stack", "top", "-o", "jsonpath={.spec.late} {.metadata.labels.late}")
	m.there.prints(m.there.jsonpath("{.metadata.uid}", "stack/middle"), "get", "configmap", "newcomer", "-o", "jsonpath={.data.owner}")
	m.prints("configmap/kube-root-ca.crt\n", "get", "stacks,configmaps,secrets,pods", "-o", "name")
}

// TestMoveKeepsData: a claim whose removal would remove its volume's data stays, and so does
// the volume.
func TestMoveKeepsData(t *testing.T) {
	m := newMigration(t)
	for _, policy := range []string{"Delete", "Retain"} {
		name := strings.ToLower(policy)
		m.apply(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: ` + name + `}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: ` + policy + `
  hostPath: {path: /nowhere}
  claimRef: {namespace: ` + m.namespace + `, name: ` + name + `}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ` + name + `}
spec: {volumeName: ` + name + `, storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
		m.kubectl("patch", "pv", name, "--type=merge", "-p", `{"spec":{"claimRef":{"uid":"`+m.uid("pvc/"+name)+`"}}}`)
	}
	to := m.there.cluster.kubeconfig()
	m.moves("pvc/retain", "pv/retain", "--to", to, "--yes")
	m.refusesMove([]string{"stays: persistentvolumeclaim/delete", "removing it would remove the data"}, "pvc/delete", "pv/delete", "--to", to, "--yes")
	for _, kind := range []string{"pvc/", "pv/"} {
		m.gone(strings.TrimSuffix(kind, "/"), "retain")
		if !m.has(m.session, kind+"delete") {
			t.Errorf("%sdelete has gone", kind)
		}
	}
	for _, name := range []string{"retain", "delete"} {
		claim := m.there.jsonpath("{.metadata.uid}", "pvc/"+name)
		m.there.prints(claim, "get", "pv", name, "-o", "jsonpath={.spec.claimRef.uid}")
	}
}

// TestMoveWithoutPermission names the permissions that are missing on either side.
func TestMoveWithoutPermission(t *testing.T) {
	m := newMigration(t)
	m.kubectl("create", "configmap", "plain")
	as := func(c *cluster) string {
		file, err := clientcmd.LoadFromFile(c.kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		for _, user := range file.AuthInfos {
			user.Impersonate = "jane"
		}
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := clientcmd.WriteToFile(*file, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	source, target := as(m.cluster), as(m.there.cluster)
	m.there.kubectl("create", "namespace", m.namespace)
	m.refusesMove([]string{`configmaps "plain" is forbidden`, `cannot get resource`}, "configmap/plain", "--kubeconfig", source, "--to", target, "--yes")

	m.kubectl("create", "role", "reader", "--verb=get", "--resource=configmaps")
	m.kubectl("create", "rolebinding", "reader", "--role=reader", "--user=jane")
	m.refusesMove([]string{"does not allow you to list ", "would be left behind"}, "configmap/plain", "--kubeconfig", source, "--to", target, "--yes")

	m.kubectl("create", "clusterrole", "lister", "--verb=get,list", "--resource=*.*")
	m.kubectl("create", "clusterrolebinding", "lister", "--clusterrole=lister", "--user=jane")
	m.there.kubectl("create", "clusterrole", "lister", "--verb=get,list", "--resource=*.*")
	m.there.kubectl("create", "clusterrolebinding", "lister", "--clusterrole=lister", "--user=jane")
	m.refusesMove([]string{
		"the source (" + m.cluster.config(t).Host + ") does not allow you to delete configmaps in namespace " + m.namespace,
		"the target (" + m.there.cluster.config(t).Host + ") does not allow you to create configmaps in namespace " + m.namespace,
	}, "configmap/plain", "--kubeconfig", source, "--to", target, "--yes")
}

// TestMoveByDirectory: out to files, which the source does not notice, and in from them.
func TestMoveByDirectory(t *testing.T) {
	m := newMigration(t)
	m.stack()
	to := m.there.cluster.kubeconfig()
	dir := filepath.Join(t.TempDir(), "graph")
	before := m.kubectl("get", "stacks,configmaps,secrets", "-o", "yaml")
	m.moves("stack/top", "--to-directory", dir)
	if after := m.kubectl("get", "stacks,configmaps,secrets", "-o", "yaml"); after != before {
		t.Error("writing to a directory changed the source")
	}
	m.refusesMove([]string{"is not empty: name another directory"}, "stack/top", "--to-directory", dir)

	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(stackObjects)+1 {
		t.Fatalf("%d files: %v", len(entries), err)
	}
	// A directory that is not whole is no source.
	first := filepath.Join(dir, entries[0].Name())
	aside := filepath.Join(t.TempDir(), "aside")
	if err := os.Rename(first, aside); err != nil {
		t.Fatal(err)
	}
	m.refusesMove([]string{"is incomplete"}, "--from-directory", dir, "--to", to, "--yes")
	if err := os.Rename(aside, first); err != nil {
		t.Fatal(err)
	}
	m.moves("--from-directory", dir, "--to", to, "--yes")
	m.checkStack()
	m.refusesMove([]string{"exists at the target"}, "--from-directory", dir, "--to", to, "--yes")
}

// tripwire kills a process when it has written. It stands before the API servers
// that the process talks to.
type tripwire struct {
	mu      sync.Mutex
	armed   bool
	process *process
}

// before is a kubeconfig by which a cluster is reached through the tripwire.
func (w *tripwire) before(t *testing.T, c *cluster) string {
	t.Helper()
	return listenIn(t, c, func(in *http.Request, _ string) {
		if in.Method != http.MethodGet && in.URL.Query().Get("dryRun") == "" && !strings.Contains(in.URL.Path, "accessreviews") {
			w.written()
		}
	})
}

// listenIn is a kubeconfig by which a cluster is reached, with somebody who hears of each
// request when it has been answered.
func listenIn(t *testing.T, c *cluster, heard func(in *http.Request, body string)) string {
	t.Helper()
	config := c.config(t)
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(server)
	proxy.Transport = transport
	between := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body)
		if err != nil {
			t.Error(err)
		}
		in.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(out, in)
		heard(in, string(body))
	}))
	t.Cleanup(between.Close)
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: between.URL}
	file.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	file.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// start starts a process that is killed after its first write.
func (w *tripwire) start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	p, err := startProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	w.armed, w.process = true, p
	return p
}

func (w *tripwire) written() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed {
		w.process.end()
	}
	w.armed = false
}
