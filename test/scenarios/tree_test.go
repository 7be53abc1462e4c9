// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// owns adds a ConfigMap to the owners of others.
func (s *session) owns(owner string, dependents ...string) {
	s.Helper()
	reference := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q}`, owner, s.uid("configmap/"+owner))
	for _, dependent := range dependents {
		patch := `{"metadata":{"ownerReferences":[` + reference + `]}}`
		s.kubectl("patch", "configmap", dependent, "--type", "strategic", "-p", patch)
	}
}

// TestTreeOfACycle: objects that own each other are shown once, by each verb and in each output
// format.
func TestTreeOfACycle(t *testing.T) {
	s := withoutNode(t)
	const n = 20
	name := func(i int) string { return fmt.Sprintf("c%02d", i%n) }
	for i := range n {
		s.kubectl("create", "configmap", name(i))
	}
	for i := range n {
		s.owns(name(i), name(i+1))
	}
	for _, args := range [][]string{
		{"tree", "configmap/c07"}, {"tree", "configmap/c07", "-o", "dot"}, {"tree", "configmap/c07", "-o", "mermaid"},
		{"delete", "--preview", "configmap/c07"},
	} {
		r := s.kindred(args...)
		if lines := strings.Count(r.out, "\n"); r.code != 0 || lines > 2*n+4 {
			t.Fatalf("%v: exit %d, %d lines for %d objects\n%s%s", args, r.code, lines, n, tail(r.out, 4000), r.err)
		}
	}
	r := s.kindred("tree", "configmap/c07")
	for i := range n {
		if rows := strings.Count(r.out, "ConfigMap/"+name(i)+" "); rows != 1 && name(i) != "c06" {
			t.Errorf("%s has %d rows:\n%s", name(i), rows, r.out)
		}
	}
	for _, want := range []string{"\nConfigMap/c07 * ", "owned by ConfigMap/c06 (cycle)\n", " (13) ConfigMap/c00 "} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
}

// TestTreeFitsItsTerminal: a table is as wide as the terminal; other output is not cut.
func TestTreeFitsItsTerminal(t *testing.T) {
	s := withoutNode(t)
	long := strings.Repeat("long-", 30) + "name"
	s.kubectl("create", "configmap", long)
	s.kubectl("create", "configmap", "child")
	s.owns(long, "child")
	args := []string{"tree", "configmap/child", "--namespace", s.namespace}
	if r := s.cluster.run(args...); r.code != 0 || !strings.Contains(r.out, "ConfigMap/"+long+" ") {
		t.Errorf("in a pipe, exit %d:\n%s%s", r.code, r.out, r.err)
	}
	onScreen := func(more ...string) string {
		cmd := s.cluster.command(append(slices.Concat(args, more), "--data-dir", s.cluster.dir)...)
		cmd.Env = append(cmd.Env, "NO_COLOR=1")
		screen := onTerminal(t, cmd)
		<-screen.done
		var text string
		s.eventually("the table is on the screen", func() error {
			text = strings.ReplaceAll(screen.out.String(), "\r", "")
			if !strings.Contains(text, "child") {
				return fmt.Errorf("%s", text)
			}
			return nil
		})
		return text
	}
	narrow := onScreen()
	widest := 0
	for line := range strings.Lines(narrow) {
		widest = max(widest, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
	}
	if widest > 120 || widest < 105 || !strings.Contains(narrow, "…") {
		t.Errorf("%d columns on a terminal of 120:\n%s", widest, narrow)
	}
	if wide := onScreen("-o", "wide"); !strings.Contains(wide, "ConfigMap/"+long+" ") {
		t.Errorf("with -o wide:\n%s", wide)
	}
}

// TestPreviewNamesFinalizers: the preview also names finalizers of dependents that are deleted
// after their owner.
func TestPreviewNamesFinalizers(t *testing.T) {
	s := withoutNode(t)
	for _, name := range []string{"root", "child"} {
		s.kubectl("create", "configmap", name)
		s.kubectl("patch", "configmap", name, "--type", "merge", "-p", `{"metadata":{"finalizers":["example.com/of-`+name+`"]}}`)
	}
	s.owns("root", "child")
	t.Cleanup(func() {
		s.try("patch", "configmap", "root", "child", "--type", "merge", "-p", `{"metadata":{"finalizers":null}}`)
	})
	s.shows(`
OBJECT              OUTCOME  NOTES
ConfigMap/root      deleted  waits for finalizer example.com/of-root
└─ ConfigMap/child  deleted  waits for finalizer example.com/of-child

would be deleted: 2, held up: 2
`, "delete", "--preview", "configmap/root")
}

// TestTreeOfWhatIsNotAvailable: an object whose condition Available is False is not ready.
func TestTreeOfWhatIsNotAvailable(t *testing.T) {
	s := withoutNode(t)
	s.apply(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.unavailable.example.com}
spec:
  group: unavailable.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {namespace: ` + s.namespace + `, name: nothing}
`)
	t.Cleanup(func() { s.try("delete", "apiservice", "v1.unavailable.example.com") })
	s.kubectl("wait", "apiservice/v1.unavailable.example.com", "--for=condition=Available=False", "--timeout", patience.String())
	r := s.kindred("tree", "apiservice/v1.unavailable.example.com")
	if r.code != 0 || !strings.Contains(r.out, " InProgress ") || !strings.Contains(r.out, `service/nothing in "`+s.namespace+`" is not present`) {
		t.Errorf("exit %d:\n%s%s", r.code, r.out, r.err)
	}
}

// TestVerbsWithImpersonation: a verb has the permissions of the impersonated user, and deletes as
// that user.
func TestVerbsWithImpersonation(t *testing.T) {
	s := withoutNode(t)
	s.kubectl("create", "configmap", "one")
	s.kubectl("create", "configmap", "two")
	s.kubectl("create", "role", "reader", "--verb", "get,list,delete", "--resource", "configmaps")
	s.kubectl("create", "rolebinding", "reader", "--role", "reader", "--group", "devs")
	s.may("delete", "configmaps", "--as", "jane", "--as-group", "devs")
	for _, verb := range [][]string{{"tree"}, {"why"}, {"delete", "--preview"}} {
		jane := append(verb, "configmap/one", "--as", "jane")
		if r := s.kindred(jane...); r.code != 1 || !strings.Contains(r.err, `User "jane" cannot get resource "configmaps"`) {
			t.Errorf("%v: exit %d: %s%s", jane, r.code, r.out, r.err)
		}
		dev := append(jane, "--as-group", "devs", "--as-group", "system:authenticated")
		if r := s.kindred(dev...); r.code != 0 {
			t.Errorf("%v: exit %d: %s%s", dev, r.code, r.out, r.err)
		}
	}
	if r := s.kindred("delete", "configmap/one", "--yes", "--as", "jane", "--as-group", "devs", "--as-group", "system:authenticated"); r.code != 0 {
		t.Fatalf("delete: exit %d: %s%s", r.code, r.out, r.err)
	}
	s.kubectl("delete", "configmap", "two")
	for name, want := range map[string]string{"one": " by jane (kindred) ", "two": " (kubectl) "} {
		s.eventually("the deletion of "+name+" is explained", func() error {
			if r := s.kindred("why", "configmap/"+name); !strings.Contains(strings.Join(strings.Fields(r.out), " "), want) {
				return fmt.Errorf("no %q in %q, %s", want, r.out, r.err)
			}
			return nil
		})
	}
}

// TestConflictMessages: the message of a conflict is its reason.
func TestConflictMessages(t *testing.T) {
	s := withoutNode(t)
	s.kubectl("create", "configmap", "one")
	r := s.kindred("undelete", "configmap/one")
	if r.code != 1 || !strings.HasPrefix(r.err, `error: configmaps "one": `) {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
}
