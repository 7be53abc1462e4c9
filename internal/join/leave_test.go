// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
)

func podOf(name, owner string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{NodeName: "n"}}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "o", Controller: new(true)}}
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// drained runs a drain of pods, of which a budget refuses the first eviction of each in refused.
func drained(t *testing.T, force bool, refused []string, pods ...*corev1.Pod) (evicted, waits []string, client *fake.Clientset, err error) {
	t.Helper()
	objects := []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	for _, p := range pods {
		objects = append(objects, p)
	}
	client = fake.NewClientset(objects...)
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		name := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
		if i := slices.Index(refused, name); i >= 0 {
			refused = slices.Delete(refused, i, i+1)
			return true, nil, apierrors.NewTooManyRequests("a budget", 1)
		}
		evicted = append(evicted, name)
		return true, nil, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns", name)
	})
	clock := testingclock.NewFakeClock(time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if clock.HasWaiters() {
				clock.Step(evictionPause)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	err = Drain(ctx, client, "n", force, clock, func(why string) { waits = append(waits, why) })
	slices.Sort(evicted)
	return evicted, waits, client, err
}

func TestDrain(t *testing.T) {
	mirror := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""} }
	over := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	evicted, waits, client, err := drained(t, false, []string{"b"},
		podOf("a", "ReplicaSet"), podOf("b", "StatefulSet"), podOf("c", "DaemonSet"), podOf("d", "", mirror), podOf("e", "", over))
	if err != nil || !slices.Equal(evicted, []string{"a", "b", "e"}) {
		t.Errorf("evicted %v, %v", evicted, err)
	}
	if len(waits) == 0 || !strings.Contains(waits[0], "ns/b") {
		t.Errorf("waits: %q", waits)
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil || !node.Spec.Unschedulable {
		t.Errorf("the node is not cordoned: %v", err)
	}
}

func TestDrainKeepsWhatWouldBeLost(t *testing.T) {
	evicted, _, client, err := drained(t, false, nil, podOf("a", "ReplicaSet"), podOf("lost", ""))
	if err == nil || !strings.Contains(err.Error(), "ns/lost") || len(evicted) > 0 {
		t.Errorf("evicted %v, %v", evicted, err)
	}
	if node, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); err != nil || node.Spec.Unschedulable {
		t.Errorf("the node is cordoned, %v", err)
	}
	if evicted, _, _, err := drained(t, true, nil, podOf("lost", "")); err != nil || !slices.Equal(evicted, []string{"lost"}) {
		t.Errorf("by force: %v, %v", evicted, err)
	}
}
