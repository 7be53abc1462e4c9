// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ownedBy creates a ConfigMap with owners; the first is its controller.
func (s *session) ownedBy(name string, owners ...string) {
	s.Helper()
	var refs []string
	for i, owner := range owners {
		refs = append(refs, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, name: %s, uid: %s, controller: %t}", owner, s.jsonpath("{.metadata.uid}", "configmap", owner), i == 0))
	}
	s.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", ownerReferences: [" + strings.Join(refs, ", ") + "]}}")
}

// ownersAre waits until a ConfigMap has exactly these owners and each of them exists.
func (s *session) ownersAre(name string, want ...string) {
	s.Helper()
	s.eventually(name+" is owned", func() error {
		var object unstructured.Unstructured
		if err := json.Unmarshal([]byte(s.kubectl("get", "configmap", name, "-o", "json")), &object.Object); err != nil {
			return err
		}
		var owners []string
		for _, ref := range object.GetOwnerReferences() {
			if uid := s.try("get", "configmap", ref.Name, "-o", "jsonpath={.metadata.uid}"); uid.out != string(ref.UID) {
				return fmt.Errorf("the UID of %s is %q, and %s names %q", ref.Name, uid.out, name, ref.UID)
			}
			owner := ref.Name
			if ref.Controller != nil && *ref.Controller {
				owner += "!"
			}
			owners = append(owners, owner)
		}
		slices.Sort(owners)
		if diff := cmp.Diff(want, owners); diff != "" {
			return fmt.Errorf("%s", diff)
		}
		if _, held := object.GetAnnotations()["ownership.kindred.dev/hold"]; held {
			return fmt.Errorf("it is on hold")
		}
		return nil
	})
}

// isGone waits until a ConfigMap is deleted.
func (s *session) isGone(name string) {
	s.Helper()
	s.eventually(name+" is gone", func() error {
		if out := s.kubectl("get", "configmap", name, "--ignore-not-found", "-o", "name"); out != "" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// TestUndeleteSeveralOwners: an object with several owners is restored with the first of them, and
// gets each further one as an owner. A dry run shows the same.
func TestUndeleteSeveralOwners(t *testing.T) {
	s := withoutNode(t)
	s.kubectl("create", "configmap", "one")
	s.kubectl("create", "configmap", "two")
	s.ownedBy("shared", "one", "two")
	s.kubectl("delete", "configmap", "one")
	s.ownersAre("shared", "two")
	s.kubectl("delete", "configmap", "two")
	s.isGone("shared")
	for _, form := range []string{"would be restored", "restored"} {
		args := []string{"undelete", "configmap/one", "configmap/two"}
		if form == "would be restored" {
			args = append(args, "--dry-run")
		}
		r := s.kindred(args...)
		if r.code != 0 {
			t.Fatalf("%q: exit %d\n%s%s", args, r.code, r.out, r.err)
		}
		s.contains(r.out, "ConfigMap/shared  restored  its owner ConfigMap two does not exist", form+": 2\n",
			"ConfigMap/shared  adopted", form+": 1, adopted: 1\n")
	}
	s.ownersAre("shared", "one!", "two")

	// Successors can be deleted again, and restored in the other order.
	s.kubectl("delete", "configmap", "one", "two")
	s.isGone("shared")
	for _, owner := range []string{"two", "one"} {
		if r := s.kindred("undelete", "configmap/"+owner); r.code != 0 {
			t.Fatalf("undelete %s: exit %d\n%s%s", owner, r.code, r.out, r.err)
		}
	}
	s.ownersAre("shared", "one!", "two")
}

// TestUndeleteChildAndParent: references are restored in whatever order the objects are undeleted.
func TestUndeleteChildAndParent(t *testing.T) {
	s := withoutNode(t)
	s.kubectl("create", "configmap", "parent")
	s.ownedBy("child", "parent")
	for _, order := range [][]string{{"parent", "child"}, {"child", "parent"}} {
		s.kubectl("delete", "configmap", "child")
		s.kubectl("delete", "configmap", "parent")
		for _, name := range order {
			r := s.kindred("undelete", "configmap/"+name)
			if r.code != 0 {
				t.Fatalf("undelete %s: exit %d\n%s%s", name, r.code, r.out, r.err)
			}
			if name == "child" && order[0] == "child" {
				s.contains(r.out, "its owner ConfigMap parent does not exist")
			}
		}
		s.ownersAre("child", "parent!")
	}
	// A dependent that was deleted with its owner is undeleted first; the owner adopts it.
	s.kubectl("delete", "configmap", "parent")
	s.isGone("child")
	if r := s.kindred("undelete", "configmap/child"); r.code != 0 || !strings.Contains(r.out, "ConfigMap/child  restored  its owner ConfigMap parent does not exist") {
		t.Fatalf("exit %d\n%s%s", r.code, r.out, r.err)
	}
	s.undelete(`
OBJECT              OUTCOME   NOTES
ConfigMap/parent    restored
└─ ConfigMap/child  adopted

restored: 1, adopted: 1`, "configmap/parent")
	s.ownersAre("child", "parent!")
}

// TestUndeleteTwice: two concurrent undeletions of the same object both succeed. Nothing is
// duplicated or counts as the other's.
func TestUndeleteTwice(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node"))
	const dependents = 300
	s.kubectl("create", "configmap", "root")
	uid := s.jsonpath("{.metadata.uid}", "configmap", "root")
	var manifest strings.Builder
	for i := range dependents {
		fmt.Fprintf(&manifest, "{apiVersion: v1, kind: ConfigMap, metadata: {name: child-%04d, labels: {child: \"\"}, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: root, uid: %s}]}}\n---\n", i, uid)
	}
	s.input(manifest.String(), "create", "-f", "-")
	for round := range 3 {
		s.kubectl("delete", "configmap", "root")
		s.eventually("all are gone", func() error {
			if out := s.kubectl("get", "configmaps", "-l", "child", "-o", "name"); out != "" {
				return fmt.Errorf("some are left")
			}
			return nil
		})
		results := make([]result, 2)
		var wait sync.WaitGroup
		for i := range results {
			wait.Go(func() { results[i] = s.kindred("undelete", "configmap/root") })
		}
		wait.Wait()
		for _, r := range results {
			all := strings.Contains(r.out, fmt.Sprintf("\nrestored: %d\n", dependents+1))
			already := strings.Contains(r.out, "unchanged  it was already restored")
			if r.code != 0 || !all && !already {
				t.Errorf("round %d: exit %d, %s\n%s", round, r.code, r.err, r.out)
			}
		}
		now := s.jsonpath("{.metadata.uid}", "configmap", "root")
		s.prints(strings.Repeat(now+" \n", dependents), "get", "configmaps", "-l", "child", "-o",
			`jsonpath={range .items[*]}{.metadata.ownerReferences[*].uid} {.metadata.annotations}{"\n"}{end}`)
	}
}
