// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

func onHold(value string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{ownership.HoldAnnotation: value})
	}
}

// interrupted returns the hold of an unfinished undeletion.
func interrupted(name string) string {
	return `{"root":"r","from":"f","for":"ConfigMap/` + name + `","of":"Widget.example.com/root"}`
}

// TestHoldsAreShown checks that trees, explanations and lint show holds, whether an undeletion or a
// person set them.
func TestHoldsAreShown(t *testing.T) {
	w := newWorld(t)
	w.add(configMaps, "a", "by-hand", onHold("wait"))
	w.add(configMaps, "a", "back", onHold(interrupted("back")))
	w.add(configMaps, "b", "elsewhere", onHold(""))
	w.add(configMaps, "a", "free", nil)
	w.add(configMaps, "a", "going", func(o *unstructured.Unstructured) {
		onHold("")(o)
		o.SetFinalizers([]string{"example.com/wait"})
		o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1000, 0)})
	})
	for name, want := range map[string]string{
		"by-hand": `release it with "kubectl annotate -n a configmap/by-hand ownership.kindred.dev/hold-"`,
		"back":    `continue with "kindred undelete -n a widget.example.com/root"`,
		"free":    "",
		"going":   "",
	} {
		ref := ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: name}
		tree, err := w.tree(ownership.OwnershipTreeSpec{Object: ref})
		if err != nil {
			t.Fatal(err)
		}
		why, err := w.explain(&memory{}, ref)
		if err != nil {
			t.Fatal(err)
		}
		for verb, hold := range map[string]*ownership.Hold{"tree": tree.Objects[0].Hold, "why": why.Hold} {
			if (hold == nil) != (want == "") || hold != nil && hold.Remedy != want {
				t.Errorf("%s %s: %+v, want %q", verb, name, hold, want)
			}
		}
	}
	all := []string{"a/back: on-hold", "a/by-hand: on-hold", "b/elsewhere: on-hold"}
	only := []ownership.LintRule{ownership.RuleOnHold}
	for name, tt := range map[string]struct {
		spec ownership.OwnershipLintSpec
		want []string
	}{
		"everything":             {ownership.OwnershipLintSpec{}, all},
		"by this rule":           {ownership.OwnershipLintSpec{Rules: only}, all},
		"a namespace":            {ownership.OwnershipLintSpec{Namespace: "a", Rules: only}, all[:2]},
		"an object":              {ownership.OwnershipLintSpec{Object: &ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "back"}, Rules: only}, all[:1]},
		"by another rule":        {ownership.OwnershipLintSpec{Rules: []ownership.LintRule{ownership.RuleDangling}}, nil},
		"by this and another":    {ownership.OwnershipLintSpec{Rules: append(only, ownership.RuleDangling)}, all},
		"an object without hold": {ownership.OwnershipLintSpec{Object: &ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "free"}}, nil},
	} {
		s, err := w.lint(tt.spec)
		if err != nil || !slices.Equal(found(s), tt.want) {
			t.Errorf("%s: %v, %v", name, found(s), err)
		}
		for _, f := range s.Findings {
			if want := map[bool]ownership.LintSeverity{true: ownership.SeverityWarning, false: ownership.SeverityInfo}[f.Object.Name == "back"]; f.Severity != want || f.Message == "" || f.Fix != nil {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
	w.allowed = func(a authorizer.Attributes) bool { return a.GetNamespace() == "b" }
	if s, err := w.lint(ownership.OwnershipLintSpec{Rules: only}); err != nil || !slices.Equal(found(s), all[2:]) {
		t.Errorf("without permission: %v, %v", found(s), err)
	}
}

// TestManyHolds checks that many objects on hold are read by a list.
func TestManyHolds(t *testing.T) {
	w := newWorld(t)
	for i := range 3 * few {
		name := fmt.Sprintf("back-%d", i)
		w.add(configMaps, "a", name, onHold(interrupted(name)))
	}
	s, err := w.lint(ownership.OwnershipLintSpec{Rules: []ownership.LintRule{ownership.RuleOnHold}})
	if err != nil || len(s.Findings) != 3*few || !strings.Contains(s.Findings[0].Message, "widget.example.com/root") {
		t.Errorf("%v, %d findings", err, len(s.Findings))
	}
}
