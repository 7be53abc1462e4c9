// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	clocktesting "k8s.io/utils/clock/testing"
)

var pods = schema.GroupResource{Resource: "pods"}

// past is a store of pods with history.
type past struct {
	*testing.T
	backend *Backend
	pods    storage.Interface
	clock   *clocktesting.FakeClock
}

func newPast(t *testing.T, e Encryption) *past {
	b := open(t, filepath.Join(t.TempDir(), "etcd"))
	t.Cleanup(b.Close)
	if _, err := b.Encrypt(t.Context(), e, "test"); err != nil {
		t.Fatal(err)
	}
	b.compactor.Stop()
	c := clocktesting.NewFakeClock(time.Now())
	b.compactor.clock = c
	return &past{T: t, backend: b, pods: podStorage(t, b), clock: c}
}

// owners are the owners of all pods.
var owners = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", UID: "u"}}

func (p *past) create(name, image string) int64 {
	p.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", OwnerReferences: owners},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
	return p.written(pod, p.pods.Create(p.Context(), podKey(name), pod, pod, 0))
}

func (p *past) update(name, image string) int64 {
	p.Helper()
	pod := &corev1.Pod{}
	return p.written(pod, p.pods.GuaranteedUpdate(p.Context(), podKey(name), pod, false, nil, storage.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) {
		o.(*corev1.Pod).Spec.Containers[0].Image = image
		return o, nil
	}), nil))
}

// delete deletes a pod without a record.
func (p *past) delete(name string) int64 {
	p.Helper()
	pod := &corev1.Pod{}
	return p.written(pod, p.pods.Delete(forGC(p.Context()), podKey(name), pod, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}))
}

func (p *past) written(pod *corev1.Pod, err error) int64 {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
	revision, err := strconv.ParseInt(pod.ResourceVersion, 10, 64)
	if err != nil {
		p.Fatal(err)
	}
	return revision
}

// minute moves the clock by a minute.
func (p *past) minute() {
	p.Helper()
	rounds(p.T, p.clock, 1, p.backend.compactor)
}

func (p *past) image(name string, revision int64) string {
	p.Helper()
	object, err := p.backend.History().At(p.Context(), pods, "default", name, revision)
	if apierrors.IsNotFound(err) {
		return "none"
	}
	if err != nil {
		p.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
		p.Fatal(err)
	}
	if pod.Kind != "Pod" || pod.APIVersion != "v1" || pod.ResourceVersion == "" {
		p.Errorf("at %d it is a %s %s of version %q", revision, pod.APIVersion, pod.Kind, pod.ResourceVersion)
	}
	return pod.Spec.Containers[0].Image
}

func TestPastStates(t *testing.T) {
	for name, e := range map[string]Encryption{"plain": {}, "encrypted": encryptionOf(t, "pods", by("secretbox", "a"))} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t, e)
			created := p.create("a", "one")
			updated := p.update("a", "two")
			other := p.create("b", "three")
			deleted := p.delete("a")
			again := p.create("a", "four")
			for revision, want := range map[int64]string{created - 1: "none", created: "one", updated: "two", other: "two", deleted - 1: "two", deleted: "none", again: "four"} {
				if got := p.image("a", revision); got != want {
					t.Errorf("at %d: %s, want %s", revision, got, want)
				}
			}
			var names []string
			for object, err := range p.backend.History().List(t.Context(), pods, "default", other) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, object.GetName())
			}
			if strings.Join(names, " ") != "a b" {
				t.Errorf("there were %v", names)
			}
		})
	}
}

func TestListsOfThePastHavePages(t *testing.T) {
	p := newPast(t, Encryption{})
	for i := range 2*pageSize + 1 {
		p.create(fmt.Sprintf("p%d", i), "one")
	}
	revision := p.delete("p7") - 1
	for namespace, want := range map[string]int{"": 2*pageSize + 1, "default": 2*pageSize + 1, "def": 0} {
		n := 0
		for _, err := range p.backend.History().List(t.Context(), pods, namespace, revision) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != want {
			t.Errorf("namespace %q had %d pods, want %d", namespace, n, want)
		}
	}
}

// TestFirstStates: the first state of a changed object is known, or that at the oldest retained
// revision.
func TestFirstStates(t *testing.T) {
	p := newPast(t, Encryption{})
	first := func() (images []string) {
		t.Helper()
		for pod, err := range p.backend.History().First(t.Context(), pods, "default", func(_, name string) bool { return name != "unwanted" }) {
			if err != nil {
				t.Fatal(err)
			}
			containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
			images = append(images, fmt.Sprint(pod.GetName(), " ", containers[0].(map[string]any)["image"]))
		}
		return images
	}
	p.create("a", "a1")
	p.create("b", "b1")
	p.create("unwanted", "u1")
	p.create("unchanged", "n1")
	p.update("a", "a2")
	p.update("unwanted", "u2")
	p.update("b", "b2")
	oldest := p.update("a", "a3")
	p.update("a", "a4")
	if got := strings.Join(first(), ", "); got != "a a1, b b1" {
		t.Errorf("first %s", got)
	}
	if _, err := p.backend.client.Client.Compact(t.Context(), oldest); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(first(), ", "); got != "a a3" {
		t.Errorf("after a compaction, first %s", got)
	}
}

func TestLastDeletion(t *testing.T) {
	p := newPast(t, Encryption{})
	find := func(want string, at int64) {
		t.Helper()
		got, err := p.backend.History().LastDeletion(t.Context(), pods, "default", "a")
		if want == "" {
			if !apierrors.IsNotFound(err) {
				t.Errorf("found %v, %v, although nothing was deleted", got, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if image := p.image("a", got.Revision-1); got.Revision != at || image != want {
			t.Errorf("found the deletion of %s at %d, want %s at %d", image, got.Revision, want, at)
		}
		if version := got.Object.GetResourceVersion(); p.image("a", p.revision(version)) != want {
			t.Errorf("the last state has the resourceVersion %s", version)
		}
	}
	p.minute()
	find("", 0)
	p.create("a", "one")
	find("", 0)
	p.minute()
	p.update("a", "two")
	p.create("b", "x")
	first := p.delete("a")
	find("two", first)
	for range 3 {
		p.minute()
		p.update("b", "y")
		p.update("b", "z")
	}
	find("two", first)
	p.create("a", "three")
	find("two", first) // not the deletion of an earlier object: the current one was not deleted
	p.minute()
	p.update("b", "y")
	second := p.delete("a")
	p.create("a", "four")
	find("three", second)
	p.delete("a")
	find("three", second) // the last object existed only between two marks
	p.create("a", "five")
	p.remove(forAlice(t.Context()), "b")
	find("five", p.delete("a")) // so did this one, but it existed when the other object was deleted
}

func (p *past) revision(version string) int64 {
	p.Helper()
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		p.Fatal(err)
	}
	return revision
}

// TestForgottenPast: a revision that is not retained is refused with an error that names the oldest
// retained one, whichever server compacted.
func TestForgottenPast(t *testing.T) {
	p := newPast(t, Encryption{})
	created := p.create("a", "one")
	p.minute()
	p.update("a", "two")
	boundary := p.create("b", "x")
	p.delete("a")
	p.minute()
	if oldest, err := p.backend.History().Oldest(t.Context()); err != nil || oldest != 1 {
		t.Errorf("the oldest revision is %d, %v; nothing was compacted", oldest, err)
	}
	if _, err := p.backend.Client().Compact(t.Context(), boundary, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	history := p.backend.History()
	oldest, err := history.Oldest(t.Context())
	if err != nil || oldest != boundary {
		t.Errorf("the oldest revision is %d, %v, want %d", oldest, err, boundary)
	}
	since := history.Time(oldest).UTC().Format(time.RFC3339)
	_, err = history.At(t.Context(), pods, "default", "a", created)
	if !apierrors.IsResourceExpired(err) || !strings.Contains(err.Error(), fmt.Sprintf("the oldest retained revision is %d of %s", boundary, since)) {
		t.Errorf("at %d: %v", created, err)
	}
	for _, err := range history.List(t.Context(), pods, "", created) {
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("list at %d: %v", created, err)
		}
	}
	if got := p.image("a", boundary); got != "two" {
		t.Errorf("at the oldest revision the image is %s", got)
	}
	if got, err := history.LastDeletion(t.Context(), pods, "default", "a"); err != nil || got.Revision != boundary+1 {
		t.Errorf("the deletion after it: %v, %v", got, err)
	}
	if _, err := history.At(t.Context(), databases, "default", "a", boundary); !apierrors.IsBadRequest(err) {
		t.Errorf("a resource that is not served: %v", err)
	}
}

func TestTimesOfRevisions(t *testing.T) {
	p := newPast(t, Encryption{})
	first := p.create("a", "one")
	p.minute()
	began := p.clock.Now()
	second := p.update("a", "two")
	p.minute()
	history := p.backend.History()
	if got := history.Time(second); !got.Equal(began) {
		t.Errorf("%d was at %s, want %s", second, got, began)
	}
	if got := history.RevisionAt(began.Add(time.Second)); got < first || got >= second {
		t.Errorf("at %s it was revision %d, want from %d to before %d", began, got, first, second)
	}
	if got := history.RevisionAt(began.Add(-time.Hour)); got != 0 {
		t.Errorf("the revision an hour before the first one: %d", got)
	}
}
