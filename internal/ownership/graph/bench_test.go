// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxBytes is the memory that an object may use.
const maxBytes = 400

func benchUID(n int) types.UID {
	return types.UID(fmt.Sprintf("%08x-aaaa-4bbb-8ccc-%012x", n*2654435761&0xffffffff, n))
}

// fill observes n objects with names and versions of usual length. Every tenth object owns the
// nine that follow. Every string is newly allocated, as after decoding.
func fill(g *Graph, n int) {
	g.Serve(alphas)
	g.Serve(betas)
	g.Replace(alphas.GroupResource(), nil, "1")
	g.Replace(betas.GroupResource(), nil, "1")
	name := func(i int) string { return fmt.Sprintf("web-frontend-7d9c8b6f5-%05d", i) }
	for i := range n {
		o := metav1.ObjectMeta{
			Namespace: fmt.Sprint("namespace-", i/1000), Name: name(i), UID: benchUID(i), ResourceVersion: strconv.Itoa(1000000 + i),
		}
		r := alphas
		if owner := i - i%10; i%10 != 0 {
			r = betas
			o.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: fmt.Sprint("t/", "v1"), Kind: fmt.Sprint("Al", "pha"), Name: name(owner), UID: benchUID(owner),
				Controller: new(true), BlockOwnerDeletion: new(true),
			}}
		}
		g.Observe(r.GroupResource(), &o)
	}
	for _, ok := g.Next(); ok; _, ok = g.Next() {
	}
}

// heap returns the bytes in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemory limits the graph's memory for each object.
func TestMemory(t *testing.T) {
	const n = 100_000
	before := heap()
	g := New()
	fill(g, n)
	bytes := (heap() - before) / n
	t.Logf("%d bytes an object", bytes)
	if bytes > maxBytes {
		t.Errorf("an object uses %d bytes, at most %d are allowed", bytes, maxBytes)
	}
	runtime.KeepAlive(g)
}

// BenchmarkObserve measures how many objects the graph observes per second.
func BenchmarkObserve(b *testing.B) {
	const n = 100_000
	for range b.N {
		fill(New(), n)
	}
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "objects/s")
}

// BenchmarkCascade measures decisions: all dependents of one owner are deleted, in the background
// and in the foreground, and each deletion is observed.
func BenchmarkCascade(b *testing.B) {
	for _, n := range []int{5_000, 100_000} {
		for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
			b.Run(fmt.Sprint(policy, n), func(b *testing.B) {
				for range b.N {
					b.StopTimer()
					g, owner := broad(n)
					b.StartTimer()
					cascade(b, g, owner, policy, n)
				}
				b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "dependents/s")
			})
		}
	}
}

func broad(n int) (*Graph, *metav1.ObjectMeta) {
	g := New()
	g.Serve(alphas)
	g.Replace(alphas.GroupResource(), nil, "1")
	owner := &metav1.ObjectMeta{Namespace: "one", Name: "owner", UID: benchUID(n), ResourceVersion: "2"}
	g.Observe(alphas.GroupResource(), owner)
	for i := range n {
		g.Observe(alphas.GroupResource(), &metav1.ObjectMeta{
			Namespace: "one", Name: strconv.Itoa(i), UID: benchUID(i), ResourceVersion: strconv.Itoa(i + 3),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "t/v1", Kind: "Alpha", Name: "owner", UID: owner.UID, BlockOwnerDeletion: new(true)}},
		})
	}
	for _, ok := g.Next(); ok; _, ok = g.Next() {
	}
	return g, owner
}

func cascade(b *testing.B, g *Graph, owner *metav1.ObjectMeta, policy metav1.DeletionPropagation, n int) {
	gr := alphas.GroupResource()
	if policy == metav1.DeletePropagationBackground {
		g.Forget(gr, owner)
	} else {
		owner.DeletionTimestamp, owner.Finalizers, owner.ResourceVersion = &metav1.Time{}, []string{metav1.FinalizerDeleteDependents}, strconv.Itoa(n+10)
		g.Observe(gr, owner)
	}
	deleted := 0
	for a, ok := g.Next(); ok; a, ok = g.Next() {
		if a.Verb == RemoveFinalizer {
			break
		}
		deleted++
		g.Done(a, Outcome{Result: Applied})
		g.Forget(gr, &metav1.ObjectMeta{UID: a.UID, ResourceVersion: strconv.Itoa(n + 10 + deleted)})
	}
	if deleted != n {
		b.Fatalf("%d of %d dependents were deleted", deleted, n)
	}
}
