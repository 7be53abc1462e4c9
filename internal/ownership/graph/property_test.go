// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var (
	steps = flag.Int("graph.steps", 100_000, "steps that each property test takes")
	seed  = flag.Uint64("graph.seed", 1, "seed of the first episode of each property test")
)

// episodes runs f with new worlds until it has taken all steps. The name of a failing episode
// is its seed.
func episodes(t *testing.T, f func(w *world) (taken int)) {
	for taken, s := 0, *seed; taken < *steps; s++ {
		ok := t.Run(fmt.Sprint(s), func(t *testing.T) {
			taken += f(newWorld(t, rand.New(rand.NewPCG(s, 0))))
		})
		if !ok {
			return
		}
	}
}

// TestRulesHoldInAnyInterleaving lets users create, change and delete objects at random while
// watch events arrive late, responses get lost, watches expire, kinds are served or not and the
// process crashes. It checks each write against the store, and at the end that no rule is left
// to apply.
func TestRulesHoldInAnyInterleaving(t *testing.T) {
	episodes(t, func(w *world) int {
		const length = 400
		for range length {
			switch n := w.rng.IntN(100); {
			case n < 12:
				w.interfere()
			case n == 12 && w.rng.IntN(4) == 0:
				w.crash()
			case n == 13:
				w.relist()
			case n == 14 && w.rng.IntN(4) == 0:
				w.serveOrNot()
			default:
				w.step()
			}
		}
		w.settle()
		w.checkSettled()
		w.checkGraph()
		return length
	})
}

// interfere performs a random action of a user.
func (w *world) interfere() {
	items := w.sorted()
	pick := func() *item { return items[w.rng.IntN(len(items))] }
	n := w.rng.IntN(10)
	switch {
	case len(items) < 3 || n < 4 && len(items) < 40:
		r, namespace, name := w.place()
		if _, taken := w.objects[key{r.GroupResource(), namespace, name}]; taken {
			return
		}
		o := w.create(r, namespace, name, w.someRefs(items, namespace)...)
		if w.rng.IntN(10) == 0 {
			w.update(o, func(o *item) { o.Finalizers = []string{metav1.FinalizerOrphanDependents} })
		}
	case n < 7:
		if o := pick(); o.DeletionTimestamp == nil {
			w.delete(o, w.policy())
		}
	case n == 7:
		o := pick()
		w.update(o, func(o *item) { o.OwnerReferences = w.someRefs(items, o.Namespace) })
	case n == 8:
		if o := pick(); o.DeletionTimestamp == nil && !slices.Contains(o.Finalizers, testFinalizer) {
			w.update(o, func(o *item) { o.Finalizers = append(slices.Clone(o.Finalizers), testFinalizer) })
		}
	case n == 9:
		w.release(pick())
	}
}

func (w *world) release(o *item) {
	if slices.Contains(o.Finalizers, testFinalizer) {
		w.update(o, func(o *item) {
			o.Finalizers = slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == testFinalizer })
		})
	}
}

func (w *world) policy() metav1.DeletionPropagation {
	return []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	}[w.rng.IntN(3)]
}

func (w *world) place() (Resource, string, string) {
	r := allKinds[w.rng.IntN(len(allKinds))]
	namespace := []string{"one", "two"}[w.rng.IntN(2)]
	if !r.Namespaced {
		namespace = ""
	}
	return r, namespace, fmt.Sprintf("n%d", w.rng.IntN(8))
}

// someRefs returns up to three references, most of them valid.
func (w *world) someRefs(items []*item, namespace string) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for range w.rng.IntN(4) {
		if len(items) == 0 {
			break
		}
		owner := items[w.rng.IntN(len(items))]
		for try := 0; try < 8 && owner.Namespace != "" && owner.Namespace != namespace; try++ {
			owner = items[w.rng.IntN(len(items))]
		}
		r := ref(owner, w.rng.IntN(2) == 0)
		switch w.rng.IntN(20) {
		case 0:
			r.Name = "another"
		case 1:
			r.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", 900000+w.rng.IntN(5)))
		case 2:
			r.Kind = alphas.Kind
		case 3:
			r.APIVersion = owner.resource.Group + "/v0"
		}
		refs = append(refs, r)
	}
	return refs
}

// relist does what follows an expired watch: events are lost, and a list replaces them.
func (w *world) relist() {
	r := allKinds[w.rng.IntN(len(allKinds))]
	if r.Watched && w.served[r.GroupResource()] {
		w.list(r)
	}
}

func (w *world) serveOrNot() {
	gr := fleeting.GroupResource()
	if w.served[gr] = !w.served[gr]; w.served[gr] {
		w.graph.Serve(fleeting)
		return
	}
	delete(w.watches, gr)
	w.graph.Unserve(gr)
}

// checkSettled fails the test if a rule still applies to an object.
func (w *world) checkSettled() {
	stuck := w.stuck((*item).isWaiting)
	for _, o := range w.sorted() {
		if !o.resource.Watched || !w.served[o.resource.GroupResource()] {
			continue
		}
		if o.isOrphaning() {
			w.t.Errorf("%v is still orphaning", o.key())
		}
		if o.isWaiting() && !stuck[o] {
			w.t.Errorf("%v waits although nothing blocks it", o.key())
		}
		if o.DeletionTimestamp != nil || len(o.OwnerReferences) == 0 || !w.resolved(o) {
			continue
		}
		solid := 0
		for _, r := range o.OwnerReferences {
			if owner, _ := w.owner(o, r); owner != nil && !owner.isWaiting() {
				solid++
			}
		}
		switch {
		case solid == 0:
			w.t.Errorf("%v was left behind, owned by %v", o.key(), o.OwnerReferences)
		case solid < len(o.OwnerReferences):
			w.t.Errorf("%v keeps dangling references %v", o.key(), o.OwnerReferences)
		}
	}
}

// checkGraph fails the test if the graph's indexes do not match its edges.
func (w *world) checkGraph() {
	g := w.graph
	type counts struct{ dependents, blocking, waiting int }
	want, unverified, kinds := map[*node]counts{}, map[*unverifiedOwner]int{}, map[*kind]int{}
	for _, n := range g.nodes {
		for i := range n.edges {
			e := &n.edges[i]
			c := want[e.owner]
			if e.index >= 0 {
				c.dependents++
				if e.owner.dependents[e.index] != n {
					w.t.Errorf("%s is not at its edge's index", n.name)
				}
			}
			if e.blocks() {
				c.blocking++
				if n.isWaiting() {
					c.waiting++
				}
			}
			want[e.owner] = c
			kinds[e.kind]++
			if e.unverified != nil {
				unverified[e.unverified]++
			}
			if e.is(followed) != follows(n, e) || e.is(followed) == (e.unverified != nil) {
				w.t.Errorf("the edge of %s to %s is bound wrongly", n.name, e.name)
			}
		}
	}
	for _, n := range g.nodes {
		got := counts{len(n.dependents), int(n.blocking), int(n.blockingWaiting)}
		if got != want[n] {
			w.t.Errorf("%s counts %+v, has %+v", n.name, got, want[n])
		}
		if !n.is(observed) && len(n.dependents) == 0 {
			w.t.Errorf("a node without references is kept: %s", n.name)
		}
	}
	if len(unverified) != len(g.unverified) || len(kinds) != len(g.kinds) {
		w.t.Errorf("%d unverified owners and %d kinds are used, %d and %d kept", len(unverified), len(kinds), len(g.unverified), len(g.kinds))
	}
}

// TestFinalStateEqualsModel deletes one root of a random graph, with late events, lost
// responses and crashes, and compares the remaining objects with a model of the final state.
func TestFinalStateEqualsModel(t *testing.T) {
	episodes(t, func(w *world) int {
		c := w.begin()
		const length = 300
		for range length {
			w.step()
			if w.rng.IntN(60) == 0 {
				w.crash()
			}
		}
		c.check()
		return length
	})
}

// TestCrashBetweenAnyTwoWrites runs each cascade once for every write in it, and crashes after
// that write, before its response and event. The final state must always be the same.
func TestCrashBetweenAnyTwoWrites(t *testing.T) {
	for taken, s := 0, *seed; taken < *steps; s++ {
		for at, done := 1, false; !done; at++ {
			ok := t.Run(fmt.Sprintf("%d/%d", s, at), func(t *testing.T) {
				c := newWorld(t, rand.New(rand.NewPCG(s, 1))).begin()
				c.crashAfter = at
				const length = 200
				for range length {
					c.step()
				}
				c.check()
				done = c.writes < at
				taken += length
			})
			if !ok {
				return
			}
		}
	}
}

// cascading is a deletion in a random graph and its expected final state.
type cascading struct {
	*world
	items  []*item
	root   *item
	policy metav1.DeletionPropagation
	want   map[string][]types.UID
}

// begin creates a random graph and deletes one object of it.
func (w *world) begin() cascading {
	w.strict = true
	items := w.plant(5 + w.rng.IntN(30))
	w.settle()
	if len(w.objects) != len(items) {
		w.t.Fatalf("%d of %d objects are left before the deletion", len(w.objects), len(items))
	}
	c := cascading{world: w, items: items, root: items[w.rng.IntN(len(items))], policy: w.policy()}
	c.want = w.model(c.root, c.policy)
	w.delete(c.root, c.policy)
	w.writes = 0
	return c
}

// check finishes the cascade, removes the test's finalizers, and compares the final state.
func (c cascading) check() {
	c.settle()
	for _, o := range c.items {
		if c.objects[o.key()] == o {
			c.release(o)
			c.settle()
		}
	}
	got := map[string][]types.UID{}
	for _, o := range c.objects {
		got[fmt.Sprint(o.key())] = ownerUIDs(o.OwnerReferences)
	}
	if diff := cmp.Diff(c.want, got); diff != "" {
		c.t.Fatalf("%s deletion of %v (-want +got):\n%s", c.policy, c.root.key(), diff)
	}
}

// plant creates n objects with valid references, including cycles. Objects with a reference to
// a kind that is not served have no blocking references, so that they do not block foreground
// deletion.
func (w *world) plant(n int) []*item {
	var items []*item
	for i := range n {
		r := []Resource{alphas, betas, clusters}[w.rng.IntN(3)]
		namespace := []string{"one", "two"}[w.rng.IntN(2)]
		o := w.create(r, namespace, fmt.Sprintf("n%d", i))
		if w.rng.IntN(8) == 0 {
			o.Finalizers = []string{testFinalizer}
		}
		items = append(items, o)
	}
	for _, o := range items {
		unresolved := w.rng.IntN(10) == 0
		var refs []metav1.OwnerReference
		for range w.rng.IntN(3) {
			owner := items[w.rng.IntN(len(items))]
			if owner.Namespace == "" || owner.Namespace == o.Namespace {
				refs = append(refs, ref(owner, !unresolved && w.rng.IntN(2) == 0))
			}
		}
		if unresolved {
			refs = append(refs, metav1.OwnerReference{APIVersion: "no/v1", Kind: "Such", Name: "x", UID: "x"})
		}
		w.update(o, func(o *item) { o.OwnerReferences = refs })
	}
	return items
}

// model returns the remaining objects and their owners after the deletion of root.
func (w *world) model(root *item, policy metav1.DeletionPropagation) map[string][]types.UID {
	left := map[*item][]types.UID{}
	for _, o := range w.objects {
		left[o] = ownerUIDs(o.OwnerReferences)
	}
	delete(left, root)
	if policy == metav1.DeletePropagationOrphan {
		for o, owners := range left {
			left[o] = slices.DeleteFunc(owners, func(id types.UID) bool { return id == root.UID })
		}
	}
	exists := func(id types.UID) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(left)), func(o *item) bool { return o.UID == id })
	}
	for changed := true; changed; {
		changed = false
		for o, owners := range left {
			if len(owners) > 0 && w.resolved(o) && !slices.ContainsFunc(owners, exists) {
				delete(left, o)
				changed = true
			}
		}
	}
	want := map[string][]types.UID{}
	for o, owners := range left {
		if w.resolved(o) {
			owners = slices.DeleteFunc(owners, func(id types.UID) bool { return !exists(id) })
		}
		want[fmt.Sprint(o.key())] = owners
	}
	return want
}

func ownerUIDs(refs []metav1.OwnerReference) []types.UID {
	ids := []types.UID{}
	for _, r := range refs {
		ids = append(ids, r.UID)
	}
	return ids
}
