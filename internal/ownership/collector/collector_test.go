// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

var (
	configMaps  = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	secrets     = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	crds        = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	databases   = schema.GroupVersionKind{Group: "test.joshua.su", Version: "v1", Kind: "Database"}
	databasesGV = databases.GroupVersion()
)

func gvrOf(gvk schema.GroupVersionKind) schema.GroupVersionResource {
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	return gvr
}

func ownedBy(o *metav1.PartialObjectMetadata) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID, BlockOwnerDeletion: new(true),
	}
}

// start runs a collector on a until the test ends or stop is called. The collector never gives up
// on a kind, because on a busy machine it could then delete an owner before its dependents are
// observed.
func start(t testing.TB, a *api, change func(*Options)) (c *Collector, stop func()) {
	t.Helper()
	options := Options{Metadata: a, Discovery: a, Events: record.NewFakeRecorder(100), Clock: clock.RealClock{}, ListTimeout: time.Hour}
	if change != nil {
		change(&options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c = New(options)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	select {
	case <-c.Synced():
	case <-time.After(10 * time.Second):
		t.Fatal("the collector does not sync")
	}
	return c, stop
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

func remove(t testing.TB, a *api, o *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) {
	t.Helper()
	err := a.Resource(gvrOf(o.GroupVersionKind())).Namespace(o.Namespace).
		Delete(context.Background(), o.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPolicies(t *testing.T) {
	tests := []struct {
		policy metav1.DeletionPropagation
		left   int
		// The maximum numbers of requests for a cascade over 50 dependents.
		deletes, gets, patches int
	}{
		{policy: metav1.DeletePropagationBackground, deletes: 51},
		{policy: metav1.DeletePropagationForeground, deletes: 51, patches: 1},
		{policy: metav1.DeletePropagationOrphan, left: 50, deletes: 1, patches: 51},
	}
	for _, test := range tests {
		t.Run(string(test.policy), func(t *testing.T) {
			a := newAPI(configMaps, secrets)
			owner := a.create(configMaps, "default", "owner")
			for i := range 50 {
				a.create(secrets, "default", fmt.Sprint("dependent-", i), ownedBy(owner))
			}
			start(t, a, nil)
			remove(t, a, owner, test.policy)
			eventually(t, "owner gone", func() bool { return a.count(configMaps) == 0 })
			eventually(t, "dependents", func() bool { return a.count(secrets) == test.left })
			for i := range test.left {
				if o := a.find(secrets, "default", fmt.Sprint("dependent-", i)); len(o.OwnerReferences) > 0 {
					t.Errorf("%s still has %v", o.Name, o.OwnerReferences)
				}
			}
			got := [3]int{a.requested("delete"), a.requested("get"), a.requested("patch")}
			if want := [3]int{test.deletes, test.gets, test.patches}; got != want {
				t.Errorf("deletes, gets, patches: got %v, want %v", got, want)
			}
		})
	}
}

// TestAdoptedDuringDeletion changes a dependent after the collector has decided to delete it: the
// precondition fails, and the new owner keeps the dependent.
func TestAdoptedDuringDeletion(t *testing.T) {
	a := newAPI(configMaps, secrets)
	owner := a.create(configMaps, "default", "owner")
	other := a.create(configMaps, "default", "other")
	a.create(secrets, "default", "dependent", ownedBy(owner))
	adopted := false
	a.refuse = func(verb string, gvr schema.GroupVersionResource, name string) error {
		if verb == "delete" && name == "dependent" && !adopted {
			adopted = true
			a.update(secrets, "default", "dependent", func(o *metav1.PartialObjectMetadata) {
				o.OwnerReferences = append(o.OwnerReferences, ownedBy(other))
			})
		}
		return nil
	}
	start(t, a, func(o *Options) { o.Workers = 1 })
	remove(t, a, owner, metav1.DeletePropagationBackground)
	eventually(t, "the dangling reference dropped", func() bool {
		o := a.find(secrets, "default", "dependent")
		return o != nil && len(o.OwnerReferences) == 1 && o.OwnerReferences[0].UID == other.UID
	})
}

// TestNewKind adds a kind while the collector runs. Its objects are collected within a second, and
// earlier references to it are resolved.
func TestNewKind(t *testing.T) {
	a := newAPI(configMaps, crds)
	bogus := metav1.OwnerReference{APIVersion: databasesGV.String(), Kind: "Database", Name: "gone", UID: "00000000-0000-4000-8000-00000000dead"}
	a.create(configMaps, "default", "early", bogus)
	start(t, a, func(o *Options) { o.RefreshPeriod = time.Hour })
	time.Sleep(50 * time.Millisecond)
	if a.count(configMaps) != 1 {
		t.Fatal("an object was deleted although its owner's kind is not served")
	}

	a.create(crds, "", "databases.test.joshua.su")
	time.Sleep(100 * time.Millisecond) // discovery after the CRD's event does not find the kind yet
	a.serve(databases, true)
	served := time.Now()
	postgres := a.create(databases, "default", "postgres")
	a.create(configMaps, "default", "postgres-cm", ownedBy(postgres))
	remove(t, a, postgres, metav1.DeletePropagationBackground)
	eventually(t, "collected", func() bool { return a.count(configMaps) == 0 })
	if took := time.Since(served); took > time.Second {
		t.Errorf("collected %v after the kind was served", took)
	}
}

// TestRemovedKindDoesNotBlockOthers removes a kind that has dependents and an owner in foreground
// deletion.
func TestRemovedKindDoesNotBlockOthers(t *testing.T) {
	a := newAPI(configMaps, secrets, databases)
	owner := a.create(configMaps, "default", "owner")
	a.create(databases, "default", "postgres", ownedBy(owner))
	kept := a.create(databases, "default", "kept")
	a.create(secrets, "default", "owned-by-removed-kind", ownedBy(kept))
	a.create(secrets, "default", "dependent", ownedBy(owner))
	start(t, a, func(o *Options) { o.RefreshPeriod = 20 * time.Millisecond })
	a.unserve(databases)
	time.Sleep(100 * time.Millisecond)
	remove(t, a, owner, metav1.DeletePropagationForeground)
	eventually(t, "owner gone", func() bool { return a.count(configMaps) == 0 })
	if a.count(secrets) != 1 || a.find(secrets, "default", "owned-by-removed-kind") == nil {
		t.Error("want only the secret whose owner's kind was removed")
	}
}

// TestUnlistableKindDoesNotBlockOthers has a kind whose list requests fail, as a broken conversion
// webhook causes. Owners of this kind are read with GET.
func TestUnlistableKindDoesNotBlockOthers(t *testing.T) {
	a := newAPI(configMaps, secrets, databases)
	a.refuse = func(verb string, gvr schema.GroupVersionResource, _ string) error {
		if gvr == gvrOf(databases) && (verb == "list" || verb == "watch") {
			return apierrors.NewInternalError(errors.New("conversion webhook failed"))
		}
		return nil
	}
	owner := a.create(configMaps, "default", "owner")
	a.create(secrets, "default", "dependent", ownedBy(owner))
	alive := a.create(databases, "default", "alive")
	a.create(secrets, "default", "owner-exists", ownedBy(alive))
	dead := ownedBy(alive)
	dead.UID = "00000000-0000-4000-8000-00000000dead"
	a.create(secrets, "default", "owner-absent", dead)
	// Lists fail, so the collector gives up after a tenth of ListTimeout.
	start(t, a, func(o *Options) { o.ListTimeout = 5 * time.Second })
	remove(t, a, owner, metav1.DeletePropagationForeground)
	eventually(t, "owner gone", func() bool { return a.count(configMaps) == 0 })
	eventually(t, "one secret left", func() bool { return a.count(secrets) == 1 })
	if a.find(secrets, "default", "owner-exists") == nil {
		t.Error("a dependent was deleted although its owner exists")
	}
	remove(t, a, alive, metav1.DeletePropagationBackground)
	eventually(t, "no secret left", func() bool { return a.count(secrets) == 0 })
}

// TestGivingUpIsLoggedOnce: a kind that the collector gives up on is logged once, and no other kind
// is.
func TestGivingUpIsLoggedOnce(t *testing.T) {
	var warnings bytes.Buffer
	defer klog.CaptureState().Restore()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.SetOutputBySeverity("WARNING", &warnings)
	a := newAPI(configMaps, databases)
	a.refuse = func(verb string, gvr schema.GroupVersionResource, _ string) error {
		if gvr == gvrOf(databases) && (verb == "list" || verb == "watch") {
			return apierrors.NewInternalError(errors.New("conversion webhook failed"))
		}
		return nil
	}
	_, stop := start(t, a, func(o *Options) { o.ListTimeout, o.RefreshPeriod = time.Second, 5*time.Millisecond })
	time.Sleep(300 * time.Millisecond) // the kind still cannot be listed
	stop()
	klog.Flush()
	var logged []string
	for line := range strings.Lines(warnings.String()) {
		if strings.HasPrefix(line, "W") && strings.Contains(line, "no longer waits for it") {
			logged = append(logged, line)
		}
	}
	if len(logged) != 1 || !strings.Contains(logged[0], "cannot list databases.test.joshua.su") {
		t.Errorf("logged %q", logged)
	}
}

// TestEventsAsOwners: events are not watched, but the kind is served, so an owner that is an event
// is looked up.
func TestEventsAsOwners(t *testing.T) {
	events := schema.GroupVersionKind{Version: "v1", Kind: "Event"}
	a := newAPI(configMaps, events)
	alive := a.create(events, "default", "alive")
	dead := ownedBy(alive)
	dead.Name, dead.UID = "dead", "00000000-0000-4000-8000-00000000dead"
	a.create(configMaps, "default", "owner-exists", ownedBy(alive))
	a.create(configMaps, "default", "owner-absent", dead)
	a.refuse = func(verb string, gvr schema.GroupVersionResource, _ string) error {
		if gvr == gvrOf(events) && verb != "get" {
			t.Errorf("the collector sent a %s request for events", verb)
		}
		return nil
	}
	c, _ := start(t, a, nil)
	eventually(t, "the dependent of an event that is gone goes", func() bool { return a.count(configMaps) == 1 })
	if a.find(configMaps, "default", "owner-exists") == nil {
		t.Error("the dependent of an existing event was deleted")
	}
	c.View(func(g *graph.Graph) {
		if r, served := g.Served(events.GroupKind()); !served || r.Watched {
			t.Errorf("events are served: %v, %+v", served, r)
		}
	})
}

// TestUnansweredDiscovery: if discovery of an aggregated server fails, its kinds do not count as
// removed.
func TestUnansweredDiscovery(t *testing.T) {
	a := newAPI(configMaps, databases)
	postgres := a.create(databases, "default", "postgres")
	a.create(configMaps, "default", "cm", ownedBy(postgres))
	start(t, a, func(o *Options) { o.RefreshPeriod = 5 * time.Millisecond })
	a.mu.Lock()
	a.failing = append(a.failing, databasesGV)
	a.mu.Unlock()
	time.Sleep(50 * time.Millisecond)
	remove(t, a, postgres, metav1.DeletePropagationBackground)
	eventually(t, "collected", func() bool { return a.count(configMaps) == 0 })
}

// TestFailedWritesAreRetried refuses the first write to each object.
func TestFailedWritesAreRetried(t *testing.T) {
	a := newAPI(configMaps, secrets)
	owner := a.create(configMaps, "default", "owner")
	for i := range 20 {
		a.create(secrets, "default", fmt.Sprint("dependent-", i), ownedBy(owner))
	}
	start(t, a, func(o *Options) { o.Workers = 4 })
	remove(t, a, owner, metav1.DeletePropagationForeground)
	refused := map[string]bool{}
	a.mu.Lock()
	a.refuse = func(verb string, _ schema.GroupVersionResource, name string) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if (verb == "delete" || verb == "patch") && !refused[name] {
			refused[name] = true
			return apierrors.NewInternalError(errors.New("try again"))
		}
		return nil
	}
	a.mu.Unlock()
	eventually(t, "all gone", func() bool { return a.count(configMaps)+a.count(secrets) == 0 })
}

// TestRestart repeatedly stops the collector during cascades.
func TestRestart(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		t.Run(string(policy), func(t *testing.T) {
			a := newAPI(configMaps, secrets)
			owner := a.create(configMaps, "default", "owner")
			for i := range 300 {
				a.create(secrets, "default", fmt.Sprint("dependent-", i), ownedBy(owner))
			}
			_, stop := start(t, a, func(o *Options) { o.Workers = 2 })
			remove(t, a, owner, policy)
			for a.count(configMaps) > 0 || policy == metav1.DeletePropagationBackground && a.count(secrets) > 0 {
				stop()
				_, stop = start(t, a, func(o *Options) { o.Workers = 2 })
				time.Sleep(2 * time.Millisecond)
			}
			want := 0
			if policy == metav1.DeletePropagationOrphan {
				want = 300
			}
			eventually(t, "dependents", func() bool { return a.count(secrets) == want })
		})
	}
}

// TestStartKnowsAllKinds restarts the collector repeatedly during an orphaning deletion. Whichever
// kind is listed first, dependents of the other kind are not lost.
func TestStartKnowsAllKinds(t *testing.T) {
	for i := range 200 {
		a := newAPI(configMaps, secrets)
		owner := a.create(configMaps, "default", "owner")
		a.create(secrets, "default", "dependent", ownedBy(owner))
		remove(t, a, owner, metav1.DeletePropagationOrphan)
		_, stop := start(t, a, func(o *Options) { o.Workers = 1 })
		eventually(t, "the owner goes", func() bool { return a.count(configMaps) == 0 })
		stop()
		if o := a.find(secrets, "default", "dependent"); o == nil || len(o.OwnerReferences) > 0 {
			t.Fatalf("start %d: %v, want the dependent without the owner", i, o)
		}
	}
}

// TestStartAwaitsCustomResources starts the collector during an orphaning deletion, before the kind
// of the dependent is served, as after a restart of the API server. The owner waits for it.
func TestStartAwaitsCustomResources(t *testing.T) {
	a := newAPI(configMaps, databases)
	owner := a.create(configMaps, "default", "owner")
	a.create(databases, "default", "dependent", ownedBy(owner))
	remove(t, a, owner, metav1.DeletePropagationOrphan)
	a.unserve(databases)
	start(t, a, func(o *Options) {
		o.Served = func(context.Context) error {
			time.Sleep(50 * time.Millisecond) // the collector has listed the ConfigMaps by then
			if a.count(configMaps) != 1 {
				t.Error("the owner is gone before its dependent's kind is served")
			}
			a.serve(databases, true)
			return nil
		}
	})
	eventually(t, "the owner goes", func() bool { return a.count(configMaps) == 0 })
	if o := a.find(databases, "default", "dependent"); o == nil || len(o.OwnerReferences) > 0 {
		t.Errorf("%v, want the dependent without the owner", o)
	}
}

func TestInvalidNamespaceIsReported(t *testing.T) {
	a := newAPI(configMaps, secrets)
	owner := a.create(configMaps, "one", "owner")
	events, book := record.NewFakeRecorder(10), &notebook{records: map[string]deletion.Record{}}
	start(t, a, func(o *Options) { o.Events, o.Records = events, book })
	a.create(secrets, "two", "dependent", ownedBy(owner))
	want := `Warning OwnerRefInvalidNamespace ownerRef [v1/ConfigMap, namespace: two, name: owner, uid: ` + string(owner.UID) + `] does not exist in namespace "two"`
	select {
	case got := <-events.Events:
		if !strings.HasPrefix(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no event")
	}
	eventually(t, "treated as absent", func() bool { return a.count(secrets) == 0 })
	eventually(t, "recorded", func() bool { return book.size() == 1 })
	if r := book.records["dependent"]; !slices.Equal(r.InOtherNamespace, []types.UID{owner.UID}) {
		t.Errorf("the record does not have the owner in InOtherNamespace: %+v", r)
	}
}

// BenchmarkBackground measures the collector alone, with 5,000 dependents per round and an
// in-memory store.
func BenchmarkBackground(b *testing.B) {
	benchmark(b, metav1.DeletePropagationBackground)
}

func BenchmarkForeground(b *testing.B) {
	benchmark(b, metav1.DeletePropagationForeground)
}

func benchmark(b *testing.B, policy metav1.DeletionPropagation) {
	const dependents = 5000
	for range b.N {
		b.StopTimer()
		a := newAPI(configMaps, secrets)
		owner := a.create(configMaps, "default", "owner")
		for i := range dependents {
			a.create(secrets, "default", fmt.Sprint("dependent-", i), ownedBy(owner))
		}
		_, stop := start(b, a, nil)
		b.StartTimer()
		remove(b, a, owner, policy)
		for a.count(secrets)+a.count(configMaps) > 0 {
			time.Sleep(time.Millisecond)
		}
		b.StopTimer()
		stop()
	}
	b.ReportMetric(float64(b.N*dependents)/b.Elapsed().Seconds(), "dependents/s")
}
