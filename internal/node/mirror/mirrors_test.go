// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/source"
)

func static(hash string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(hash), ResourceVersion: "7", Annotations: map[string]string{source.HashAnnotation: hash}},
		Status:     v1.PodStatus{Phase: v1.PodRunning},
	}
}

func mirrorOf(hash string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "api", Annotations: map[string]string{source.MirrorAnnotation: hash}}}
}

func terminating(p *v1.Pod) *v1.Pod {
	p.DeletionTimestamp = &metav1.Time{}
	return p
}

func ended(p *v1.Pod) *v1.Pod {
	p.Status.Phase = v1.PodSucceeded
	return p
}

func TestNext(t *testing.T) {
	for name, test := range map[string]struct {
		state    state
		allKnown bool
		want     step
	}{
		"nothing":                               {state{}, true, nothing},
		"new":                                   {state{static: static("a")}, false, create},
		"stops, never shown":                    {state{static: terminating(static("a"))}, true, nothing},
		"shown":                                 {state{static("a"), mirrorOf("a")}, false, write},
		"stops":                                 {state{terminating(static("a")), mirrorOf("a")}, true, write},
		"another":                               {state{static("b"), mirrorOf("a")}, false, remove},
		"deleted by a client":                   {state{static("a"), terminating(mirrorOf("a"))}, false, remove},
		"its manifest is back":                  {state{static("a"), ended(mirrorOf("a"))}, true, remove},
		"no static pod, not all pods known yet": {state{mirror: mirrorOf("a")}, false, nothing},
		"no static pod":                         {state{mirror: mirrorOf("a")}, true, remove},
	} {
		if got := test.state.next(test.allKnown); got != test.want {
			t.Errorf("%s: step %d, want %d", name, got, test.want)
		}
	}
}

// statuses records the statuses that are written.
type statuses struct{ written chan v1.PodPhase }

func (s statuses) Write(_ context.Context, p *v1.Pod, status v1.PodStatus) (*v1.Pod, error) {
	s.written <- status.Phase
	return p, nil
}

func (statuses) Delete(context.Context, *v1.Pod) error { return nil }

// A mirror pod belongs to the Node, shows the status of the static pod, and waits for the Node to be registered.
func TestMirrors(t *testing.T) {
	client, written := fake.NewClientset(), make(chan v1.PodPhase, 10)
	uids := make(chan types.UID, 3)
	for _, uid := range []types.UID{"", "", "node-uid"} {
		uids <- uid
	}
	m := New(Options{
		Client: client, Status: statuses{written}, Clock: clock.RealClock{},
		Node: func() *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: <-uids}} },
	})
	m.Changed(static("a"))
	go m.Run(t.Context())
	select {
	case phase := <-written:
		if phase != v1.PodRunning {
			t.Errorf("phase %s was written", phase)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no status was written")
	}
	p, err := client.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Annotations[source.MirrorAnnotation] != "a" || p.UID == "a" || len(p.OwnerReferences) != 1 || p.OwnerReferences[0].UID != "node-uid" || !*p.OwnerReferences[0].Controller {
		t.Errorf("the mirror pod is %+v", p.ObjectMeta)
	}
	m.Gone("default", "web")
	m.AllKnown()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the mirror pod is left: %v", err)
		}
	}
}

// bases returns mirror pods of later versions, and has the versions that it was to change.
type bases struct {
	statuses
	versions []string
}

func (b *bases) Write(_ context.Context, p *v1.Pod, status v1.PodStatus) (*v1.Pod, error) {
	b.versions = append(b.versions, p.ResourceVersion)
	if len(b.versions) > 3 {
		return nil, nil // it is deleted
	}
	written := p.DeepCopy()
	written.ResourceVersion, written.Status = p.ResourceVersion+"0", status
	return written, nil
}

// TestWritesOnTheNewest: each status is compared with what was written last, whether or not the watch has shown that, and is old.
func TestWritesOnTheNewest(t *testing.T) {
	written := &bases{}
	m := New(Options{Status: written, Clock: clock.RealClock{}})
	name := types.NamespacedName{Namespace: "default", Name: "web"}
	at := func(version string) *v1.Pod {
		p := mirrorOf("a")
		p.ResourceVersion = version
		return p
	}
	m.Changed(static("a"))
	for _, seen := range []string{"1", "", "2", "500"} {
		if seen != "" {
			m.Seen(at(seen))
		}
		if err := m.reconcile(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"1", "10", "100", "1000"}; !slices.Equal(written.versions, want) {
		t.Errorf("wrote on versions %v, want %v", written.versions, want)
	}
	if left := m.states[name].mirror; left != nil {
		t.Errorf("the deleted mirror pod is left: %v", left.ResourceVersion)
	}
	m.wrote(at("2000"))
	if m.states[name].mirror != nil {
		t.Error("the deleted mirror pod is back")
	}
}
