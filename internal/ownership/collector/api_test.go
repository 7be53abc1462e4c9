// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// api is an in-memory API server for metadata. Preconditions, finalizers, propagation policies,
// resourceVersions and watches behave as in a real one. It implements metadata.Interface and
// discovery.ServerResourcesInterface.
type api struct {
	mu       sync.Mutex
	version  int
	uids     int
	served   map[schema.GroupVersionResource]metav1.APIResource
	failing  []schema.GroupVersion // discovery fails for these
	objects  map[schema.GroupResource]map[string]*metav1.PartialObjectMetadata
	logs     map[schema.GroupResource][]watch.Event
	watchers map[schema.GroupResource][]*watcher
	requests map[string]int // number of requests, by verb
	// refuse, if set, may fail a request before it reaches the store.
	refuse func(verb string, gvr schema.GroupVersionResource, name string) error
}

type watcher struct {
	events chan watch.Event
	stop   func()
}

func (w *watcher) Stop()                          { w.stop() }
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

func newAPI(resources ...schema.GroupVersionKind) *api {
	a := &api{
		served:   map[schema.GroupVersionResource]metav1.APIResource{},
		objects:  map[schema.GroupResource]map[string]*metav1.PartialObjectMetadata{},
		logs:     map[schema.GroupResource][]watch.Event{},
		watchers: map[schema.GroupResource][]*watcher{},
		requests: map[string]int{},
		refuse:   func(string, schema.GroupVersionResource, string) error { return nil },
	}
	for _, gvk := range resources {
		a.serve(gvk, true)
	}
	return a
}

func (a *api) serve(gvk schema.GroupVersionKind, namespaced bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.served[gvrOf(gvk)] = metav1.APIResource{
		Name: gvrOf(gvk).Resource, Kind: gvk.Kind, Namespaced: namespaced,
		Verbs: metav1.Verbs{"get", "list", "watch", "delete", "patch"},
	}
}

func (a *api) unserve(gvk schema.GroupVersionKind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.served, gvrOf(gvk))
	gr := gvrOf(gvk).GroupResource()
	for _, w := range a.watchers[gr] {
		close(w.events)
	}
	delete(a.watchers, gr)
}

func (a *api) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	lists := map[string]*metav1.APIResourceList{}
	var groups []*metav1.APIGroup
	var all []*metav1.APIResourceList
	failed := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{}}
	for gvr, r := range a.served {
		gv := gvr.GroupVersion()
		if slices.Contains(a.failing, gv) {
			failed.Groups[gv] = errors.New("no answer")
			continue
		}
		if lists[gv.String()] == nil {
			lists[gv.String()] = &metav1.APIResourceList{GroupVersion: gv.String()}
			all = append(all, lists[gv.String()])
			groups = append(groups, &metav1.APIGroup{Name: gv.Group, PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: gv.String()}})
		}
		lists[gv.String()].APIResources = append(lists[gv.String()].APIResources, r)
	}
	if len(failed.Groups) > 0 {
		return groups, all, failed
	}
	return groups, all, nil
}

func (a *api) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return nil, errors.ErrUnsupported
}
func (a *api) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return nil, errors.ErrUnsupported
}
func (a *api) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return nil, errors.ErrUnsupported
}

func (a *api) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return &endpoint{api: a, gvr: gvr}
}

// create stores an object of the given kind.
func (a *api) create(gvk schema.GroupVersionKind, namespace, name string, owners ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uids++
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	o.Namespace, o.Name, o.OwnerReferences = namespace, name, owners
	o.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", a.uids))
	gr := gvrOf(gvk).GroupResource()
	if a.objects[gr] == nil {
		a.objects[gr] = map[string]*metav1.PartialObjectMetadata{}
	}
	a.commit(gr, watch.Added, o)
	return o.DeepCopy()
}

// commit stores or removes o and sends the watch event.
func (a *api) commit(gr schema.GroupResource, change watch.EventType, o *metav1.PartialObjectMetadata) {
	a.version++
	o.ResourceVersion = strconv.Itoa(a.version)
	if change == watch.Modified && o.DeletionTimestamp != nil && len(o.Finalizers) == 0 {
		change = watch.Deleted
	}
	if change == watch.Deleted {
		delete(a.objects[gr], o.Namespace+"/"+o.Name)
	} else {
		a.objects[gr][o.Namespace+"/"+o.Name] = o
	}
	event := watch.Event{Type: change, Object: o.DeepCopy()}
	a.logs[gr] = append(a.logs[gr], event)
	for _, w := range a.watchers[gr] {
		w.events <- event
	}
}

// update changes an object as a user would.
func (a *api) update(gvk schema.GroupVersionKind, namespace, name string, f func(*metav1.PartialObjectMetadata)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	gr := gvrOf(gvk).GroupResource()
	o := a.objects[gr][namespace+"/"+name].DeepCopy()
	f(o)
	a.commit(gr, watch.Modified, o)
}

func (a *api) count(gvk schema.GroupVersionKind) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.objects[gvrOf(gvk).GroupResource()])
}

func (a *api) find(gvk schema.GroupVersionKind, namespace, name string) *metav1.PartialObjectMetadata {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[gvrOf(gvk).GroupResource()][namespace+"/"+name].DeepCopy()
}

// requested returns the number of requests with a verb.
func (a *api) requested(verb string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests[verb]
}

// endpoint is one resource of the api, in one namespace or in all.
type endpoint struct {
	metadata.Getter // for the methods that the collector does not use
	api             *api
	gvr             schema.GroupVersionResource
	namespace       string
}

func (e *endpoint) Namespace(namespace string) metadata.ResourceInterface {
	return &endpoint{api: e.api, gvr: e.gvr, namespace: namespace}
}

// enter begins a request. If it succeeds, the api is locked.
func (e *endpoint) enter(verb, name string) (unlock func(), err error) {
	a := e.api
	a.mu.Lock()
	a.requests[verb]++
	refuse := a.refuse
	if _, ok := a.served[e.gvr]; !ok {
		a.mu.Unlock()
		return nil, apierrors.NewGenericServerResponse(404, verb, e.gvr.GroupResource(), name, "404 page not found", 0, true)
	}
	a.mu.Unlock()
	if err := refuse(verb, e.gvr, name); err != nil {
		return nil, err
	}
	a.mu.Lock()
	return a.mu.Unlock, nil
}

func (e *endpoint) object(name string) (*metav1.PartialObjectMetadata, error) {
	o, ok := e.api.objects[e.gvr.GroupResource()][e.namespace+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(e.gvr.GroupResource(), name)
	}
	return o.DeepCopy(), nil
}

func (e *endpoint) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	unlock, err := e.enter("get", name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return e.object(name)
}

func (e *endpoint) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	unlock, err := e.enter("list", "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	list := &metav1.PartialObjectMetadataList{}
	list.ResourceVersion = strconv.Itoa(e.api.version)
	for _, o := range e.api.objects[e.gvr.GroupResource()] {
		list.Items = append(list.Items, *o.DeepCopy())
	}
	return list, nil
}

func (e *endpoint) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	unlock, err := e.enter("watch", "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	a, gr := e.api, e.gvr.GroupResource()
	since, err := strconv.Atoi(options.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest("resourceVersion: " + err.Error())
	}
	w := &watcher{events: make(chan watch.Event, 1<<17)}
	w.stop = func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if i := slices.Index(a.watchers[gr], w); i >= 0 {
			a.watchers[gr] = slices.Delete(a.watchers[gr], i, i+1)
			close(w.events)
		}
	}
	for _, event := range a.logs[gr] {
		if v, _ := strconv.Atoi(event.Object.(metav1.Object).GetResourceVersion()); v > since {
			w.events <- event
		}
	}
	a.watchers[gr] = append(a.watchers[gr], w)
	return w, nil
}

func (e *endpoint) Delete(_ context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	unlock, err := e.enter("delete", name)
	if err != nil {
		return err
	}
	defer unlock()
	o, err := e.object(name)
	if err != nil {
		return err
	}
	if p := options.Preconditions; p != nil && (p.UID != nil && *p.UID != o.UID || p.ResourceVersion != nil && *p.ResourceVersion != o.ResourceVersion) {
		return apierrors.NewConflict(e.gvr.GroupResource(), name, errors.New("precondition failed"))
	}
	if options.PropagationPolicy != nil {
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool {
			return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
		})
		switch *options.PropagationPolicy {
		case metav1.DeletePropagationForeground:
			o.Finalizers = append(o.Finalizers, metav1.FinalizerDeleteDependents)
		case metav1.DeletePropagationOrphan:
			o.Finalizers = append(o.Finalizers, metav1.FinalizerOrphanDependents)
		}
	}
	if o.DeletionTimestamp == nil {
		o.DeletionTimestamp = new(metav1.Now())
	}
	e.api.commit(e.gvr.GroupResource(), watch.Modified, o)
	return nil
}

func (e *endpoint) Patch(_ context.Context, name string, kind types.PatchType, patch []byte, _ metav1.PatchOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	unlock, err := e.enter("patch", name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	o, err := e.object(name)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil || kind != types.MergePatchType {
		return nil, apierrors.NewBadRequest(fmt.Sprint(kind, err))
	}
	changed := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(after, changed); err != nil {
		return nil, err
	}
	if changed.UID != o.UID || changed.ResourceVersion != o.ResourceVersion {
		return nil, apierrors.NewConflict(e.gvr.GroupResource(), name, errors.New("the object has been modified"))
	}
	e.api.commit(e.gvr.GroupResource(), watch.Modified, changed)
	return changed.DeepCopy(), nil
}
