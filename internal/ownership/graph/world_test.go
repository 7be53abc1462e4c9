// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The kinds of the tests: two namespaced kinds and a cluster-scoped one that are watched, one
// that can only be looked up, and one that is not always served.
var (
	alphas   = Resource{GroupVersionResource: schema.GroupVersionResource{Group: "t", Version: "v1", Resource: "alphas"}, Kind: "Alpha", Namespaced: true, Watched: true}
	betas    = Resource{GroupVersionResource: schema.GroupVersionResource{Group: "t", Version: "v1", Resource: "betas"}, Kind: "Beta", Namespaced: true, Watched: true}
	clusters = Resource{GroupVersionResource: schema.GroupVersionResource{Group: "t", Version: "v1", Resource: "clusters"}, Kind: "Cluster", Watched: true}
	polled   = Resource{GroupVersionResource: schema.GroupVersionResource{Group: "t", Version: "v1", Resource: "polleds"}, Kind: "Polled", Namespaced: true}
	fleeting = Resource{GroupVersionResource: schema.GroupVersionResource{Group: "f", Version: "v1", Resource: "fleetings"}, Kind: "Fleeting", Namespaced: true, Watched: true}

	allKinds = []Resource{alphas, betas, clusters, polled, fleeting}
)

const testFinalizer = "test/finalizer"

type key struct {
	resource        schema.GroupResource
	namespace, name string
}

type item struct {
	metav1.ObjectMeta
	resource Resource
	// waited and orphaned are true if the item ever waited or orphaned its dependents. It may
	// still exist afterwards because of another finalizer, but the fate of its dependents is
	// decided.
	waited, orphaned bool
}

func (i *item) key() key { return key{i.resource.GroupResource(), i.Namespace, i.Name} }
func (i *item) isWaiting() bool {
	return i.DeletionTimestamp != nil && slices.Contains(i.Finalizers, metav1.FinalizerDeleteDependents)
}
func (i *item) isOrphaning() bool {
	return i.DeletionTimestamp != nil && slices.Contains(i.Finalizers, metav1.FinalizerOrphanDependents)
}

// watchEvent is an event that the graph has not received yet: the new state of an object, or a
// complete list at a version.
type watchEvent struct {
	object  item
	deleted bool

	list    []metav1.Object
	version string
}

// world is a small API server with its watches, a graph that observes it, and the actions in
// progress between them.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	objects map[key]*item
	clock   int // the last resourceVersion
	uids    int
	served  map[schema.GroupResource]bool

	graph    *Graph
	watches  map[schema.GroupResource]*[]watchEvent // nil: not listed yet
	underway []Action
	ended    []ending
	wakes    []types.UID
	writes   int
	// crashAfter, if set, is the number of the write after which the process crashes, once.
	crashAfter int
	// strict enables the checks that hold only if users do not interfere with a cascade.
	strict bool
}

type ending struct {
	action  Action
	outcome Outcome
}

func newWorld(t *testing.T, rng *rand.Rand) *world {
	w := &world{t: t, rng: rng, objects: map[key]*item{}, served: map[schema.GroupResource]bool{}}
	for _, r := range allKinds {
		w.served[r.GroupResource()] = true
	}
	w.crash()
	return w
}

// crash replaces the graph by one that knows only the served resources.
func (w *world) crash() {
	w.graph = New()
	w.watches = map[schema.GroupResource]*[]watchEvent{}
	w.underway, w.ended, w.wakes = nil, nil, nil
	for _, r := range allKinds {
		if w.served[r.GroupResource()] {
			w.graph.Serve(r)
		}
	}
}

// list queues a list of a resource for the graph and drops the events that are not delivered yet.
func (w *world) list(r Resource) {
	var objects []metav1.Object
	for _, o := range w.sorted() {
		if o.resource == r {
			objects = append(objects, o.DeepCopy())
		}
	}
	w.watches[r.GroupResource()] = &[]watchEvent{{list: objects, version: strconv.Itoa(w.clock)}}
}

func (w *world) sorted() []*item {
	var items []*item
	for _, o := range w.objects {
		items = append(items, o)
	}
	slices.SortFunc(items, func(a, b *item) int {
		return slices.Compare([]string{a.resource.Kind, a.Namespace, a.Name}, []string{b.resource.Kind, b.Namespace, b.Name})
	})
	return items
}

// commit stores o and queues its watch event.
func (w *world) commit(o *item, deleted bool) {
	w.clock++
	o.ResourceVersion = strconv.Itoa(w.clock)
	o.waited, o.orphaned = o.waited || o.isWaiting(), o.orphaned || o.isOrphaning()
	if deleted {
		delete(w.objects, o.key())
	}
	if events := w.watches[o.resource.GroupResource()]; events != nil {
		*events = append(*events, watchEvent{object: item{ObjectMeta: *o.DeepCopy(), resource: o.resource}, deleted: deleted})
	}
}

func (w *world) create(r Resource, namespace, name string, refs ...metav1.OwnerReference) *item {
	if !r.Namespaced {
		namespace = ""
	}
	w.uids++
	o := &item{resource: r}
	o.Namespace, o.Name, o.OwnerReferences = namespace, name, refs
	o.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", w.uids))
	if w.uids%7 == 0 {
		o.UID = types.UID(fmt.Sprintf("odd-%d", w.uids))
	}
	w.objects[o.key()] = o
	w.commit(o, false)
	return o
}

func (w *world) update(o *item, f func(*item)) {
	f(o)
	w.commit(o, o.DeletionTimestamp != nil && len(o.Finalizers) == 0)
}

// delete handles a DELETE request with a propagation policy as an API server does.
func (w *world) delete(o *item, policy metav1.DeletionPropagation) {
	w.update(o, func(o *item) {
		finalizers := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool {
			return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
		})
		switch policy {
		case metav1.DeletePropagationForeground:
			finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
		case metav1.DeletePropagationOrphan:
			finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
		}
		o.Finalizers = finalizers
		if o.DeletionTimestamp == nil {
			o.DeletionTimestamp = &metav1.Time{}
		}
	})
}

// perform performs an action as an API server would. It fails the test if the action is wrong.
func (w *world) perform(a Action) Outcome {
	k := key{a.Resource.GroupResource(), a.Namespace, a.Name}
	o, ok := w.objects[k]
	if a.Verb == Lookup {
		if !ok {
			return Outcome{Result: Absent}
		}
		return Outcome{Result: Found, Object: o.DeepCopy()}
	}
	w.writes++
	switch {
	case a.ResourceVersion == "":
		w.t.Fatalf("%s %v without a resourceVersion", a.Verb, k)
	case !ok || o.UID != a.UID:
		return Outcome{Result: Absent}
	case o.ResourceVersion != a.ResourceVersion:
		return Outcome{Result: Found, Object: o.DeepCopy()}
	}
	w.checkWrite(o, a)
	switch a.Verb {
	case Delete:
		w.delete(o, a.Policy)
		return Outcome{Result: Applied}
	case DropOwners:
		w.update(o, func(o *item) { o.OwnerReferences = a.OwnerReferences })
	case RemoveFinalizer:
		w.update(o, func(o *item) { o.Finalizers = a.Finalizers })
	}
	return Outcome{Result: Applied, Object: o.DeepCopy()}
}

// checkWrite fails the test if the state of the store shows that a write is wrong.
func (w *world) checkWrite(o *item, a Action) {
	switch a.Verb {
	case Delete:
		if o.DeletionTimestamp != nil || len(o.OwnerReferences) == 0 {
			w.t.Fatalf("%v is deleted, but is being deleted already or has no owner", o.key())
		}
		for _, ref := range o.OwnerReferences {
			if owner, valid := w.owner(o, ref); !valid || owner != nil && !owner.waited {
				w.t.Fatalf("%v is deleted despite its owner %v", o.key(), ref)
			}
		}
	case DropOwners:
		for _, ref := range a.Because {
			owner, _ := w.owner(o, ref)
			if owner != nil && !owner.waited && !w.orphanedUID(ref.UID) {
				w.t.Fatalf("the reference to %v is removed from %v", ref, o.key())
			}
		}
		if len(a.OwnerReferences)+len(a.Because) != len(o.OwnerReferences) {
			w.t.Fatalf("references of %v are lost", o.key())
		}
	case RemoveFinalizer:
		if len(a.Finalizers) != len(o.Finalizers)-1 || !(o.isWaiting() || o.isOrphaning()) {
			w.t.Fatalf("the finalizers of %v change from %v to %v", o.key(), o.Finalizers, a.Finalizers)
		}
		if w.strict && o.isWaiting() && w.stuck(func(o *item) bool { return o.waited })[o] {
			w.t.Fatalf("%v is released before its dependents", o.key())
		}
		if w.strict && o.isOrphaning() {
			for _, d := range w.objects {
				if slices.ContainsFunc(d.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == o.UID }) {
					w.t.Fatalf("%v is released before %v is orphaned", o.key(), d.key())
				}
			}
		}
	}
}

func (w *world) orphanedUID(id types.UID) bool {
	for _, o := range w.objects {
		if o.UID == id {
			return o.orphaned
		}
	}
	return false
}

// owner returns the object that a reference of o names, or nil. The reference is not valid if o
// cannot have an owner of this kind.
func (w *world) owner(o *item, ref metav1.OwnerReference) (owner *item, valid bool) {
	for _, r := range allKinds {
		if r.Kind != ref.Kind || r.Group != schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group {
			continue
		}
		namespace := o.Namespace
		if !r.Namespaced {
			namespace = ""
		} else if namespace == "" {
			return nil, false
		}
		owner = w.objects[key{r.GroupResource(), namespace, ref.Name}]
		if owner == nil || owner.UID != ref.UID {
			return nil, true
		}
		return owner, true
	}
	return nil, false
}

// resolved reports whether all references of o name served kinds.
func (w *world) resolved(o *item) bool {
	for _, ref := range o.OwnerReferences {
		if _, valid := w.owner(o, ref); !valid || ref.Kind == fleeting.Kind && !w.served[fleeting.GroupResource()] {
			return false
		}
	}
	return true
}

// stuck returns the waiting objects that must continue to wait. An object must wait if one of its
// blocking dependents is stuck, or does not wait for its own dependents, as waits reports.
func (w *world) stuck(waits func(*item) bool) map[*item]bool {
	blockers := map[*item][]*item{}
	for _, d := range w.objects {
		if !w.served[d.resource.GroupResource()] || !d.resource.Watched {
			continue
		}
		for _, ref := range d.OwnerReferences {
			if owner, _ := w.owner(d, ref); owner != nil && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
				blockers[owner] = append(blockers[owner], d)
			}
		}
	}
	stuck := map[*item]bool{}
	for changed := true; changed; {
		changed = false
		for _, o := range w.objects {
			if !o.isWaiting() || stuck[o] {
				continue
			}
			for _, b := range blockers[o] {
				if !waits(b) || stuck[b] {
					stuck[o], changed = true, true
				}
			}
		}
	}
	return stuck
}

// step performs one random step between the store and the graph.
func (w *world) step() {
	switch w.rng.IntN(10) {
	case 0, 1, 2:
		w.deliver(allKinds[w.rng.IntN(len(allKinds))])
	case 3, 4:
		w.decide()
	case 5, 6:
		w.act(w.rng.IntN(20) == 0)
	case 7, 8:
		w.end()
	case 9:
		w.wake()
	}
}

// deliver sends the first list or the next event of a resource to the graph.
func (w *world) deliver(r Resource) bool {
	if !w.served[r.GroupResource()] || !r.Watched {
		return false
	}
	events := w.watches[r.GroupResource()]
	switch {
	case events == nil:
		w.list(r)
		return true
	case len(*events) == 0:
		return false
	}
	e := (*events)[0]
	*events = (*events)[1:]
	switch {
	case e.version != "":
		w.graph.Replace(r.GroupResource(), e.list, e.version)
	case e.deleted:
		w.graph.Forget(r.GroupResource(), &e.object)
	default:
		w.graph.Observe(r.GroupResource(), &e.object)
	}
	return true
}

func (w *world) decide() bool {
	a, ok := w.graph.Next()
	if ok && a.Verb != Report {
		w.underway = append(w.underway, a)
	}
	return ok
}

func (w *world) act(fail bool) bool {
	if len(w.underway) == 0 {
		return false
	}
	i := w.rng.IntN(len(w.underway))
	a := w.underway[i]
	w.underway = slices.Delete(w.underway, i, i+1)
	outcome := Outcome{Result: Failed}
	switch {
	case !w.served[a.Resource.GroupResource()]:
	case fail && w.rng.IntN(2) == 0:
		w.perform(a) // The write succeeds, but the response gets lost.
	case !fail:
		outcome = w.perform(a)
	}
	if w.crashAfter > 0 && w.writes >= w.crashAfter {
		w.crashAfter = 0
		w.crash()
		return true
	}
	w.ended = append(w.ended, ending{a, outcome})
	return true
}

func (w *world) end() bool {
	if len(w.ended) == 0 {
		return false
	}
	i := w.rng.IntN(len(w.ended))
	e := w.ended[i]
	w.ended = slices.Delete(w.ended, i, i+1)
	if w.graph.Done(e.action, e.outcome) {
		w.wakes = append(w.wakes, e.action.UID)
	}
	return true
}

func (w *world) wake() bool {
	if len(w.wakes) == 0 {
		return false
	}
	i := w.rng.IntN(len(w.wakes))
	id := w.wakes[i]
	w.wakes = slices.Delete(w.wakes, i, i+1)
	w.graph.Wake(id)
	return true
}

// settle runs until no step is left. Objects that are not watched are looked up forever, so it
// also ends when a round of lookups changes nothing.
func (w *world) settle() {
	for {
		before := w.clock
		for rounds := 0; w.drain(); rounds++ {
			if rounds > 100000 {
				w.t.Fatal("does not settle")
			}
		}
		pending := w.wakes
		w.wakes = nil
		for _, id := range pending {
			w.graph.Wake(id)
		}
		progress := false
		for w.drain() {
			progress = true
		}
		if len(pending) == 0 || !progress || w.clock == before {
			return
		}
	}
}

func (w *world) drain() bool {
	progress := false
	for _, r := range allKinds {
		progress = w.deliver(r) || progress
	}
	progress = w.decide() || progress
	progress = w.act(false) || progress
	return w.end() || progress
}

// ref returns a reference to o.
func ref(o *item, block bool) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: o.resource.GroupVersion().String(), Kind: o.resource.Kind,
		Name: o.Name, UID: o.UID, BlockOwnerDeletion: &block,
	}
}
