// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// verified starts to move the stack. The run is killed when all copies are verified, before it has
// removed anything.
func (m *migration) verified() {
	m.Helper()
	m.stack()
	var once sync.Once
	var p *process
	started := make(chan struct{})
	to := listenIn(m.T, m.there.cluster, func(in *http.Request, body string) {
		if in.Method == http.MethodPost && strings.Contains(body, `"stage":"Remove"`) {
			once.Do(func() { <-started; p.end() })
		}
	})
	var err error
	if p, err = startProcess(m.cluster.command("move", "--data-dir", m.cluster.dir, "-n", m.namespace, "stack/top", "--to", to, "--yes", "--drop-finalizers")); err != nil {
		m.Fatal(err)
	}
	close(started)
	<-p.done
	if !m.has(m.session, "stack/top") || !m.has(m.there, "stack/top") {
		m.Fatalf("the first run was not killed between verification and removal:\n%s", p.out)
	}
}

// TestMoveResumedAtTheMomentOfRemoval repeats the command while the last request of the killed run
// removes the root. Whenever the removal takes effect, the move continues, because then the only
// copies are at the target.
func TestMoveResumedAtTheMomentOfRemoval(t *testing.T) {
	m := newMigration(t)
	readsRoot := func(in *http.Request) bool {
		return in.Method == http.MethodGet && strings.HasSuffix(in.URL.Path, "/stacks/top")
	}
	asksForAccess := func(in *http.Request) bool { return strings.Contains(in.URL.Path, "accessreviews") }
	for _, tt := range []struct {
		name string
		// after reports whether the removal takes effect after a request of the second run to the
		// source; nil means before all of them.
		after func(in *http.Request) bool
		// waits is set if the root then waits for its finalizer.
		waits bool
	}{
		{"before the second run", nil, false},
		{"before the second run, and the root waits", nil, true},
		{"between reading the root and the graph", readsRoot, false},
		{"between reading the root and the graph, and the root waits", readsRoot, true},
		{"while the plan is made", asksForAccess, false},
		{"while the plan is made, and the root waits", asksForAccess, true},
	} {
		m.verified()
		remove := func() {
			if !tt.waits {
				m.kubectl("patch", "stack", "top", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
			}
			m.kubectl("delete", "stack", "top", "--cascade=orphan", "--wait="+strconv.FormatBool(!tt.waits))
		}
		if tt.after == nil {
			remove()
		}
		var once sync.Once
		from := listenIn(t, m.cluster, func(in *http.Request, _ string) {
			if tt.after != nil && tt.after(in) {
				once.Do(remove)
			}
		})
		r := runCommand(m.cluster.command("move", "--kubeconfig", from, "-n", m.namespace, "stack/top", "--to", m.there.cluster.kubeconfig(), "--yes", "--drop-finalizers"), "")
		if r.code != 0 {
			t.Errorf("%s: exit status %d\n%s%s", tt.name, r.code, r.out, r.err)
		} else {
			m.checkStack()
			m.prints("configmap/kube-root-ca.crt\n", "get", "stacks,configmaps,secrets", "-o", "name")
		}
		for _, s := range []*session{m.session, m.there} {
			if m.has(s, "stack/top") {
				s.kubectl("patch", "stack", "top", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
			}
			s.kubectl("delete", "stacks,secrets,pods", "--all")
			s.kubectl("delete", "configmap", "settings", "--ignore-not-found")
			s.kubectl("delete", "configmaps", "-l", "ownership.kindred.dev/move")
		}
	}
}

// TestMoveOfWhatGoesMeanwhile: the last copy of an object is never removed, whatever is deleted
// during the move.
func TestMoveOfWhatGoesMeanwhile(t *testing.T) {
	m := newMigration(t)
	m.stack()
	var once sync.Once
	to := listenIn(t, m.there.cluster, func(in *http.Request, body string) {
		if in.Method == http.MethodPost && strings.Contains(body, `"kind":"Secret"`) && in.URL.Query().Get("dryRun") == "" {
			once.Do(func() { m.kubectl("delete", "configmap", "settings", "--cascade=orphan") })
		}
	})
	args := []string{"stack/top", "--to", to, "--yes", "--drop-finalizers"}
	m.refusesMove([]string{"configmap/settings in namespace " + m.namespace + " was deleted at the source while it was being copied", "which has removed nothing yet", "only copy"}, args...)
	// The same command does not forget the copy, which is on hold and marked.
	m.refusesMove([]string{"configmap/settings in namespace " + m.namespace, "only copy"}, args...)
	if have := m.copied(m.there); !slices.Contains(have, "configmap/settings") {
		t.Errorf("the target has %v", have)
	}
	// Dependents of a removed copy are collected as usual.
	m.there.kubectl("delete", "configmap", "settings", "--cascade=orphan")
	m.refusesMove([]string{"secret/key in namespace " + m.namespace, "no longer owned by an object that moves"}, args...)
	m.there.kubectl("delete", "secret", "key")
	m.moves(args...)
	m.there.prints("stack.move.example.com/middle\nstack.move.example.com/top\n", "get", "stacks", "-o", "name")
	m.unmarked()
}
