// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/graph"
	"github.com/kindred-project/kindred/internal/ownership/lint"
)

// record sees every version of every object of Cluster API, its providers, and all Secrets and ConfigMaps, and holds each against the table of
// owners, from the object's first version on. Servers may be killed and start again meanwhile.
type record struct {
	*management
	followers []*follower
	// running are the followers, which ctx ends.
	running sync.WaitGroup
	ctx     context.Context

	mu sync.Mutex
	// pending are the versions that are not judged yet.
	pending []version
	judge   judge
	// missed is set when versions cannot be read any more.
	missed error
}

// recordOwners begins a record. It ends with the test.
func (m *management) recordOwners() *record { return m.recorded(false) }

// recordRestored is recordOwners for objects that a backup tool creates without owners.
func (m *management) recordRestored() *record { return m.recorded(true) }

func (m *management) recorded(restored bool) *record {
	m.Helper()
	r := &record{management: m, judge: judge{restored: restored, objects: map[types.UID]*known{}, firsts: map[string]int{}}}
	resources, kinds, err := r.discover()
	if err != nil {
		m.Fatal(err)
	}
	r.judge.kinds = kinds
	var stop func()
	r.ctx, stop = context.WithCancel(context.Background())
	m.Cleanup(func() {
		stop()
		r.running.Wait()
		r.end()
	})
	for _, resource := range resources {
		r.follow(resource)
	}
	return r
}

// follow begins to record a resource.
func (r *record) follow(resource graph.Resource) *follower {
	r.Helper()
	f := &follower{record: r, resource: resource}
	if err := f.begin(r.ctx); err != nil {
		r.Fatal(err)
	}
	r.followers = append(r.followers, f)
	r.running.Go(func() { f.run(r.ctx) })
	return f
}

// follower returns that of a resource. One that is served since a short while, after an upgrade, has no objects yet.
func (r *record) follower(resource graph.Resource) *follower {
	r.Helper()
	for _, f := range r.followers {
		if f.resource.GroupResource() == resource.GroupResource() {
			return f
		}
	}
	f := r.follow(resource)
	if n := len(f.now.objects); n > 0 {
		r.Fatalf("%s was not served when the record began, and has %d objects", resource.GroupResource(), n)
	}
	return f
}

// end judges the versions since the last check.
func (r *record) end() {
	if r.Failed() || !r.cluster.running() {
		return
	}
	r.judge.all(r.pending)
	if len(r.judge.faults) > 0 || r.missed != nil {
		r.Errorf("at the end, versions of objects had other owners than documented: %s\n%v", strings.Join(r.judge.faults, "\n"), r.missed)
	}
}

// config is that of a client of the server as it runs now: after a restart, it may have another port.
func (r *record) config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", r.cluster.kubeconfig())
	if err == nil {
		config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	}
	return config, err
}

// inventory is the group of what clusterctl has installed, which nothing owns.
const inventory = "clusterctl.cluster.x-k8s.io"

// discover returns the resources to record, and the versions of all kinds.
func (r *record) discover() ([]graph.Resource, map[schema.GroupKind]lint.Kind, error) {
	config, err := r.config()
	if err != nil {
		return nil, nil, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	groups, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return nil, nil, err
	}
	served := map[string][]metav1.APIResource{}
	for _, list := range lists {
		served[list.GroupVersion] = list.APIResources
	}
	var resources []graph.Resource
	kinds := map[schema.GroupKind]lint.Kind{}
	for _, group := range groups {
		for _, v := range append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions...) {
			for _, resource := range served[v.GroupVersion] {
				gk := schema.GroupKind{Group: group.Name, Kind: resource.Kind}
				kind, known := kinds[gk]
				if strings.Contains(resource.Name, "/") || slices.Contains(kind.Versions, v.GroupVersion) {
					continue
				}
				kind.Namespaced, kind.Versions = resource.Namespaced, append(kind.Versions, v.GroupVersion)
				kinds[gk] = kind
				if !known && (clusterapi.Has(group.Name) && group.Name != inventory || group.Name == "" && slices.Contains([]string{"secrets", "configmaps"}, resource.Name)) {
					resources = append(resources, graph.Resource{
						GroupVersionResource: schema.GroupVersionResource{Group: group.Name, Version: v.Version, Resource: resource.Name},
						Kind:                 resource.Kind, Namespaced: resource.Namespaced,
					})
				}
			}
		}
	}
	return resources, kinds, nil
}

// check judges all versions up to now, and returns the faults and the number of versions since the last check.
func (r *record) check() (faults []string, seen int) {
	r.Helper()
	resources, kinds, err := r.discover()
	if err != nil {
		r.Fatal(err)
	}
	complete := uint64(math.MaxUint64)
	for _, resource := range resources {
		f := r.follower(resource)
		r.within(patience, "all versions of "+resource.Resource+" are recorded", func() error {
			revision, err := f.isCurrent()
			complete = min(complete, revision)
			return err
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missed != nil {
		r.Fatal(r.missed)
	}
	var now, later []version
	for _, v := range r.pending {
		if v.initial || v.revision <= complete {
			now = append(now, v)
		} else {
			later = append(later, v)
		}
	}
	r.judge.kinds, r.pending = kinds, later
	r.judge.all(now)
	faults, seen = r.judge.faults, r.judge.seen
	r.judge.faults, r.judge.seen = nil, 0
	return faults, seen
}

// good fails the test if a version since the last check had other owners than documented, or if an object does not get its owners.
func (r *record) good(when string) {
	r.Helper()
	faults, seen := r.check()
	faults = append(faults, r.settle(when)...)
	if len(faults) > 0 {
		r.Errorf("%s, versions of objects had other owners than documented:\n%s", when, strings.Join(faults, "\n"))
	}
	if seen == 0 {
		r.Errorf("%s, no version of any object was recorded", when)
	}
	r.Logf("%s, %d versions were recorded; first owners until now: %v", when, seen, r.judge.firsts)
}

// saw fails the test unless versions since the last check had these faults, each of which is the beginning of one. It waits until all objects have
// their owners again.
func (r *record) saw(when string, want ...string) {
	r.Helper()
	faults, _ := r.check()
	faults = append(faults, r.settle(when)...)
	for _, fault := range want {
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.HasPrefix(f, fault) }) {
			r.Errorf("%s, the record does not have %q:\n%s", when, fault, strings.Join(faults, "\n"))
		}
	}
}

// settle waits until all objects have owners of the table, and returns the faults until then.
func (r *record) settle(when string) (faults []string) {
	r.Helper()
	r.within(provisioning, when+", all objects get their owners", func() error {
		more, _ := r.check()
		faults = append(faults, more...)
		if left := r.judge.unsettled(); len(left) > 0 {
			return errors.New(strings.Join(left, "\n"))
		}
		return nil
	})
	return faults
}

// follower records the objects of a resource.
type follower struct {
	record   *record
	resource graph.Resource
	now      state
}

// state are the objects of a resource at a revision.
type state struct {
	revision uint64
	objects  map[types.UID]version
}

func (s state) equals(other state) bool {
	return maps.EqualFunc(s.objects, other.objects, func(a, b version) bool { return a.revision == b.revision })
}

func parseRevision(text string) uint64 {
	// Cannot fail: the API server wrote it.
	revision, _ := strconv.ParseUint(text, 10, 64)
	return revision
}

func (f *follower) client() (metadata.ResourceInterface, error) {
	config, err := f.record.config()
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.Resource(f.resource.GroupVersionResource), nil
}

// list returns the objects at a revision; 0 is the newest.
func (f *follower) list(ctx context.Context, revision uint64) (state, error) {
	client, err := f.client()
	if err != nil {
		return state{}, err
	}
	options := metav1.ListOptions{}
	if revision > 0 {
		options.ResourceVersion, options.ResourceVersionMatch = strconv.FormatUint(revision, 10), metav1.ResourceVersionMatchExact
	}
	list, err := client.List(ctx, options)
	if err != nil {
		return state{}, err
	}
	s := state{max(revision, parseRevision(list.ResourceVersion)), map[types.UID]version{}}
	for i := range list.Items {
		s.objects[list.Items[i].UID] = versionOf(f.resource, &list.Items[i])
	}
	return s, nil
}

// begin records the objects that exist.
func (f *follower) begin(ctx context.Context) error {
	now, err := f.list(ctx, 0)
	if err != nil {
		return err
	}
	f.now = state{now.revision, map[types.UID]version{}}
	for _, v := range now.objects {
		v.initial = true
		f.add(v)
	}
	return nil
}

// run follows the resource until the test ends. While the server is away, it tries again.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := f.follow(ctx); errors.Is(err, errMissed) {
			f.record.mu.Lock()
			f.record.missed = err
			f.record.mu.Unlock()
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// follow records the events of one watch, from the revision on up to which the record is complete.
func (f *follower) follow(ctx context.Context) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.FormatUint(f.revision(), 10), AllowWatchBookmarks: true})
	if isExpired(err) {
		return f.fill(ctx)
	}
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		m, isObject := event.Object.(*metav1.PartialObjectMetadata)
		switch err := apierrors.FromObject(event.Object); {
		case event.Type == watch.Error && isExpired(err):
			return f.fill(ctx)
		case event.Type == watch.Error || !isObject:
			return err
		case event.Type == watch.Bookmark:
			f.reach(parseRevision(m.ResourceVersion))
		default:
			v := versionOf(f.resource, m)
			v.gone = event.Type == watch.Deleted
			f.add(v)
		}
	}
	return nil
}

func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

func (f *follower) revision() uint64 {
	f.record.mu.Lock()
	defer f.record.mu.Unlock()
	return f.now.revision
}

// reach notes that the record is complete up to a revision.
func (f *follower) reach(revision uint64) {
	f.record.mu.Lock()
	defer f.record.mu.Unlock()
	f.now.revision = max(f.now.revision, revision)
}

// add records a version.
func (f *follower) add(v version) {
	f.record.mu.Lock()
	defer f.record.mu.Unlock()
	f.record.pending = append(f.record.pending, v)
	f.now.revision = max(f.now.revision, v.revision)
	if v.gone {
		delete(f.now.objects, v.object.UID)
	} else {
		f.now.objects[v.object.UID] = v
	}
}

// isCurrent returns the newest revision, and an error unless the record is complete up to it.
func (f *follower) isCurrent() (uint64, error) {
	newest, err := f.list(f.record.Context(), 0)
	if err != nil {
		return newest.revision, err
	}
	f.record.mu.Lock()
	defer f.record.mu.Unlock()
	switch {
	case f.record.missed != nil:
		return newest.revision, f.record.missed
	case !f.now.equals(newest):
		return newest.revision, fmt.Errorf("the record is at revision %d, the newest is %d", f.now.revision, newest.revision)
	}
	return newest.revision, nil
}
