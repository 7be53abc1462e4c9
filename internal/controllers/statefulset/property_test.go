// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestRandomLives changes StatefulSets and their pods at random, and checks each pass: two pods never
// have the same ordinal, an ordered StatefulSet creates a pod only if all lower ones are available,
// and deletes available pods within maxUnavailable. When the changes end, the StatefulSet has what
// its spec asks for.
func TestRandomLives(t *testing.T) {
	lives := 60
	if testing.Short() {
		lives = 10
	}
	for seed := range uint64(lives) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			set := newSet(int32(rng.IntN(5)), withClaims, maxUnavailable(fmt.Sprint(1+rng.IntN(2))), startingAt(int32(rng.IntN(2))))
			if rng.IntN(2) == 0 {
				parallel(set)
			}
			b := newBench(t, set)
			for range 40 {
				b.disturb(rng)
				b.checkedPass()
			}
			b.settleAll()
		})
	}
}

// disturb changes the StatefulSet or one of its pods at random.
func (b bench) disturb(rng *rand.Rand) {
	pods := b.pods()
	if len(pods) > 0 && rng.IntN(3) > 0 {
		pod := pods[rng.IntN(len(pods))]
		switch n := rng.IntN(8); {
		case n < 5:
			b.advance(pod)
		case n == 5 && pod.DeletionTimestamp == nil:
			pod.Status.Phase, pod.Status.Conditions = corev1.PodFailed, nil
			b.Must(b.API.Status().Update(ctx, pod))
		case n == 6:
			pod.Status.Conditions = nil
			b.Must(b.API.Status().Update(ctx, pod))
		case n == 7:
			b.Must(b.API.Delete(ctx, pod))
		}
		return
	}
	switch rng.IntN(4) {
	case 0:
		b.edit(replicas(int32(rng.IntN(5))))
	case 1:
		b.edit(image(fmt.Sprint("v", rng.IntN(4))))
	case 2:
		b.edit(partition(int32(rng.IntN(3))))
	}
}

// checkedPass reconciles once and checks what the pass did.
func (b bench) checkedPass() {
	b.t.Helper()
	before := map[string]*corev1.Pod{}
	for _, pod := range b.pods() {
		before[string(pod.UID)] = pod
	}
	_, err := b.reconcile()
	b.Must(err)
	set := b.read()
	v := viewOf(set, b.pods()...)
	v.now = b.Clock.Now()
	created, disrupted := 0, 0
	for _, pod := range b.pods() {
		old := before[string(pod.UID)]
		switch {
		case old == nil:
			created++
			b.checkCreated(v, pod)
		case old.DeletionTimestamp == nil && pod.DeletionTimestamp != nil && v.available(replica{pod: old}):
			disrupted++
		}
	}
	if v.ordered() && (created > 1 || disrupted > v.maxUnavailable()) {
		b.t.Fatalf("one pass of an ordered StatefulSet created %d and disrupted %d pods: %s", created, disrupted, b.state())
	}
}

func (b bench) checkCreated(v view, pod *corev1.Pod) {
	b.t.Helper()
	ordinal, ok := ordinalOf(v.set, pod)
	if !ok {
		b.t.Fatalf("created %s", pod.Name)
	}
	for _, claim := range []string{"data-", "log-"} {
		b.claim(claim + pod.Name)
	}
	if !v.ordered() {
		return
	}
	for _, r := range v.replicas {
		if r.ordinal < ordinal && !v.available(r) {
			b.t.Fatalf("%s was created before replica %d was available: %s", pod.Name, r.ordinal, b.state())
		}
	}
}

// settleAll lets pods run and stop until nothing changes, and checks the result.
func (b bench) settleAll() {
	b.t.Helper()
	for _, pod := range b.pods() {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			b.setReady(pod)
		}
	}
	set := b.run()
	v := viewOf(set, b.pods()...)
	v.now = b.Clock.Now()
	if len(v.surplus) > 0 {
		b.t.Errorf("surplus pods are left: %s", b.state())
	}
	for i, r := range v.replicas {
		if !v.available(r) {
			b.t.Fatalf("replica %d is not available: %s", r.ordinal, b.state())
		}
		if template := set.Spec.Template.Spec.Containers[0].Image; i >= v.partition() && r.pod.Spec.Containers[0].Image != template {
			b.t.Errorf("replica %d runs %s, want %s", r.ordinal, r.pod.Spec.Containers[0].Image, template)
		}
	}
	if want := int32(len(v.replicas)); set.Status.AvailableReplicas != want || set.Status.ObservedGeneration != set.Generation {
		b.t.Errorf("status %+v", set.Status)
	}
}
