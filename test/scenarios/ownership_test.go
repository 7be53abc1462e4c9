// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kindred runs a verb of kindred in the session's namespace.
func (s *session) kindred(args ...string) result {
	return s.cluster.run(append(args, "--namespace", s.namespace)...)
}

// shows checks the output of a verb by line and column. "*" matches any word, and "..." at the end
// any further ones. It waits for the objects of kinds that other scenarios have just created.
func (s *session) shows(want string, args ...string) {
	s.Helper()
	var r result
	s.eventually("the objects of all kinds are listed", func() error {
		if r = s.kindred(args...); strings.Contains(r.out+r.err, "are not listed yet") {
			return fmt.Errorf("%s%s", r.out, r.err)
		}
		return nil
	})
	if r.code != 0 || !sameLines(want, r.out) {
		s.Fatalf("kindred %s: exit %d, %s\nprinted:\n%s\nwant:\n%s", strings.Join(args, " "), r.code, r.err, r.out, want)
	}
}

func sameLines(want, got string) bool {
	wants, gots := strings.Split(strings.TrimSpace(want), "\n"), strings.Split(strings.TrimSpace(got), "\n")
	if len(wants) != len(gots) {
		return false
	}
	for i := range wants {
		if !sameWords(strings.Fields(wants[i]), strings.Fields(gots[i])) {
			return false
		}
	}
	return true
}

func sameWords(want, got []string) bool {
	if n := len(want); n > 0 && want[n-1] == "..." {
		want, got = want[:n-1], got[:min(len(got), n-1)]
	}
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		prefix, isPattern := strings.CutSuffix(want[i], "*")
		if want[i] != got[i] && (!isPattern || !strings.HasPrefix(got[i], prefix)) {
			return false
		}
	}
	return true
}

// treeAndPreview checks tree and preview of a Deployment, deletes it, and checks again.
func (s *session) treeAndPreview() {
	s.Helper()
	s.kubectl("create", "deployment", "web", "--image", image, "--replicas", "2", "--", "sh", "-c", "trap exit TERM; sleep 3600 & wait")
	s.kubectl("rollout", "status", "deployment/web")
	s.eventually("the Deployment is ready", func() error {
		r := s.kindred("tree", "deployment/web")
		if r.code != 0 || strings.Count(r.out, " Ready ") != 4 {
			return fmt.Errorf("exit %d: %s%s", r.code, r.out, r.err)
		}
		return nil
	})
	s.shows(`
Namespace `+s.namespace+`
OBJECT                CONTROLLED  READINESS  AGE  NOTES
Deployment/web *                  Ready      *
└─ ReplicaSet/web-*   yes         Ready      *
   ├─ Pod/web-*       yes         Ready      *
   └─ Pod/web-*       yes         Ready      *
`, "tree", "deployment/web")
	s.shows(`
OBJECT                OUTCOME  NOTES
Deployment/web        deleted
└─ ReplicaSet/web-*   deleted
   ├─ Pod/web-*       deleted
   └─ Pod/web-*       deleted

would be deleted: 4
`, "delete", "--preview", "deployment/web")
	s.shows(`
OBJECT                OUTCOME  NOTES
Deployment/web        deleted
└─ ReplicaSet/web-*   orphaned

would be deleted: 1, orphaned: 1
`, "delete", "--preview", "deployment/web", "--cascade", "orphan")
	if r := s.kindred("delete", "deployment/web", "--cascade", "foreground", "--yes"); r.code != 0 || !strings.Contains(r.out, "1 object gone") {
		s.Fatalf("delete: exit %d: %s%s", r.code, r.out, r.err)
	}
	s.prints("", "get", "deployments,replicasets,pods", "-o", "name")
}

func TestTreeAndPreviewSimulated(t *testing.T) { withoutNode(t).treeAndPreview() }

func TestTreeAndPreview(t *testing.T) { withNode(t).treeAndPreview() }

// TestDeletionThatIsHeldUp: a preview shows finalizers and other owners, by the verb, by kubectl
// create of the review, and by the plugin.
func TestDeletionThatIsHeldUp(t *testing.T) {
	s := withoutNode(t)
	for _, name := range []string{"one", "two", "held", "shared"} {
		s.kubectl("create", "configmap", name)
	}
	reference := func(name string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","name":"` + name + `","uid":"` + s.jsonpath("{.metadata.uid}", "cm", name) + `","blockOwnerDeletion":true}`
	}
	s.kubectl("patch", "cm", "held", "--type", "merge", "-p", `{"metadata":{"finalizers":["example.com/hold"],"ownerReferences":[`+reference("one")+`]}}`)
	s.kubectl("patch", "cm", "shared", "--type", "merge", "-p", `{"metadata":{"ownerReferences":[`+reference("one")+`,`+reference("two")+`]}}`)
	want := `
OBJECT               OUTCOME  NOTES
ConfigMap/one        deleted  waits for its dependent ConfigMap/held
├─ ConfigMap/held    deleted  waits for finalizer example.com/hold
└─ ConfigMap/shared  kept     kept by ConfigMap/two

would be deleted: 2, kept: 1, held up: 2
`
	s.shows(want, "delete", "--preview", "configmap/one", "--cascade", "foreground")
	s.contains(s.input(`
apiVersion: ownership.kindred.dev/v1alpha1
kind: DeletionPreview
spec:
  target: {apiVersion: v1, kind: ConfigMap, namespace: `+s.namespace+`, name: one}
  propagationPolicy: Foreground
`, "create", "-f", "-", "-o", "jsonpath={.status.objects[*].outcome}"), "Deleted Deleted Kept")

	s.kubectl("delete", "cm", "one", "--cascade=foreground", "--wait=false")
	s.eventually("the tree tells what the deletion waits for", func() error {
		r := s.kindred("tree", "cm/one")
		if !strings.Contains(strings.Join(strings.Fields(r.out), " "), "waits for its dependent ConfigMap/held") {
			return fmt.Errorf("exit %d: %s%s", r.code, r.out, r.err)
		}
		return nil
	})
	s.kubectl("patch", "cm", "held", "--type", "merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.gone("cm", "one")
	s.gone("cm", "held")
	s.prints("configmap/kube-root-ca.crt\nconfigmap/shared\nconfigmap/two\n", "get", "cm", "-o", "name")
}

// TestDeletionOfSeveral: several objects are previewed and deleted as one. Nothing is deleted if
// the deletion would delete more than was shown.
func TestDeletionOfSeveral(t *testing.T) {
	s := withoutNode(t)
	for _, name := range []string{"one", "two", "shared", "late"} {
		s.kubectl("create", "configmap", name)
	}
	own := func(name string, owners ...string) {
		var refs []string
		for _, owner := range owners {
			refs = append(refs, `{"apiVersion":"v1","kind":"ConfigMap","name":"`+owner+`","uid":"`+s.jsonpath("{.metadata.uid}", "cm", owner)+`"}`)
		}
		s.kubectl("patch", "cm", name, "--type", "merge", "-p", `{"metadata":{"ownerReferences":[`+strings.Join(refs, ",")+`]}}`)
	}
	own("shared", "one", "two")
	s.shows(`
OBJECT               OUTCOME  NOTES
ConfigMap/one        deleted
└─ ConfigMap/shared  kept     kept by ConfigMap/two

would be deleted: 1, kept: 1
`, "delete", "--preview", "configmap/one")
	s.shows(`
OBJECT               OUTCOME  NOTES
ConfigMap/one *      deleted
└─ ConfigMap/shared  deleted
ConfigMap/two *      deleted

would be deleted: 3
`, "delete", "--preview", "configmap/one", "configmap/two")
	r := s.kindred("delete", "--preview", "configmap/one", "configmap/two", "-o", "json")
	var review struct {
		Spec   struct{ Targets []struct{ Name string } }
		Status struct{ Deleted int }
	}
	if err := json.Unmarshal([]byte(r.out), &review); err != nil || len(review.Spec.Targets) != 2 || review.Status.Deleted != 3 {
		t.Errorf("%v: %s%s", err, r.out, r.err)
	}
	// Without an answer for all targets, nothing is shown or deleted.
	if r := s.kindred("delete", "configmap/one", "configmap/none", "--yes"); r.code != 1 || !strings.Contains(r.err, `"none" not found`) {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}

	shell := onTerminal(t, s.cluster.command("delete", "configmap/one", "configmap/two", "--namespace", s.namespace, "--data-dir", s.cluster.dir))
	s.awaitOutput(shell.process, "Delete this? [y/N]")
	own("late", "two")
	s.eventually("the collector has seen the new dependent", func() error {
		if r := s.kindred("delete", "--preview", "configmap/two"); !strings.Contains(r.out, "ConfigMap/late") {
			return fmt.Errorf("exit %d: %s%s", r.code, r.out, r.err)
		}
		return nil
	})
	shell.types(t, "y")
	s.awaitOutput(shell.process, "error: nothing was deleted")
	select {
	case <-shell.done:
	case <-time.After(patience):
		t.Fatalf("the deletion does not end: %q", shell.out)
	}
	if code := shell.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(shell.out.String(), "ConfigMap/late  -      deleted") {
		t.Errorf("exit %d: %s", code, shell.out)
	}
	s.kubectl("get", "cm", "one", "two", "shared", "late")

	if r := s.kindred("delete", "configmap/two", "configmap/one", "--yes"); r.code != 0 || !strings.Contains(r.out, "2 objects gone") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	s.gone("cm", "shared")
	s.gone("cm", "late")
}

// TestPlugin runs the program under its name as a plugin of kubectl.
func TestPlugin(t *testing.T) {
	s := withoutNode(t)
	s.kubectl("create", "configmap", "one")
	dir := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "kubectl-kindred")); err != nil {
		t.Fatal(err)
	}
	// kubectl refuses its own flags before a plugin's name.
	cmd := s.cluster.command("kubectl", "--data-dir", s.cluster.dir, "kindred", "tree", "configmap/one", "--namespace", s.namespace)
	cmd.Env = append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
	r := runCommand(cmd, "")
	if r.code != 0 || !strings.Contains(r.out, "ConfigMap/one *") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
}
