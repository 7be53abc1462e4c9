// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// definition returns a CRD of a tree like Cluster API's. It serves two versions, of which v1beta2
// is preferred, and no longer serves a third.
func definition(kind string) string {
	plural := strings.ToLower(kind) + "s"
	version := func(name string, served, storage bool) string {
		return fmt.Sprintf(`
  - name: %s
    served: %v
    storage: %v
    schema: {openAPIV3Schema: {type: object}}`, name, served, storage)
	}
	return fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %s.lint.example.com
spec:
  group: lint.example.com
  scope: Namespaced
  names: {kind: %s, plural: %s, singular: %s}
  versions:%s
`, plural, kind, plural, strings.ToLower(kind), version("v1alpha4", false, false)+version("v1beta1", true, false)+version("v1beta2", true, true))
}

// fleet is a cluster of machines with a user who maintains it.
type fleet struct{ *session }

// create creates an object of the fleet, with an owner ("MachineSet set v1beta2") or without one.
func (f fleet) create(kind, name, owner string) {
	f.Helper()
	manifest := fmt.Sprintf(`
apiVersion: lint.example.com/v1beta2
kind: %s
metadata:
  name: %s
  labels: {cluster.x-k8s.io/cluster-name: one}
`, kind, name)
	if owner != "" {
		manifest += "  ownerReferences: [" + f.reference(owner) + "]\n"
	}
	f.apply(manifest)
}

func (f fleet) reference(owner string) string {
	f.Helper()
	part := strings.Fields(owner)
	return fmt.Sprintf(`{"apiVersion": "lint.example.com/%s", "kind": "%s", "name": "%s", "uid": "%s", "controller": true}`,
		part[2], part[0], part[1], f.jsonpath("{.metadata.uid}", resourceOf(part[0]), part[1]))
}

func resourceOf(kind string) string { return strings.ToLower(kind) + "s.lint.example.com" }

// lint runs "kindred lint" and returns the findings, "name: rule", and the exit status.
func (s *session) lint(args ...string) ([]string, int) {
	s.Helper()
	r := s.cluster.run(append([]string{"lint", "-n", s.namespace, "-o", "json"}, args...)...)
	var answer struct {
		Status struct {
			Findings []struct {
				Object struct{ Name string }
				Rule   string
			}
		}
	}
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil {
		s.Fatalf("lint %v: %v\n%s%s", args, err, r.out, r.err)
	}
	var found []string
	for _, finding := range answer.Status.Findings {
		found = append(found, finding.Object.Name+": "+finding.Rule)
	}
	return found, r.code
}

// finds waits until the collector has observed the writes and lint has the wanted findings.
func (s *session) finds(want []string, code int, args ...string) {
	s.Helper()
	s.eventually("lint finds", func() error {
		found, status := s.lint(args...)
		if diff := cmp.Diff(want, found); diff != "" || status != code {
			return fmt.Errorf("exit status %d, findings (-want +got):\n%s", status, diff)
		}
		return nil
	})
}

func (f fleet) versions() string {
	f.Helper()
	return f.jsonpath("{.items[*].metadata.resourceVersion}", resourceOf("Machine"))
}

// TestLintAndRepair removes references of a tree like Cluster API's as backup tools do, and
// restores those that can be restored safely.
func TestLintAndRepair(t *testing.T) {
	f := fleet{withoutNode(t)}
	kinds := []string{"Cluster", "MachineSet", "Machine"}
	for _, kind := range kinds {
		f.apply(definition(kind))
		f.kubectl("wait", "--for=condition=Established", "crd/"+resourceOf(kind))
	}
	t.Cleanup(func() {
		for _, kind := range kinds {
			f.try("delete", "crd", resourceOf(kind), "--wait=false")
		}
	})
	f.create("Cluster", "one", "")
	f.create("MachineSet", "set", "Cluster one v1beta2")
	for _, name := range []string{"m-0", "m-1", "m-2", "m-3", "m-4"} {
		f.create("Machine", name, "MachineSet set v1beta2")
	}
	f.finds(nil, 0)
	f.eventually("the collector knows the tree", func() error {
		if tree := f.cluster.run("tree", "-n", f.namespace, "clusters.lint.example.com/one"); strings.Count(tree.out, "Machine/") != 5 {
			return fmt.Errorf("%s%s", tree.out, tree.err)
		}
		return nil
	})

	// One machine loses its reference, one is restored without one, and two have old versions.
	f.kubectl("patch", resourceOf("Machine"), "m-0", "--type=json", "-p", `[{"op": "remove", "path": "/metadata/ownerReferences"}]`)
	f.create("Machine", "m-5", "")
	for name, version := range map[string]string{"m-1": "v1beta1", "m-2": "v1alpha4"} {
		f.kubectl("patch", resourceOf("Machine"), name, "--type=merge", "-p", `{"metadata":{"ownerReferences":[`+f.reference("MachineSet set "+version)+`]}}`)
	}
	found := []string{"m-0: lost-reference", "m-1: stale-version", "m-2: unserved-version", "m-5: no-owner"}
	f.finds(found, 1)
	f.finds(found, 1, "clusters.lint.example.com/one")
	f.finds(found[2:3], 1, "--rule", "unserved-version", "--fail-on", "error")
	f.finds(found[1:2], 0, "--rule", "stale-version", "--fail-on", "error")

	// Neither lint nor a dry run changes anything.
	before := f.versions()
	r := f.cluster.run("lint", "-n", f.namespace, "--fix", "--dry-run")
	f.contains(r.out, "Machine/m-0 in "+f.namespace, "would be repaired: restore the reference to MachineSet set",
		"skipped: no change is safe; decide by hand", "3 would be repaired, 1 skipped")
	if after := f.versions(); r.code != 1 || after != before {
		t.Errorf("exit status %d; a dry run has changed %s to %s", r.code, before, after)
	}
	for line := range strings.Lines(r.out) {
		if len([]rune(line)) > 101 {
			t.Errorf("longer than 100 columns: %s", line)
		}
	}

	// An object that has changed since the lint is not repaired. Every client can set this
	// precondition.
	uid := f.jsonpath("{.metadata.uid}", resourceOf("Machine"), "m-0")
	answer := f.input(`{"apiVersion": "ownership.kindred.dev/v1alpha1", "kind": "OwnershipRepair", "spec": {"namespace": "`+f.namespace+`",
		"rules": ["lost-reference"], "preconditions": [{"uid": "`+uid+`", "resourceVersion": "1"}]}}`,
		"create", "-f", "-", "-o", "jsonpath={.status.results[*].outcome}: {.status.results[*].reason}")
	if want := "Skipped: the object has changed since it was checked"; answer != want {
		t.Errorf("got %q, want %q", answer, want)
	}

	r = f.cluster.run("lint", "-n", f.namespace, "--fix", "--fail-on", "error")
	f.contains(r.out, "repaired: restore the reference to MachineSet set", "repaired: name MachineSet set in version lint.example.com/v1beta2", "3 repaired, 1 skipped")
	if r.code != 0 {
		t.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
	}
	for _, name := range []string{"m-0", "m-1", "m-2"} {
		f.prints("lint.example.com/v1beta2 MachineSet set true", "get", resourceOf("Machine"), name, "-o",
			"jsonpath={.metadata.ownerReferences[*].apiVersion} {.metadata.ownerReferences[*].kind} {.metadata.ownerReferences[*].name} {.metadata.ownerReferences[*].controller}")
	}
	f.contains(f.kubectl("get", resourceOf("Machine"), "m-0", "-o", "yaml", "--show-managed-fields"), "manager: ownership-repair")
	f.finds(found[3:], 1)

	sarif := f.cluster.run("lint", "-n", f.namespace, "-o", "sarif")
	f.contains(sarif.out, `"version": "2.1.0"`, `"ruleId": "no-owner"`, "lint.example.com/v1beta2/namespaces/"+f.namespace+"/Machine/m-5")

	// A user repairs the last machine, and the whole fleet is deleted with its cluster.
	f.kubectl("patch", resourceOf("Machine"), "m-5", "--type=merge", "-p", `{"metadata":{"ownerReferences":[`+f.reference("MachineSet set v1beta2")+`]}}`)
	f.finds(nil, 0)
	f.kubectl("delete", resourceOf("Cluster"), "one")
	f.eventually("the machines go", func() error {
		if left := f.kubectl("get", resourceOf("Machine"), "-o", "name"); left != "" {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})
}

// TestLintRefusals: errors in the arguments are one line.
func TestLintRefusals(t *testing.T) {
	s := withoutNode(t)
	for want, args := range map[string][]string{
		`the cluster has no resource type "nonsense"`: {"nonsense/x"},
		`configmaps "missing" not found`:              {"configmap/missing"},
		`"pods" names no object`:                      {"pods"},
	} {
		r := s.cluster.run(slices.Concat([]string{"lint", "-n", s.namespace}, args)...)
		if r.code != 2 || r.out != "" || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: exit status %d, %q, %q; want %q", args, r.code, r.out, r.err, want)
		}
	}
}
