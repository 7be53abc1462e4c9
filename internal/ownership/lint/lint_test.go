// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// The kinds of the tests.
var served = map[schema.GroupKind]Kind{
	{Group: "c", Kind: "Machine"}: {Namespaced: true, Collected: true, Complete: true, Versions: []string{"c/v2", "c/v1"}},
	{Group: "c", Kind: "Cluster"}: {Collected: true, Complete: true, Versions: []string{"c/v1"}},
	{Group: "c", Kind: "Late"}:    {Namespaced: true, Collected: true, Versions: []string{"c/v1"}},
	{Group: "c", Kind: "Mute"}:    {Namespaced: true, Collected: true, Complete: true},
	{Group: "m", Kind: "Metric"}:  {Namespaced: true, Versions: []string{"m/v1"}},
}

// object returns an object whose UID is its title: "Machine ns/name" or "Cluster name".
func object(title string, owners ...graph.Owner) *Object {
	kind, name, _ := strings.Cut(title, " ")
	namespace, short, found := strings.Cut(name, "/")
	if !found {
		namespace, short = "", name
	}
	return &Object{Object: graph.Object{
		Resource:  graph.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "c", Version: "v2", Resource: strings.ToLower(kind) + "s"}, Kind: kind},
		Namespace: namespace, Name: short, UID: types.UID(title), ResourceVersion: "1", Owners: owners,
	}}
}

func heldBy(o *Object, undeletion string) *Object {
	o.Hold = &ownership.Hold{Undeletion: undeletion, Message: "held", Remedy: "release it"}
	return o
}

func labelled(o *Object, labels ...string) *Object {
	o.Labels = map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		o.Labels[labels[i]] = labels[i+1]
	}
	return o
}

// refer returns a followed reference in the preferred version, with changes applied.
func refer(title string, changes ...func(*graph.Owner)) graph.Owner {
	kind, name, _ := strings.Cut(title, " ")
	if _, short, found := strings.Cut(name, "/"); found {
		name = short
	}
	version := "c/v1"
	switch kind {
	case "Machine":
		version = "c/v2"
	case "Metric":
		version = "m/v1"
	}
	ref := graph.Owner{
		OwnerReference: metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(title)},
		Standing:       "solid", Followed: true,
	}
	for _, change := range changes {
		change(&ref)
	}
	return ref
}

func version(v string) func(*graph.Owner) { return func(r *graph.Owner) { r.APIVersion = v } }
func uid(id types.UID) func(*graph.Owner) { return func(r *graph.Owner) { r.UID = id } }
func controls(r *graph.Owner)             { r.Controller = new(true) }
func blocks(r *graph.Owner)               { r.BlockOwnerDeletion = new(true) }
func gone(r *graph.Owner)                 { r.Standing = "dangling" }
func unfollowed(standing string) func(*graph.Owner) {
	return func(r *graph.Owner) { r.Standing, r.Followed = standing, false }
}

const instance, managedBy = "app.kubernetes.io/instance", "app.kubernetes.io/managed-by"

// TestRules checks what each rule finds and what it ignores. Findings are "object: rule", with a
// plus if there is a fix.
func TestRules(t *testing.T) {
	machines := func(n int, owned int) []*Object {
		var all []*Object
		for i := range n {
			o := labelled(object(fmt.Sprintf("Machine one/%d", i)), "cluster.x-k8s.io/cluster-name", "c")
			if i < owned {
				o.Owners = []graph.Owner{refer("Cluster c")}
			}
			all = append(all, o)
		}
		return append(all, object("Cluster c"))
	}
	lost := func(o *Object, refs ...graph.Owner) *Object {
		for _, ref := range refs {
			o.Lost = append(o.Lost, ref.OwnerReference)
		}
		return o
	}
	deleting := func(o *Object) *Object { o.Deleting = true; return o }
	for name, tt := range map[string]struct {
		objects []*Object
		want    []string
	}{
		"nothing": {objects: []*Object{object("Machine one/a", refer("Cluster c")), object("Cluster c")}},

		"no-owner":                        {machines(4, 3), []string{"3: no-owner"}},
		"no-owner: two are enough":        {machines(3, 2), []string{"2: no-owner"}},
		"no-owner: one is not enough":     {objects: machines(2, 1)},
		"no-owner: half are not enough":   {objects: machines(6, 3)},
		"no-owner: none has an owner":     {objects: machines(5, 0)},
		"no-owner: another instance":      {objects: append(machines(3, 3), labelled(object("Machine one/x"), "cluster.x-k8s.io/cluster-name", "d"))},
		"no-owner: another namespace":     {objects: append(machines(3, 3), labelled(object("Machine two/x"), "cluster.x-k8s.io/cluster-name", "c"))},
		"no-owner: another kind":          {objects: append(machines(3, 3), labelled(object("Late one/x"), "cluster.x-k8s.io/cluster-name", "c"))},
		"no-owner: no such label":         {objects: append(machines(3, 3), labelled(object("Machine one/x"), "app", "c"))},
		"no-owner: it is being deleted":   {objects: append(machines(3, 3), deleting(labelled(object("Machine one/x"), "cluster.x-k8s.io/cluster-name", "c")))},
		"no-owner: the owners are absent": {objects: []*Object{labelled(object("Machine one/a", refer("Late one/l", unfollowed("pending"))), instance, "i"), labelled(object("Machine one/b"), instance, "i")}},
		"no-owner: made by another tool":  {objects: []*Object{labelled(object("Machine one/a", refer("Cluster c")), instance, "i", managedBy, "op"), labelled(object("Machine one/b", refer("Cluster c")), instance, "i", managedBy, "op"), labelled(object("Machine one/x"), instance, "i", managedBy, "Helm")}},

		"lost-reference":                          {[]*Object{lost(object("Machine one/a"), refer("Cluster c")), object("Cluster c")}, []string{"a: lost-reference+"}},
		"lost-reference: another owner remains":   {[]*Object{lost(object("Machine one/a", refer("Cluster d")), refer("Cluster c", controls)), object("Cluster c"), object("Cluster d")}, []string{"a: lost-reference+"}},
		"lost-reference: another controller":      {[]*Object{lost(object("Machine one/a", refer("Cluster d", controls)), refer("Cluster c", controls)), object("Cluster c"), object("Cluster d")}, []string{"a: lost-reference"}},
		"lost-reference: the owner is hidden":     {objects: []*Object{lost(object("Machine one/a"), refer("Cluster c"))}},
		"lost-reference: rather than no-owner":    {append(machines(3, 3), lost(labelled(object("Machine one/x"), "cluster.x-k8s.io/cluster-name", "c"), refer("Cluster c"))), []string{"x: lost-reference+"}},
		"lost-reference: released":                {objects: []*Object{lost(object("Pod one/a"), refer("ReplicaSet one/r", version("apps/v1"), controls)), object("ReplicaSet one/r")}},
		"lost-reference: not a controller":        {[]*Object{lost(object("Pod one/a"), refer("ReplicaSet one/r", version("apps/v1"))), object("ReplicaSet one/r")}, []string{"a: lost-reference+"}},
		"stale-version":                           {[]*Object{object("Machine one/a", refer("Machine one/b", version("c/v1"))), object("Machine one/b")}, []string{"a: stale-version+"}},
		"stale-version: of a hidden owner":        {[]*Object{object("Machine one/a", refer("Machine one/b", version("c/v1"), unfollowed(Hidden)))}, []string{"a: stale-version+"}},
		"stale-version: versions unknown":         {objects: []*Object{object("Machine one/a", refer("Mute one/b", version("c/v0"))), object("Mute one/b")}},
		"unserved-version":                        {[]*Object{object("Machine one/a", refer("Machine one/b", version("c/v0"))), object("Machine one/b")}, []string{"a: unserved-version+"}},
		"unserved-kind":                           {[]*Object{object("Machine one/a", refer("Gone one/b", unfollowed("unresolved")))}, []string{"a: unserved-kind"}},
		"too-many-owners":                         {[]*Object{object("Machine one/a", refer("Cluster c"), refer("Cluster d"))}, []string{"a: too-many-owners"}},
		"too-many-owners: the same twice":         {objects: []*Object{object("Machine one/a", refer("Cluster c"), refer("Cluster c"))}},
		"two-controllers":                         {[]*Object{object("Machine one/a", refer("Cluster c", controls), refer("Cluster d", controls))}, []string{"a: too-many-owners", "a: two-controllers"}},
		"dangling: the collector deletes":         {[]*Object{object("Machine one/a", refer("Machine one/b", gone))}, []string{"a: dangling"}},
		"dangling: the collector removes it":      {[]*Object{object("Machine one/a", refer("Machine one/b", gone), refer("Cluster c"))}, []string{"a: dangling+"}},
		"dangling: the collector does nothing":    {[]*Object{object("Machine one/a", refer("Machine one/b", gone), refer("Gone one/x", unfollowed("unresolved")))}, []string{"a: unserved-kind", "a: dangling+"}},
		"dangling: the object is being deleted":   {objects: []*Object{deleting(object("Machine one/a", refer("Machine one/b", gone)))}},
		"wrong-uid: the name of another object":   {[]*Object{object("Machine one/a", refer("Machine one/b", uid("x"), unfollowed("dangling"))), object("Machine one/b")}, []string{"a: wrong-uid"}},
		"wrong-uid: the UID of another object":    {[]*Object{object("Machine one/a", refer("Machine one/b", uid("Machine one/c"), unfollowed("dangling"))), object("Machine one/c")}, []string{"a: wrong-uid"}},
		"wrong-uid: not looked up":                {[]*Object{object("Machine one/a", refer("Machine one/b", uid("x"), unfollowed("pending"))), object("Machine one/b")}, []string{"a: wrong-uid"}},
		"never-existed":                           {[]*Object{object("Machine one/a", refer("Machine one/b", unfollowed("dangling")))}, []string{"a: never-existed"}},
		"never-existed: not looked up":            {[]*Object{object("Machine one/a", refer("Machine one/b", unfollowed("pending")), refer("Cluster c"))}, []string{"a: never-existed+"}},
		"never-existed: not listed yet":           {objects: []*Object{object("Machine one/a", refer("Late one/b", unfollowed("pending")))}},
		"never-existed: hidden":                   {objects: []*Object{object("Machine one/a", refer("Machine one/b", unfollowed(Hidden)))}},
		"cross-namespace":                         {[]*Object{object("Machine one/a", refer("Machine two/b", unfollowed("dangling"))), object("Machine two/b")}, []string{"a: cross-namespace"}},
		"cross-namespace: the owner is hidden":    {[]*Object{object("Machine one/a", refer("Machine two/b", unfollowed("dangling")))}, []string{"a: never-existed"}},
		"cluster-to-namespaced":                   {[]*Object{object("Cluster c", refer("Machine one/b", unfollowed("unresolved"))), object("Machine one/b")}, []string{"c: cluster-to-namespaced"}},
		"cycle of one":                            {[]*Object{object("Machine one/a", refer("Machine one/a"))}, []string{"a: cycle"}},
		"cycle of three, reported once":           {[]*Object{object("Machine one/b", refer("Machine one/a")), object("Machine one/a", refer("Machine one/c")), object("Machine one/c", refer("Machine one/b"))}, []string{"a: cycle"}},
		"cycle: a dependent is not a part":        {[]*Object{object("Machine one/0", refer("Machine one/a")), object("Machine one/a", refer("Machine one/b")), object("Machine one/b", refer("Machine one/a"))}, []string{"a: cycle"}},
		"cycle: not a diamond":                    {[]*Object{object("Machine one/a", refer("Machine one/b"), refer("Machine one/c")), object("Machine one/b", refer("Cluster c")), object("Machine one/c", refer("Cluster c")), object("Cluster c")}, []string{"a: too-many-owners"}},
		"on-hold":                                 {[]*Object{heldBy(object("Machine one/a"), "cluster.c/x")}, []string{"a: on-hold"}},
		"on-hold, by hand":                        {[]*Object{heldBy(object("Machine one/a"), "")}, []string{"a: on-hold"}},
		"block-owner-deletion":                    {objects: []*Object{object("Machine one/a", refer("Cluster c", blocks))}},
		"block-owner-deletion: not watched":       {[]*Object{object("Machine one/a", refer("Metric one/m", blocks, unfollowed("solid")))}, []string{"a: block-owner-deletion"}},
		"block-owner-deletion: not served":        {[]*Object{object("Machine one/a", refer("Gone one/b", blocks, unfollowed("unresolved")))}, []string{"a: unserved-kind", "a: block-owner-deletion"}},
		"block-owner-deletion: another namespace": {[]*Object{object("Machine one/a", refer("Machine two/b", blocks, unfollowed("dangling"))), object("Machine two/b")}, []string{"a: cross-namespace", "a: block-owner-deletion"}},
		"block-owner-deletion: another UID":       {[]*Object{object("Machine one/a", refer("Machine one/b", blocks, uid("x"), unfollowed("dangling"))), object("Machine one/b")}, []string{"a: wrong-uid", "a: block-owner-deletion"}},
		"block-owner-deletion: of cluster-scoped": {[]*Object{object("Cluster c", refer("Machine one/b", blocks, unfollowed("unresolved")))}, []string{"c: cluster-to-namespaced", "c: block-owner-deletion"}},
		"block-owner-deletion: the owner is gone": {[]*Object{object("Machine one/a", refer("Machine one/b", blocks, gone))}, []string{"a: dangling"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range Check(NewSnapshot(tt.objects, served)) {
				line := fmt.Sprintf("%s: %s", f.Object.Name, f.Rule)
				if f.Fix != nil {
					line += "+"
				}
				got = append(got, line)
				if f.Message == "" || f.Consequence == "" || f.Remedy == "" || f.Severity == "" {
					t.Errorf("the finding lacks something: %+v", f)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFixes applies several fixes together and checks the resulting references.
func TestFixes(t *testing.T) {
	o := object("Machine one/a",
		refer("Machine one/b", version("c/v0"), controls, blocks), // another version
		refer("Machine one/x", gone),                              // removed
		refer("Cluster c"))                                        // stays
	o.Lost = []metav1.OwnerReference{refer("Machine one/d", version("c/v1")).OwnerReference}
	refs := []metav1.OwnerReference{}
	for _, owner := range o.Owners {
		refs = append(refs, owner.OwnerReference)
	}
	var fixed []string
	for _, f := range Check(NewSnapshot([]*Object{o, object("Machine one/b"), object("Machine one/d"), object("Cluster c")}, served)) {
		if f.Fix != nil {
			fixed = append(fixed, f.Fix.Description)
			refs = f.Fix.Apply(refs)
		}
	}
	want := []metav1.OwnerReference{
		refer("Machine one/b", controls, blocks).OwnerReference,
		refer("Cluster c").OwnerReference,
		refer("Machine one/d").OwnerReference,
	}
	if diff := cmp.Diff(want, refs); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"restore the reference to Machine d",
		"name Machine b in version c/v2",
		"remove the reference to Machine x",
	}, fixed); diff != "" {
		t.Errorf("descriptions (-want +got):\n%s", diff)
	}
}

// TestMessages checks messages and consequences as users read them.
func TestMessages(t *testing.T) {
	many := make([]graph.Owner, 7)
	for i := range many {
		many[i] = refer(fmt.Sprint("Cluster c", i))
	}
	for want, objects := range map[string][]*Object{
		"Machine b was deleted; The garbage collector deletes the object.": {
			object("Machine one/a", refer("Machine one/b", gone))},
		"Machine b was deleted; The garbage collector removes the reference; the object stays with Cluster c.": {
			object("Machine one/a", refer("Machine one/b", gone), refer("Cluster c"))},
		"Machine b has the UID Machine one/b, but the reference has x; The garbage collector deletes the object.": {
			object("Machine one/a", refer("Machine one/b", uid("x"), unfollowed("dangling"))), object("Machine one/b")},
		"Machine b does not exist, and the UID Cluster c belongs to Cluster c; The garbage collector deletes the object.": {
			object("Machine one/a", refer("Machine one/b", uid("Cluster c"), unfollowed("dangling"))), object("Cluster c")},
		`Machine b is in namespace "two"; The garbage collector deletes the object.`: {
			object("Machine one/a", refer("Machine two/b", unfollowed("dangling"))), object("Machine two/b")},
		"Metric m is of a kind that the garbage collector does not watch; A foreground deletion of the owner, if its kind supports it, never completes.": {
			object("Machine one/a", refer("Metric one/m", blocks, unfollowed("solid")))},
		"blockOwnerDeletion has no effect: Machine b is in another namespace; A foreground deletion of the owner does not wait for the object.": {
			object("Machine one/a", refer("Machine two/b", blocks, unfollowed("dangling"))), object("Machine two/b")},
		"7 owners: Cluster c0, Cluster c1, Cluster c2, Cluster c3, Cluster c4, 2 more; It is deleted only when all of them are deleted.": {
			object("Machine one/a", many...)},
	} {
		var got []string
		for _, f := range Check(NewSnapshot(objects, served)) {
			got = append(got, f.Message+"; "+f.Consequence)
		}
		if !slices.Contains(got, want) {
			t.Errorf("got  %q\nwant %s", got, want)
		}
	}
}

// TestChosenRules checks by one rule only.
func TestChosenRules(t *testing.T) {
	o := object("Machine one/a", refer("Cluster c", controls), refer("Cluster d", controls))
	found := Check(NewSnapshot([]*Object{o}, served), ownership.RuleTwoControllers)
	if len(found) != 1 || found[0].Rule != ownership.RuleTwoControllers {
		t.Errorf("got %+v", found)
	}
}

// TestEveryRuleIsDescribed checks that every rule has a description and a row in the
// documentation, and the reverse.
func TestEveryRuleIsDescribed(t *testing.T) {
	text, err := os.ReadFile("../../../docs/ownership.md")
	if err != nil {
		t.Fatal(err)
	}
	described := ownership.LintRules()
	if len(described) != len(checks) {
		t.Errorf("%d descriptions for %d rules", len(described), len(checks))
	}
	for _, d := range described {
		if checks[d.Rule] == nil {
			t.Errorf("%s has a description, but no check", d.Rule)
		}
		fix := d.Fix
		if fix == "" {
			fix = "–"
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s |\n", d.Rule, d.Severity, d.Summary, d.Consequence, d.Remedy, fix)
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/ownership.md lacks the row\n%s", row)
		}
	}
}
