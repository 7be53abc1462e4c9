// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/kindred-project/kindred/internal/controllers"
)

var podKind = schema.GroupKind{Kind: "Pod"}

// informed is an API with pods, and an informer of pods.
type informed struct {
	t      *testing.T
	caches *controllers.Caches
	api    *cachetesting.FakeControllerSource
	pods   toolscache.SharedIndexInformer
}

func newInformed(t *testing.T, caches *controllers.Caches, object runtime.Object) informed {
	api := cachetesting.NewFakeControllerSource()
	t.Cleanup(api.Shutdown)
	made := caches.Watch(scheme.Scheme, toolscache.NewSharedIndexInformer)
	return informed{t, caches, api, made(api, object, 0, nil)}
}

func (i informed) run() {
	go i.pods.RunWithContext(i.t.Context())
	eventually(i.t, "the informer has synced", i.pods.HasSynced)
}

// create returns the resource version of a new pod.
func (i informed) create(name string) string {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	i.api.Add(pod)
	return pod.ResourceVersion
}

func (i informed) seen(version string) func() bool {
	return func() bool {
		seen, known := i.caches.Seen(podKind, version)
		return seen && known
	}
}

func TestSeenFollowsTheInformer(t *testing.T) {
	i := newInformed(t, &controllers.Caches{}, &corev1.Pod{})
	first := i.create("first")
	if seen, known := i.caches.Seen(podKind, first); seen || !known {
		t.Errorf("seen %v, known %v before the informer runs", seen, known)
	}
	i.run()
	eventually(t, "the existing pod is seen", i.seen(first))
	for n := range 20 {
		version := i.create(fmt.Sprint("pod-", n))
		number, err := strconv.Atoi(version)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the new pod is seen", i.seen(version))
		// A list after Seen must have the pod.
		if _, exists, _ := i.pods.GetIndexer().GetByKey(fmt.Sprint("ns/pod-", n)); !exists {
			t.Error("Seen, but the pod is not in the cache")
		}
		if i.seen(strconv.Itoa(number + 1))() {
			t.Error("seen before it was written")
		}
	}
}

// A resource version of a kind with two informers is seen when both have reached it.
func TestSeenAsksAllInformersOfAKind(t *testing.T) {
	caches := &controllers.Caches{}
	whole := newInformed(t, caches, &corev1.Pod{})
	metadata := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	partial := newInformed(t, caches, metadata)
	version := whole.create("pod")
	whole.run()
	eventually(t, "the first informer has reached the version", func() bool { return whole.pods.GetIndexer().LastStoreSyncResourceVersion() == version })
	if whole.seen(version)() {
		t.Error("seen, although one of two informers has not reached it")
	}
	partial.create("pod")
	partial.run()
	eventually(t, "both informers have reached the version", whole.seen(version))
}

func TestSeenOfAnUncachedKind(t *testing.T) {
	for name, caches := range map[string]*controllers.Caches{
		"nothing is cached":       {},
		"another kind is cached":  newInformed(t, &controllers.Caches{}, &corev1.Node{}).caches,
		"another group is cached": newInformed(t, &controllers.Caches{}, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "metrics.k8s.io/v1", Kind: "Pod"}}).caches,
	} {
		if seen, known := caches.Seen(podKind, "1"); !seen || known {
			t.Errorf("%s: seen %v, known %v", name, seen, known)
		}
	}
}
