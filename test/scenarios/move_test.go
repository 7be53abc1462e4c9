// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// TestMove moves a Deployment with its history and a tree of custom resources to another cluster. A
// move that would lose something is refused before anything is written.
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
	m.refusesMove([]string{"is also owned by stack.move.example.com/middle", "--drop-outside-owners"}, "configmap/settings", "--to", to, "--yes")
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
	// The history is complete: a rollout can be undone to a revision from before the move.
	m.there.kubectl("rollout", "undo", "deployment/web")
	m.there.rolledOut("web")
	m.there.prints("any:v1", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
}

// TestMoveIsRefusedByTheTarget: the target does not serve a kind, has a name already, or its
// admission refuses an object.
func TestMoveIsRefusedByTheTarget(t *testing.T) {
	m := newMigration(t)
	m.kubectl("create", "configmap", "taken")
	m.stack()
	to := m.there.cluster.kubeconfig()
	// A refused move removes the namespace that it created.
	m.kubectl("run", "plain", "--image=any:v1")
	m.kubectl("label", "namespace", m.namespace, "pod-security.kubernetes.io/enforce=restricted")
	m.refusesMove([]string{"violates PodSecurity", "nothing was changed except for namespaces that were created and removed again"}, "pod/plain", "--to", to, "--yes")
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
	m.refusesMove([]string{"rejects secret/key", "exceeded quota"}, "stack/top", "--to", to, "--yes", "--drop-finalizers")
	m.there.kubectl("delete", "quota", "none")

	m.there.kubectl("delete", "crd", "stacks.move.example.com")
	m.refusesMove([]string{"does not serve kind Stack of move.example.com/v1", "apply its CustomResourceDefinition there first"}, "stack/top", "--to", to, "--yes", "--drop-finalizers")
	for _, object := range stackObjects {
		if !m.has(m.session, object) {
			t.Errorf("%s is not at the source any more", object)
		}
	}
}

// TestMoveOfWhatChanges: objects that change between verification and removal are not removed, nor
// are their dependents.
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
		"2 objects were not removed at the source",
	}, "stack/top", "--to", to, "--yes", "--drop-finalizers")
	m.checkStack()
	m.prints("yes", "get", "configmap", "settings", "-o", "jsonpath={.data.late}")
	m.prints("", "get", "configmap", "settings", "-o", "jsonpath={.metadata.ownerReferences}")
	m.prints("secret/key\n", "get", "secrets", "-o", "name")
	for _, object := range []string{"stack/top", "stack/middle", "pod/runner"} {
		m.refused([]string{"NotFound"}, "get", object)
	}
}

// TestMoveFollowsChanges: objects that change at the source during the copy are copied again, new
// ones are copied too, and objects that a controller of the target has created first are adopted.
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

// TestMoveKeepsData: a claim whose removal would delete its volume's data stays, and so does the
// volume.
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

// TestMoveWithoutPermission: the error names the permissions that are missing in either cluster.
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
	m.may("get", "configmaps", "--as", "jane")
	m.refusesMove([]string{"does not allow you to list ", "would be left behind"}, "configmap/plain", "--kubeconfig", source, "--to", target, "--yes")

	m.kubectl("create", "clusterrole", "lister", "--verb=get,list", "--resource=*.*")
	m.kubectl("create", "clusterrolebinding", "lister", "--clusterrole=lister", "--user=jane")
	m.there.kubectl("create", "clusterrole", "lister", "--verb=get,list", "--resource=*.*")
	m.there.kubectl("create", "clusterrolebinding", "lister", "--clusterrole=lister", "--user=jane")
	for _, s := range []*session{m.session, m.there} {
		s.may("list", "deployments.apps", "--as", "jane")
	}
	m.refusesMove([]string{
		"the source (" + m.cluster.config(t).Host + ") does not allow you to delete configmaps in namespace " + m.namespace,
		"the target (" + m.there.cluster.config(t).Host + ") does not allow you to create configmaps in namespace " + m.namespace,
	}, "configmap/plain", "--kubeconfig", source, "--to", target, "--yes")
}

// TestMoveByDirectory writes objects to files, which does not change the source, and creates them
// from the files.
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
	// An incomplete directory is refused.
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
