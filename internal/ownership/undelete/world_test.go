// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func resource(group, version, plural, kind string, namespaced bool) graph.Resource {
	return graph.Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural}, Kind: kind, Namespaced: namespaced, Watched: true}
}

var resources = []graph.Resource{
	resource("", "v1", "configmaps", "ConfigMap", true),
	resource("", "v1", "secrets", "Secret", true),
	resource("", "v1", "pods", "Pod", true),
	resource("", "v1", "serviceaccounts", "ServiceAccount", true),
	resource("", "v1", "endpoints", "Endpoints", true),
	resource("", "v1", "services", "Service", true),
	resource("", "v1", "persistentvolumes", "PersistentVolume", false),
	resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true),
	resource("", "v1", "namespaces", "Namespace", false),
	resource("apps", "v1", "deployments", "Deployment", true),
	resource("apps", "v1", "replicasets", "ReplicaSet", true),
	resource("apps", "v1", "daemonsets", "DaemonSet", true),
	resource("batch", "v1", "jobs", "Job", true),
	resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true),
	resource("cluster.x-k8s.io", "v1beta1", "machines", "Machine", true),
	resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false),
	resource("example.com", "v1", "things", "Thing", true),
}

func resourceOf(kind string) graph.Resource {
	return resources[slices.IndexFunc(resources, func(r graph.Resource) bool { return r.Kind == kind })]
}

func served(kind schema.GroupKind) (graph.Resource, bool) {
	for _, r := range resources {
		if r.Group == kind.Group && r.Kind == kind.Kind {
			return r, true
		}
	}
	return graph.Resource{}, false
}

type change = func(*unstructured.Unstructured)

// object returns an object whose UID is its name. Namespaced objects are in "shop".
func object(kind, name string, changes ...change) *unstructured.Unstructured {
	r := resourceOf(kind)
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(r.GroupVersion().WithKind(r.Kind))
	o.SetName(name)
	o.SetUID(types.UID(name))
	o.SetResourceVersion("5")
	if r.Namespaced {
		o.SetNamespace("shop")
	}
	for _, c := range changes {
		c(o)
	}
	return o
}

// ownedBy adds owners; the first is the controller.
func ownedBy(uids ...types.UID) change {
	return func(o *unstructured.Unstructured) {
		refs := o.GetOwnerReferences()
		for _, uid := range uids {
			refs = append(refs, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "named-" + string(uid), UID: uid, Controller: new(len(refs) == 0)})
		}
		o.SetOwnerReferences(refs)
	}
}

func in(namespace string) change {
	return func(o *unstructured.Unstructured) { o.SetNamespace(namespace) }
}

func withUID(uid types.UID) change { return func(o *unstructured.Unstructured) { o.SetUID(uid) } }

func deleting(o *unstructured.Unstructured) {
	o.SetDeletionTimestamp(&metav1.Time{Time: noon})
	o.SetFinalizers([]string{"example.com/wait"})
}

func labelled(key, value string) change {
	return func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{key: value}) }
}

func set(value any, path ...string) change {
	return func(o *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
			panic(err)
		}
	}
}

// onHold adds the hold of an undeletion that restored the object.
func onHold(from types.UID, releasing bool) change {
	return func(o *unstructured.Unstructured) {
		hold(o, mark{Root: "root", Revision: 10, From: from, For: typeAndName(o), Releasing: releasing})
	}
}

func itemOf(then, now *unstructured.Unstructured, owners ...*Item) *Item {
	item := newItem(resourceOf(then.GetKind()), then)
	item.now, item.owners, item.lineage = now, owners, &lineage{root: "root"}
	return item
}

// memory is an in-memory history with a few states, and an in-memory store of records.
type memory struct {
	deletion.History
	objects map[int64][]*unstructured.Unstructured
	end     *deletion.End
	endErr  error
	records []deletion.Record
	// atAnyTime is what RevisionAt returns for any time; 0 if no revision is known.
	atAnyTime int64
	// oldest is the oldest revision that is not compacted; pins are the pinned revisions. If
	// onlyPinned is set, only pinned revisions can be read.
	oldest     int64
	pins       []int64
	onlyPinned bool
	// restored and lost are the records of undeletions.
	restored []deletion.Restoration
	lost     []deletion.LostReference
}

func (m *memory) Restored(context.Context, string) ([]deletion.Restoration, []deletion.LostReference, error) {
	return slices.Clone(m.restored), slices.Clone(m.lost), nil
}

func (m *memory) AddRestored(_ context.Context, restored []deletion.Restoration, lost []deletion.LostReference) error {
	for i := range restored {
		restored[i].Revision = int64(len(m.restored))
	}
	m.restored = append(m.restored, restored...)
	_ = m.ForgetLost(context.Background(), lost)
	m.lost = append(m.lost, lost...)
	return nil
}

func (m *memory) ForgetLost(_ context.Context, found []deletion.LostReference) error {
	m.lost = slices.DeleteFunc(m.lost, func(l deletion.LostReference) bool {
		return slices.ContainsFunc(found, func(f deletion.LostReference) bool { return f.UID == l.UID && f.Owner.UID == l.Owner.UID })
	})
	return nil
}

func (m *memory) Pin(_ context.Context, revision int64) (func(), error) {
	if revision < m.oldest {
		return nil, errExpired
	}
	m.pins = append(m.pins, revision)
	return func() {
		m.pins = slices.DeleteFunc(m.pins, func(pinned int64) bool { return pinned == revision })
	}, nil
}

// expired returns an error if a revision is compacted before it is read.
func (m *memory) expired(revision int64) error {
	if revision < m.oldest || m.onlyPinned && !slices.Contains(m.pins, revision) {
		return errExpired
	}
	return nil
}

var errExpired = apierrors.NewResourceExpired("not retained any more")

func (m *memory) Newest(context.Context) (int64, error) { return 100, nil }
func (m *memory) Oldest(context.Context) (int64, error) { return 1, nil }
func (m *memory) Time(int64) time.Time                  { return noon }
func (m *memory) RevisionAt(time.Time) int64            { return m.atAnyTime }

func (m *memory) At(_ context.Context, r schema.GroupResource, namespace, name string, revision int64) (*unstructured.Unstructured, error) {
	if err := m.expired(revision); err != nil {
		return nil, err
	}
	for _, o := range m.objects[revision] {
		if resourceOf(o.GetKind()).GroupResource() == r && o.GetNamespace() == namespace && o.GetName() == name {
			return o, nil
		}
	}
	return nil, apierrors.NewNotFound(r, name)
}

func (m *memory) List(_ context.Context, r schema.GroupResource, namespace string, revision int64) iter.Seq2[*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		if err := m.expired(revision); err != nil {
			yield(nil, err)
			return
		}
		for _, o := range m.objects[revision] {
			if resourceOf(o.GetKind()).GroupResource() == r && (namespace == "" || namespace == o.GetNamespace()) && !yield(o, nil) {
				return
			}
		}
	}
}

func (m *memory) LastDeletion(_ context.Context, r schema.GroupResource, _, name string) (*deletion.End, error) {
	if m.end == nil && m.endErr == nil {
		return nil, apierrors.NewNotFound(r, name)
	}
	return m.end, m.endErr
}

func (m *memory) ByName(_ context.Context, r schema.GroupResource, namespace, name string) (found []deletion.Record, _ error) {
	for _, record := range m.records {
		if record.Resource == r && record.Namespace == namespace && record.Name == name {
			found = append(found, record)
		}
	}
	return found, nil
}

func (m *memory) Requested(_ context.Context, since int64) (found []deletion.Record, _ error) {
	for _, record := range m.records {
		if record.Revision >= since && len(record.Owners) == 0 {
			found = append(found, record)
		}
	}
	return found, nil
}

func (m *memory) AddCollected(context.Context, []deletion.Record) error { return nil }

// world is a cluster in which objects were deleted.
type world struct {
	*memory
	cluster *Cluster
	client  *dynamicfake.FakeDynamicClient
	clock   *clocktesting.FakeClock
	// forbidden lists the "verb Kind" and "verb Kind/subresource" that the caller may not use.
	forbidden []string
	// named reports whether the caller may nevertheless use the object with a name; asked counts
	// its calls.
	named func(verb, kind, name string) bool
	asked int
}

// may implements Cluster.May: it returns an error if the caller may not use a verb on an object, or,
// without a name, on all objects.
func (w *world) may(_ context.Context, verb string, r graph.Resource, subresource, _, name string) error {
	if !slices.Contains(w.forbidden, verb+" "+path.Join(r.Kind, subresource)) {
		return nil
	}
	if name != "" && w.named != nil {
		if w.asked++; w.named(verb, r.Kind, name) {
			return nil
		}
	}
	return fmt.Errorf("you may not %s %s", verb, r.Kind)
}

// newWorld returns a cluster with a history and with existing objects.
func newWorld(t *testing.T, m *memory, existing ...*unstructured.Unstructured) *world {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{}
	for _, r := range resources {
		lists[r.GroupVersionResource] = r.Kind + "List"
	}
	var objects []runtime.Object
	for _, o := range existing {
		objects = append(objects, o)
	}
	w := &world{memory: m, clock: clocktesting.NewFakeClock(noon), client: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)}
	w.cluster = &Cluster{
		History: m, Records: m, Resources: func() []graph.Resource { return resources },
		Owner:   func(types.UID) (graph.Object, bool) { return graph.Object{}, false },
		Served:  served,
		Objects: w.client, Caller: w.client,
		Seen:  func(schema.GroupKind, string) (bool, bool) { return true, true },
		Clock: w.clock,
	}
	w.cluster.May = w.may
	return w
}

func request(kind, name string) Request {
	return Request{Resource: resourceOf(kind), Namespace: "shop", Name: name}
}

// writes returns the verbs of all writes.
func (w *world) writes() (verbs []string) {
	for _, action := range w.client.Actions() {
		if !slices.Contains([]string{"get", "list"}, action.GetVerb()) {
			verbs = append(verbs, action.GetVerb()+" "+action.GetResource().Resource)
		}
	}
	return verbs
}

// outcomesOf returns a line with the name and outcome of each item.
func outcomesOf(items []*Item) (lines []string) {
	for _, item := range items {
		lines = append(lines, fmt.Sprintf("%s %s", item.Name(), item.Outcome))
	}
	return lines
}

var errBroken = errors.New("broken")
