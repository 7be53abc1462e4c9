// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are deprecated, but users still write them.

package endpointslicemirroring

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kindred-project/kindred/internal/controllers/framework/backends"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "web"}
)

func newService() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}
}

type bench struct {
	*controltest.World
	*reconciler
	t *testing.T
}

func newBench(t *testing.T, objs ...client.Object) bench {
	w := controltest.New(t, objs...)
	return bench{w, newReconciler(w.Env(), w.Seen), t}
}

// reconcile reconciles twice, before and after the cache has the writes, and returns the slices.
func (b bench) reconcile() []*discoveryv1.EndpointSlice {
	b.t.Helper()
	var once []*discoveryv1.EndpointSlice
	for _, step := range []func(...client.ObjectList){func(...client.ObjectList) {}, b.Sync} {
		step()
		_, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		b.Must(err)
		found := &discoveryv1.EndpointSliceList{}
		b.Must(b.API.List(ctx, found))
		var all []*discoveryv1.EndpointSlice
		for i := range found.Items {
			all = append(all, &found.Items[i])
		}
		if once != nil {
			if diff := cmp.Diff(versions(once), versions(all)); diff != "" {
				b.t.Errorf("the second time writes: %s", diff)
			}
		}
		once = all
	}
	return once
}

func versions(all []*discoveryv1.EndpointSlice) (out []string) {
	for _, slice := range all {
		out = append(out, slice.Name+" "+slice.ResourceVersion)
	}
	return out
}

func (b bench) change(change func(*corev1.Endpoints)) {
	endpoints := &corev1.Endpoints{}
	b.Must(b.API.Get(ctx, key, endpoints))
	change(endpoints)
	b.Must(b.API.Update(ctx, endpoints))
	b.Sync()
}

func (b bench) expect(when string, want ...string) []*discoveryv1.EndpointSlice {
	b.t.Helper()
	got := b.reconcile()
	if diff := cmp.Diff(want, texts(got)); diff != "" {
		b.t.Errorf("%s: %s", when, diff)
	}
	return got
}

func TestEndpointsAreMirrored(t *testing.T) {
	b := newBench(t, newService(), newEndpoints(t, "80/http 10.0.0.1 fd00::1"))
	b.Sync()
	first := b.expect("created", "80/http 10.0.0.1", "80/http fd00::1")
	if got := backends.ServiceOfSlice(managedBy)(ctx, first[0]); len(got) != 1 || got[0].NamespacedName != key {
		t.Errorf("the slice wakes %v", got)
	}
	b.change(func(e *corev1.Endpoints) { e.Subsets[0] = subset(t, "81 10.0.0.1 !10.0.0.2") })
	second := b.expect("other ports and addresses", "81 10.0.0.1 !10.0.0.2")
	if !slices.ContainsFunc(first, func(s *discoveryv1.EndpointSlice) bool { return s.UID == second[0].UID }) {
		t.Error("a slice was created instead of changed")
	}
	b.change(func(e *corev1.Endpoints) { e.Labels = map[string]string{"team": "a"} })
	if got := b.expect("a label", "81 10.0.0.1 !10.0.0.2"); got[0].Labels["team"] != "a" {
		t.Errorf("labels %v", got[0].Labels)
	}
	second[0].Endpoints = nil
	second[0].ResourceVersion = ""
	b.Must(b.API.Update(ctx, second[0]))
	b.Sync()
	b.expect("a slice that somebody has changed", "81 10.0.0.1 !10.0.0.2")
	b.change(func(e *corev1.Endpoints) { e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"} })
	b.expect("not to be mirrored any more")
	b.change(func(e *corev1.Endpoints) { e.Labels = nil })
	b.expect("again", "81 10.0.0.1 !10.0.0.2")

	service := newService()
	service.Spec.Selector = map[string]string{"app": "web"}
	b.Must(b.API.Update(ctx, service))
	b.Sync()
	b.expect("a selector")
	service = newService()
	b.Must(b.API.Update(ctx, service))
	b.Sync()
	b.expect("no selector", "81 10.0.0.1 !10.0.0.2")
	b.Must(b.API.Delete(ctx, service))
	b.Sync()
	b.expect("no Service")
}

func TestEventsOfAddressesThatAreNotMirrored(t *testing.T) {
	endpoints := newEndpoints(t, "80 10.0.0.1")
	endpoints.Subsets[0].Addresses = append(endpoints.Subsets[0].Addresses, corev1.EndpointAddress{IP: "none"})
	b := newBench(t, newService(), endpoints)
	b.Sync()
	b.expect("one of two", "80 10.0.0.1")
	if got := b.Events(); len(got) == 0 || !strings.Contains(got[0], "InvalidIPAddress") || !strings.Contains(got[0], "Skipped 1 invalid IP addresses when mirroring to EndpointSlices") {
		t.Errorf("events %v", got)
	}
}

// TestForeignSlices: slices of others are left alone, even if they name the same Service.
func TestForeignSlices(t *testing.T) {
	foreign := newSlice(newEndpoints(t), discoveryv1.AddressTypeIPv4, nil)
	foreign.Name, foreign.Labels[discoveryv1.LabelManagedBy] = "theirs", "me"
	b := newBench(t, newService(), newEndpoints(t, "80 10.0.0.1"), foreign)
	b.Sync()
	b.expect("beside another", "", "80 10.0.0.1")
}

func TestPredicates(t *testing.T) {
	plain, skipped := newEndpoints(t), newEndpoints(t)
	skipped.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"}
	without, with := newService(), newService()
	with.Spec.Selector = map[string]string{"a": "b"}
	changes, selectors := mirroredChanges(), selectorChanges()
	for name, got := range map[string]bool{
		"new Endpoints":      changes.Create(event.CreateEvent{Object: plain}) && !changes.Create(event.CreateEvent{Object: skipped}),
		"changed Endpoints":  changes.Update(event.UpdateEvent{ObjectOld: plain, ObjectNew: skipped}) && !changes.Update(event.UpdateEvent{ObjectOld: skipped, ObjectNew: skipped}),
		"deleted Endpoints":  changes.Delete(event.DeleteEvent{Object: plain}) && !changes.Delete(event.DeleteEvent{Object: skipped}),
		"a new Service":      selectors.Create(event.CreateEvent{Object: without}) && !selectors.Create(event.CreateEvent{Object: with}),
		"a Service's change": selectors.Update(event.UpdateEvent{ObjectOld: without, ObjectNew: with}) && !selectors.Update(event.UpdateEvent{ObjectOld: with, ObjectNew: with}),
		"a deleted Service":  selectors.Delete(event.DeleteEvent{Object: without}) && !selectors.Delete(event.DeleteEvent{Object: with}),
	} {
		if !got {
			t.Errorf("%s: wrong", name)
		}
	}
}
