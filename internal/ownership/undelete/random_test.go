// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

var (
	seed   = flag.Uint64("undelete.seed", 0, "the first seed of random graphs")
	graphs = flag.Int("undelete.graphs", 300, "how many random graphs are deleted and undeleted")
)

// TestRandomGraphs deletes objects of random graphs with random policies and undeletes them in
// random order. In the end every object must exist, with its former owners.
func TestRandomGraphs(t *testing.T) {
	for n := range uint64(*graphs) {
		n += *seed
		if t.Run(fmt.Sprint(n), func(t *testing.T) {
			a := newArchive(t, rand.New(rand.NewPCG(n, 0)))
			a.populate(3 + a.rand.IntN(6))
			for range 1 + a.rand.IntN(3) {
				a.deleteAndUndelete()
			}
		}); t.Failed() {
			t.Fatalf("go test ./internal/ownership/undelete -run TestRandomGraphs -undelete.seed %d -undelete.graphs 1", n)
		}
	}
}

// populate creates objects with random owners: several, of which one is the controller, in cycles,
// the object itself, and owners of a kind that is not served.
func (a *archive) populate(n int) {
	var names []objectKey
	for i := range n {
		kind := []string{"ConfigMap", "Secret", "Thing", "PersistentVolume"}[a.rand.IntN(4)]
		o := object(kind, fmt.Sprintf("o%d", i))
		a.create(o)
		names = append(names, nameOf(o))
	}
	for i, n := range names {
		o := a.now()[n].DeepCopy()
		var refs []metav1.OwnerReference
		for range a.rand.IntN(4) {
			at := a.rand.IntN(len(names))
			if at >= i && a.rand.IntN(4) > 0 {
				continue // Cycles are rare.
			}
			owner := a.now()[names[at]]
			if owner.GetNamespace() != "" && owner.GetNamespace() != o.GetNamespace() || slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return ref.UID == owner.GetUID() }) {
				continue
			}
			refs = append(refs, metav1.OwnerReference{
				APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(),
				Controller: new(len(refs) == 0 && a.rand.IntN(2) == 0),
			})
		}
		if a.rand.IntN(8) == 0 {
			refs = append(refs, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Ghost", Name: "ghost", UID: "66666666-0000-4000-8000-000000000000"})
		}
		if len(refs) == 0 {
			continue
		}
		o.SetOwnerReferences(refs)
		o.SetAnnotations(map[string]string{"first-owner": string(refs[0].UID)})
		a.write(n, o)
	}
	a.collect()
}

// picture describes the graph without UIDs: each object with its owners and the flags of the
// references.
func (a *archive) picture() string {
	names := map[types.UID]string{}
	for n, o := range a.now() {
		names[o.GetUID()] = n.name
	}
	var lines []string
	for n, o := range a.now() {
		var owners []string
		for _, ref := range o.GetOwnerReferences() {
			owner := ref.Kind + " " + ref.Name
			if ref.Kind != "Ghost" && names[ref.UID] != ref.Name {
				owner += " (absent: " + string(ref.UID) + ")"
			}
			if ref.Controller != nil && *ref.Controller {
				owner += "!"
			}
			owners = append(owners, owner)
		}
		slices.Sort(owners)
		first := o.GetAnnotations()["first-owner"]
		lines = append(lines, fmt.Sprintf("%s %s < %s; first %s", n.kind.Kind, n.name, strings.Join(owners, ", "), names[types.UID(first)]))
		for annotation := range o.GetAnnotations() {
			if annotation != "first-owner" {
				lines = append(lines, n.name+" is annotated "+annotation)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

var policies = []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}

// deleteSome deletes some objects. It returns the objects to undelete, in random order, and a log
// of the deletions.
func (a *archive) deleteSome() (asked []objectKey, story []string) {
	present := slices.SortedFunc(maps.Keys(a.now()), cmpNames)
	a.rand.Shuffle(len(present), func(i, j int) { present[i], present[j] = present[j], present[i] })
	for _, n := range present[:1+a.rand.IntN(len(present))] {
		if a.now()[n] == nil || a.now()[n].GetDeletionTimestamp() != nil || n.kind == namespaceKind {
			continue
		}
		policy := policies[a.rand.IntN(len(policies))]
		story = append(story, fmt.Sprintf("delete %s %s", n.name, policy))
		a.ask(n, policy)
		asked = append(asked, n)
		if a.rand.IntN(2) == 0 {
			story = append(story, "collect")
			a.collect()
		}
	}
	a.collect()
	for _, n := range present { // Undelete some collected objects separately.
		if a.now()[n] == nil && a.rand.IntN(6) == 0 {
			asked = append(asked, n)
		}
	}
	a.rand.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
	return asked, story
}

func (a *archive) deleteAndUndelete() {
	a.t.Helper()
	before := a.picture()
	asked, story := a.deleteSome()
	for _, n := range asked {
		story = append(story, "undelete "+n.name)
		if problem := a.undelete(n); problem != "" {
			a.t.Fatalf("%s\n%s\nbefore:\n%s\nnow:\n%s", problem, strings.Join(story, "\n"), before, a.picture())
		}
	}
	if after := a.picture(); before != after {
		a.t.Fatalf("%s\n%s", strings.Join(story, "\n"), cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")))
	}
	if len(a.lost) > 0 {
		a.t.Fatalf("%s\nthese references count as lost: %v", strings.Join(story, "\n"), a.lost)
	}
}

// undelete undeletes an object, perhaps after a dry run, and returns a description of any problem.
func (a *archive) undelete(n objectKey) string {
	request := Request{Resource: resourceOf(n.kind.Kind), Namespace: n.namespace, Name: n.name}
	var promised []string
	if a.rand.IntN(2) == 0 {
		before := a.revision()
		request.DryRun = true
		report, err := a.cluster.Run(a.t.Context(), request)
		if err != nil {
			return fmt.Sprintf("dry run: %v", err)
		}
		promised = strings.Split(strings.ReplaceAll(strings.Join(outcomesOf(report.Items), ","), "Pending", "Restored"), ",")
		if a.revision() != before {
			return "a dry run writes"
		}
		request.DryRun = false
	}
	report, err := a.cluster.Run(a.t.Context(), request)
	switch {
	case err != nil:
		return err.Error()
	case report.Phase != ownership.UndeletionComplete:
		return fmt.Sprintf("%s: %q", report.Phase, report.Problems)
	case promised != nil && !slices.Equal(promised, outcomesOf(report.Items)):
		return fmt.Sprintf("promised %v, done %v", promised, outcomesOf(report.Items))
	}
	there := len(a.now())
	if a.collect(); len(a.now()) < there {
		return "something that is back is collected"
	}
	return ""
}
