// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// archive is a cluster whose store keeps every revision and whose garbage collector runs only when
// a test calls collect. It is the History, the Records and the API of an undeletion.
type archive struct {
	memory
	// mu protects states from the workers of an undeletion.
	mu      sync.Mutex
	t       *testing.T
	rand    *rand.Rand
	clock   *clocktesting.FakeClock
	cluster *Cluster
	// states are the objects at each revision. They are never changed.
	states []map[objectKey]*unstructured.Unstructured
	ends   map[objectKey]*deletion.End
	// orphaned are objects whose dependents were orphaned and which are not removed yet.
	orphaned []objectKey
}

func newArchive(t *testing.T, random *rand.Rand) *archive {
	a := &archive{t: t, rand: random, clock: clocktesting.NewFakeClock(noon), states: []map[objectKey]*unstructured.Unstructured{{}}, ends: map[objectKey]*deletion.End{}}
	client := a.client()
	a.cluster = &Cluster{
		History: a, Records: a, Resources: func() []graph.Resource { return resources }, Owner: a.ownerNow, Served: served,
		Objects: client, Caller: client,
		May:   func(context.Context, string, graph.Resource, string, string, string) error { return nil },
		Seen:  func(schema.GroupKind, string) (bool, bool) { return true, true },
		Clock: a.clock,
	}
	a.create(object("Namespace", "shop"))
	return a
}

// client returns a client of the API, which serves one request at a time.
func (a *archive) client() *dynamicfake.FakeDynamicClient {
	lists := map[schema.GroupVersionResource]string{}
	for _, r := range resources {
		lists[r.GroupVersionResource] = r.Kind + "List"
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	client.PrependReactor("*", "*", a.react)
	return client
}

func (a *archive) revision() int64                               { return int64(len(a.states)) - 1 }
func (a *archive) now() map[objectKey]*unstructured.Unstructured { return a.states[len(a.states)-1] }

func nameOf(o *unstructured.Unstructured) objectKey {
	return objectKey{o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName()}
}

func kindOf(r schema.GroupResource) schema.GroupKind {
	known := resources[slices.IndexFunc(resources, func(known graph.Resource) bool { return known.GroupResource() == r })]
	return schema.GroupKind{Group: known.Group, Kind: known.Kind}
}

// write makes a new revision with an object, or without it if o is nil.
func (a *archive) write(n objectKey, o *unstructured.Unstructured) {
	next := maps.Clone(a.now())
	if delete(next, n); o != nil {
		o.SetResourceVersion(strconv.FormatInt(a.revision()+1, 10))
		next[n] = o
	}
	a.states = append(a.states, next)
}

func (a *archive) create(o *unstructured.Unstructured) types.UID {
	o = o.DeepCopy()
	o.SetUID(types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", a.rand.Uint32(), a.revision())))
	a.write(nameOf(o), o)
	return o.GetUID()
}

// remove deletes an object from the store.
func (a *archive) remove(n objectKey) {
	last := a.now()[n]
	a.write(n, nil)
	a.ends[n] = &deletion.End{Object: last, Revision: a.revision(), Time: noon}
}

func (a *archive) record(n objectKey, revision int64, owners []metav1.OwnerReference) {
	o, r := a.now()[n], resourceOf(n.kind.Kind)
	a.clock.Step(time.Second)
	a.records = slices.Insert(a.records, 0, deletion.Record{
		Resource: r.GroupResource(), Namespace: n.namespace, Name: n.name, UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		Time: metav1.NewMicroTime(a.clock.Now()), By: deletion.Caller{User: "jane"}, Owners: owners, Revision: revision,
	})
}

// ask handles a DELETE request with a policy; dependents are left to the collector.
func (a *archive) ask(n objectKey, policy metav1.DeletionPropagation) {
	a.record(n, a.revision()+1, nil)
	uid := a.now()[n].GetUID()
	if policy == metav1.DeletePropagationBackground {
		a.remove(n)
		return
	}
	going := a.now()[n].DeepCopy()
	going.SetDeletionTimestamp(&metav1.Time{Time: a.clock.Now()})
	a.write(n, going)
	if policy == metav1.DeletePropagationOrphan {
		for n, o := range a.now() {
			if refs := without(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == uid }); len(refs) < len(o.GetOwnerReferences()) {
				o = o.DeepCopy()
				o.SetOwnerReferences(refs)
				a.write(n, o)
			}
		}
		if a.rand.IntN(2) == 0 { // Sometimes another deletion is requested before the object is removed.
			a.orphaned = append(a.orphaned, n)
			return
		}
	} else {
		a.collect()
	}
	a.remove(n)
}

func without(refs []metav1.OwnerReference, drop func(metav1.OwnerReference) bool) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(refs), drop)
}

// collect acts as the garbage collector until nothing is left to do: it deletes objects whose
// owners are all absent, and removes references to absent owners from the others.
func (a *archive) collect() {
	for _, n := range a.orphaned {
		a.remove(n)
	}
	a.orphaned = nil
	for a.collectOne() {
	}
}

func (a *archive) collectOne() bool {
	names := slices.SortedFunc(maps.Keys(a.now()), cmpNames)
	for _, n := range names {
		o := a.now()[n]
		refs := o.GetOwnerReferences()
		if len(refs) == 0 || o.GetDeletionTimestamp() != nil {
			continue
		}
		var solid, unresolved int
		rest := without(refs, func(ref metav1.OwnerReference) bool {
			r, isServed := served(groupKindOf(ref))
			if !isServed || r.Namespaced && o.GetNamespace() == "" {
				unresolved++
				return false
			}
			owner, there := a.owner(ref.UID)
			there = there && !owner.Deleting && owner.Name == ref.Name && owner.Kind == ref.Kind && (owner.Namespace == "" || owner.Namespace == o.GetNamespace())
			if there {
				solid++
			}
			return !there
		})
		switch {
		case solid+unresolved == 0:
			a.record(n, 0, refs)
			a.remove(n)
			return true
		case solid > 0 && len(rest) < len(refs):
			o = o.DeepCopy()
			o.SetOwnerReferences(rest)
			a.write(n, o)
			return true
		}
	}
	return false
}

func cmpNames(x, y objectKey) int {
	switch {
	case fmt.Sprint(x) < fmt.Sprint(y):
		return -1
	case x == y:
		return 0
	}
	return 1
}

// ownerNow is owner for undeletions, whose workers write concurrently.
func (a *archive) ownerNow(uid types.UID) (graph.Object, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.owner(uid)
}

func (a *archive) owner(uid types.UID) (graph.Object, bool) {
	for n, o := range a.now() {
		if o.GetUID() == uid {
			return graph.Object{Resource: resourceOf(n.kind.Kind), Namespace: n.namespace, Name: n.name, UID: uid, Deleting: o.GetDeletionTimestamp() != nil}, true
		}
	}
	return graph.Object{}, false
}

// react handles a request to the API.
func (a *archive) react(action clienttesting.Action) (bool, runtime.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := action.GetResource().GroupResource()
	kind := kindOf(r)
	place := func(name string) objectKey { return objectKey{kind, action.GetNamespace(), name} }
	missing := func(name string) (bool, runtime.Object, error) { return true, nil, apierrors.NewNotFound(r, name) }
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		o := action.Object.(*unstructured.Unstructured)
		if a.now()[nameOf(o)] != nil {
			return true, nil, apierrors.NewAlreadyExists(r, o.GetName())
		}
		if len(action.CreateOptions.DryRun) == 0 {
			a.create(o)
			o = a.now()[nameOf(o)]
		}
		return true, o.DeepCopy(), nil
	case clienttesting.GetActionImpl:
		if o := a.now()[place(action.Name)]; o != nil {
			return true, o.DeepCopy(), nil
		}
		return missing(action.Name)
	case clienttesting.ListActionImpl:
		list := &unstructured.UnstructuredList{Object: map[string]any{}}
		list.SetGroupVersionKind(action.GetKind().GroupVersion().WithKind(kind.Kind + "List"))
		for n, o := range a.now() {
			if n.kind == kind && (action.GetNamespace() == "" || action.GetNamespace() == n.namespace) {
				list.Items = append(list.Items, *o.DeepCopy())
			}
		}
		return true, list, nil
	case clienttesting.UpdateActionImpl:
		return a.update(action.Object.(*unstructured.Unstructured).DeepCopy(), r)
	case clienttesting.PatchActionImpl:
		o := a.now()[place(action.Name)]
		if o == nil {
			return missing(action.Name)
		}
		var patch map[string]any
		if err := json.Unmarshal(action.Patch, &patch); err != nil {
			return true, nil, err
		}
		return a.update(&unstructured.Unstructured{Object: merged(o.DeepCopy().Object, patch).(map[string]any)}, r)
	}
	return true, nil, fmt.Errorf("unexpected action %T", action)
}

func (a *archive) update(o *unstructured.Unstructured, r schema.GroupResource) (bool, runtime.Object, error) {
	is := a.now()[nameOf(o)]
	if is == nil {
		return true, nil, apierrors.NewNotFound(r, o.GetName())
	}
	if is.GetUID() != o.GetUID() || is.GetResourceVersion() != o.GetResourceVersion() {
		return true, nil, apierrors.NewConflict(r, o.GetName(), errBroken)
	}
	a.write(nameOf(o), o)
	return true, o.DeepCopy(), nil
}

func (a *archive) Newest(context.Context) (int64, error) { return a.revision(), nil }
func (a *archive) Oldest(context.Context) (int64, error) { return 1, nil }

func (a *archive) At(_ context.Context, r schema.GroupResource, namespace, name string, revision int64) (*unstructured.Unstructured, error) {
	if o := a.states[revision][objectKey{kindOf(r), namespace, name}]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(r, name)
}

func (a *archive) List(_ context.Context, r schema.GroupResource, namespace string, revision int64) iter.Seq2[*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		kind := kindOf(r)
		for _, n := range slices.SortedFunc(maps.Keys(a.states[revision]), cmpNames) {
			if n.kind == kind && (namespace == "" || namespace == n.namespace) && !yield(a.states[revision][n], nil) {
				return
			}
		}
	}
}

func (a *archive) LastDeletion(_ context.Context, r schema.GroupResource, namespace, name string) (*deletion.End, error) {
	if end := a.ends[objectKey{kindOf(r), namespace, name}]; end != nil {
		return end, nil
	}
	return nil, apierrors.NewNotFound(r, name)
}
