// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
)

// fakeMemory is the memory of a process with a limit of 1000 MiB.
type fakeMemory struct {
	live, garbage int64
	collections   int
	clock         *clocktesting.FakeClock
	limit         *memoryLimit
}

const mebi = 1 << 20

func newFakeMemory(live, garbage int64) *fakeMemory {
	f := &fakeMemory{live: live * mebi, garbage: garbage * mebi, clock: clocktesting.NewFakeClock(time.Unix(1000, 0))}
	f.limit = &memoryLimit{
		bytes: 1000 * mebi, clock: f.clock,
		needs: needs{stats: func(context.Context, schema.GroupResource) (storage.Stats, error) {
			return storage.Stats{ObjectCount: 100 * 1024, EstimatedAverageObjectSizeBytes: 1 << 10}, nil
		}},
		used:    func() int64 { return f.live + f.garbage },
		collect: func() { f.garbage, f.collections = 0, f.collections+1 },
	}
	return f
}

func TestMemoryReservations(t *testing.T) {
	f := newFakeMemory(500, 100)
	if err := f.limit.reserve(150*mebi, requestShare); err != nil || f.collections != 0 {
		t.Fatalf("600 + 150 of 800 MiB: %v after %d collections", err, f.collections)
	}
	// The garbage is in the way.
	if err := f.limit.reserve(100*mebi, requestShare); err != nil || f.collections != 1 {
		t.Fatalf("500 + 150 + 100 of 800 MiB: %v after %d collections", err, f.collections)
	}
	f.garbage = 30 * mebi
	f.clock.Step(collectPeriod - 1)
	err := f.limit.reserve(40*mebi, requestShare)
	if !apierrors.IsTooManyRequests(err) || f.collections != 1 {
		t.Fatalf("530 + 250 + 40 of 800 MiB: %v after %d collections", err, f.collections)
	}
	for _, want := range []string{"530MiB of the 1000MiB", "need 250MiB", "about 40MiB", "delete unused objects"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if seconds, retry := apierrors.SuggestsClientDelay(err); !retry || seconds != memoryRetry {
		t.Errorf("retry after %d s, %v", seconds, retry)
	}
	f.clock.Step(1)
	if err := f.limit.reserve(40*mebi, requestShare); err != nil || f.collections != 2 {
		t.Errorf("500 + 250 + 40 of 800 MiB: %v after %d collections", err, f.collections)
	}
	f.limit.release(150 * mebi)
	if err := f.limit.reserve(150*mebi, requestShare); err != nil {
		t.Errorf("after a release: %v", err)
	}
}

func TestMemoryOfRequests(t *testing.T) {
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	for _, test := range []struct {
		name         string
		live         int64
		verb, query  string
		accept, user string
		body         int64
		refused      bool
	}{
		{name: "a list of all", live: 600, verb: "list"},
		{name: "a list of all that does not fit", live: 750, verb: "list", refused: true},
		{name: "a table that does not fit", live: 600, verb: "list", accept: table, refused: true},
		{name: "a page", live: 799, verb: "list", query: "limit=500"},
		{name: "a page that does not fit", live: 800, verb: "list", query: "limit=500", refused: true},
		{name: "a short page", live: 990, verb: "list", query: "limit=10"},
		{name: "a past state", live: 550, verb: "list", query: "resourceVersion=5&resourceVersionMatch=Exact", refused: true},
		{name: "a list of one", live: 990, verb: "list", query: "fieldSelector=metadata.name%3Da"},
		{name: "a list of a part", live: 990, verb: "list", user: "system:kube-scheduler"},
		{name: "a watch", live: 799, verb: "watch", query: "resourceVersion=5"},
		{name: "a watch that does not fit", live: 800, verb: "watch", query: "resourceVersion=5", refused: true},
		{name: "a watch of existing objects", live: 790, verb: "watch", refused: true},
		{name: "a small update", live: 990, verb: "update", body: 4 << 10},
		{name: "a large update", live: 790, verb: "update", body: 2 * mebi, refused: true},
		{name: "a body of unknown size", live: 790, verb: "patch", body: -1, refused: true},
		{name: "a get", live: 990, verb: "get"},
		{name: "a deletion", live: 990, verb: "delete"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeMemory(test.live, 0)
			f.limit.needs.maxBody = 3 * mebi
			served := false
			next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })
			r := httptest.NewRequest(http.MethodGet, "/?"+test.query, nil)
			r.ContentLength = test.body
			r.Header.Set("Accept", test.accept)
			info := &request.RequestInfo{IsResourceRequest: true, Verb: test.verb, APIVersion: "v1", Resource: "pods"}
			if strings.Contains(test.query, "metadata.name") {
				info.Name = "a"
			}
			caller := &user.DefaultInfo{Name: test.user}
			if caller.Name == "" {
				caller.Name = "jane"
			}
			ctx := request.WithUser(request.WithRequestInfo(r.Context(), info), caller)
			w := httptest.NewRecorder()
			f.limit.wrap(next, serializer.NewCodecFactory(scheme.Scheme)).ServeHTTP(w, r.WithContext(ctx))
			if served == test.refused || (w.Code == http.StatusTooManyRequests) != test.refused {
				t.Errorf("served %v with code %d, refused should be %v", served, w.Code, test.refused)
			}
			if test.refused && w.Header().Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			if f.limit.reserved != 0 {
				t.Errorf("%d bytes are still reserved", f.limit.reserved)
			}
		})
	}
}

func TestMemoryOfCreations(t *testing.T) {
	attributes := func(resource schema.GroupResource, operation admission.Operation) admission.Attributes {
		return admission.NewAttributesRecord(&corev1.Pod{}, &corev1.Pod{}, schema.GroupVersionKind{}, "", "a", resource.WithVersion("v1"), "", operation, nil, false, nil)
	}
	pods := func(o admission.Operation) admission.Attributes {
		return attributes(schema.GroupResource{Resource: "pods"}, o)
	}
	for _, test := range []struct {
		name    string
		live    int64
		of      admission.Attributes
		refused bool
	}{
		{"a creation", 890, pods(admission.Create), false},
		{"a creation near the limit", 910, pods(admission.Create), true},
		{"an update near the limit", 910, pods(admission.Update), false},
		{"a deletion near the limit", 910, pods(admission.Delete), false},
		{"a lease near the limit", 910, attributes(leases, admission.Create), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := newFakeMemory(test.live, 0).limit.admit(test.of)
			if apierrors.IsTooManyRequests(err) != test.refused || err != nil != test.refused {
				t.Errorf("%v, refused should be %v", err, test.refused)
			}
		})
	}
}

func TestStatsOfAnotherServersResource(t *testing.T) {
	n := needs{stats: func(context.Context, schema.GroupResource) (storage.Stats, error) {
		return storage.Stats{ObjectCount: 5}, errors.New("not found")
	}}
	if got := n.of(&request.RequestInfo{IsResourceRequest: true, Verb: "list", Resource: "widgets"}, httptest.NewRequest(http.MethodGet, "/", nil)); got != 0 {
		t.Errorf("needs %d bytes", got)
	}
}

func BenchmarkMemoryInUse(b *testing.B) {
	for b.Loop() {
		memoryInUse()
	}
}

// TestLargeList: a list of large objects needs memory for the garbage that it makes, although its objects are in the watch cache.
func TestLargeList(t *testing.T) {
	n := needs{stats: func(context.Context, schema.GroupResource) (storage.Stats, error) {
		return storage.Stats{ObjectCount: 10_000, EstimatedAverageObjectSizeBytes: 30 << 10}, nil
	}}
	got := n.of(&request.RequestInfo{IsResourceRequest: true, Verb: "list", Resource: "configmaps"}, httptest.NewRequest(http.MethodGet, "/", nil))
	if got < 300<<20/8 || got > 300<<20/4 {
		t.Errorf("a list of 300 MB needs %d bytes", got)
	}
}
