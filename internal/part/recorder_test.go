// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package part

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// broadcasters returns how many broadcasters of events run.
func broadcasters() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "watch.(*Broadcaster).loop(")
}

// TestRecorder: events are written one after another, by a broadcaster that the first one needs.
func TestRecorder(t *testing.T) {
	written := make(chan string, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event corev1.Event
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			t.Error(err)
		}
		written <- fmt.Sprint(r.Method, " ", r.URL.Path, ": ", event.Type, " ", event.Reason, " ", event.Message, " by ", event.Source.Component, " ", event.Annotations)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		if err := json.NewEncoder(w).Encode(event); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	recorder, err := Recorder(t.Context(), config, "tester")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the context is done
		for broadcasters() > 0 {
			runtime.Gosched()
		}
	})
	if n := broadcasters(); n != 0 {
		t.Errorf("%d broadcasters run before the first event", n)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"}}
	recorder.Event(pod, corev1.EventTypeNormal, "A", "plain")
	recorder.Eventf(pod, corev1.EventTypeWarning, "B", "with %d", 2)
	recorder.AnnotatedEventf(pod, map[string]string{"a": "b"}, corev1.EventTypeNormal, "C", "and %s", "more")
	if n := broadcasters(); n != 1 {
		t.Errorf("%d broadcasters run after three events", n)
	}
	got := []string{<-written, <-written, <-written}
	const to = "POST /api/v1/namespaces/n/events: "
	want := []string{to + "Normal A plain by tester map[]", to + "Warning B with 2 by tester map[]", to + "Normal C and more by tester map[a:b]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
