// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"
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
	*session          // the user of the source
	there    *session // the user of the target
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

// back returns the migration in the other direction.
func (m *migration) back() *migration { return &migration{m.there, m.session} }

// move runs the verb at the source.
func (m *migration) move(args ...string) result {
	args = append([]string{"move", "--data-dir", m.cluster.dir}, args...)
	if !slices.Contains(args, "--from-directory") {
		args = append(args, "-n", m.namespace)
	}
	return runCommand(m.cluster.command(args...), "")
}

// moves runs a move that must succeed.
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
		// The plan has wrapped lines.
		if said := strings.Join(strings.Fields(r.out+r.err), " "); !strings.Contains(said, part) {
			m.Errorf("move %s says\n%s%s\nwithout %q", strings.Join(args, " "), r.out, r.err, part)
		}
	}
}

// teardown is a custom finalizer. It has no slash, like most of Cluster API's.
const teardown = "stack.move.example.com"

// stack creates a tree of custom resources, three levels deep, with UIDs in several fields, and
// with a status that has not observed the last change.
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

// checkStack checks that the target has the whole tree, with its own UIDs.
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

// unmarked checks that the target has no marks of the move left.
func (m *migration) unmarked() {
	m.Helper()
	all := m.there.kubectl("get", "stacks,deployments,replicasets,configmaps,secrets,pods,services", "-o", "yaml")
	if i := strings.Index(all, "ownership.kindred.dev"); i >= 0 {
		m.Errorf("a mark is left at the target:\n%s", all[max(0, i-500):min(len(all), i+300)])
	}
	m.there.prints("", "get", "namespace", m.namespace, "-o", "jsonpath={.metadata.annotations}")
	m.there.prints("", "get", "configmaps", "--all-namespaces", "-l", "ownership.kindred.dev/move", "-o", "name")
}

// copied returns the names of the objects to copy that exist in a cluster.
func (m *migration) copied(s *session) []string {
	m.Helper()
	found := strings.Fields(s.kubectl("get", "stacks,deployments,replicasets,configmaps,secrets", "-o", "name"))
	return slices.DeleteFunc(found, func(name string) bool {
		return name == "configmap/kube-root-ca.crt" || strings.HasPrefix(name, "configmap/kindred-move-")
	})
}

// podsGo waits until the source has neither pods nor owners that would create some.
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
