// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// TestConcurrentUndeletion runs a second undeletion of the same root before each request of the
// first one. Both must complete and count the same objects.
func TestConcurrentUndeletion(t *testing.T) {
	want := []string{"root Restored", "child Restored", "grandchild Restored"}
	for before := 1; ; before++ {
		a := newArchive(t, rand.New(rand.NewPCG(1, 0)))
		uid := a.create(object("ConfigMap", "root"))
		refs := func(kind, name string) []metav1.OwnerReference {
			return []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: name, UID: uid, Controller: new(true)}}
		}
		child := object("Secret", "child")
		child.SetOwnerReferences(refs("ConfigMap", "root"))
		uid = a.create(child)
		grandchild := object("Secret", "grandchild", set("x", "status", "seen"))
		grandchild.SetOwnerReferences(refs("Secret", "child"))
		a.create(grandchild)
		picture := a.picture()
		a.ask(nameOf(object("ConfigMap", "root")), metav1.DeletePropagationBackground)
		a.collect()

		requests, other := 0, (*Report)(nil)
		second := *a.cluster
		second.Caller = a.client() // The first undeletion's client is busy with its request.
		second.Objects = second.Caller
		a.cluster.Caller.(*dynamicfake.FakeDynamicClient).PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			if requests++; requests != before {
				return false, nil, nil
			}
			var err error
			if other, err = second.Run(t.Context(), request("ConfigMap", "root")); err != nil || other.Phase != ownership.UndeletionComplete {
				t.Errorf("before request %d, the second undeletion: %v, %+v", before, err, other)
			}
			return false, nil, nil
		})
		report, err := a.cluster.Run(t.Context(), request("ConfigMap", "root"))
		if err != nil {
			t.Fatalf("before request %d: %v", before, err)
		}
		said := outcomesOf(report.Items)
		already := slices.Equal(said, []string{"root Unchanged"})
		if report.Phase != ownership.UndeletionComplete || !already && !slices.Equal(said, want) {
			t.Errorf("before request %d: %s, %q, %v", before, report.Phase, report.Problems, said)
		}
		if now := a.picture(); now != picture {
			t.Errorf("before request %d:\n%s", before, fmt.Sprint(now))
		}
		if other == nil {
			if before < 10 {
				t.Errorf("an undeletion makes %d requests", before)
			}
			return
		}
	}
}

// turns lets two undeletions use the cluster one at a time, alternating at random.
type turns struct {
	mu      sync.Mutex
	changed *sync.Cond
	rand    *rand.Rand
	active  int
	ended   [2]bool
}

func newTurns(random *rand.Rand) *turns {
	t := &turns{rand: random, active: random.IntN(2)}
	t.changed = sync.NewCond(&t.mu)
	return t
}

// take waits for an undeletion's turn and returns the function that ends the turn.
func (t *turns) take(who int) (done func()) {
	t.mu.Lock()
	for t.active != who && !t.ended[1-who] {
		t.changed.Wait()
	}
	return func() {
		if t.rand.IntN(4) == 0 {
			t.active = 1 - who
		}
		t.changed.Broadcast()
		t.mu.Unlock()
	}
}

func (t *turns) end(who int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended[who] = true
	t.changed.Broadcast()
}

// player gives an undeletion access to an archive only in its turns.
type player struct {
	*archive
	turns *turns
	who   int
}

func (a *archive) player(turns *turns, who int) *Cluster {
	p := &player{a, turns, who}
	client := a.client()
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		defer p.turns.take(who)()
		return a.react(action)
	})
	cluster := *a.cluster
	cluster.History, cluster.Records, cluster.Owner, cluster.Objects, cluster.Caller = p, p, p.owner, client, client
	return &cluster
}

func (p *player) owner(uid types.UID) (graph.Object, bool) {
	defer p.turns.take(p.who)()
	return p.archive.owner(uid)
}

func (p *player) Pin(ctx context.Context, revision int64) (func(), error) {
	defer p.turns.take(p.who)()
	unpin, err := p.archive.Pin(ctx, revision)
	return func() {
		defer p.turns.take(p.who)()
		unpin()
	}, err
}

func (p *player) At(ctx context.Context, r schema.GroupResource, namespace, name string, revision int64) (*unstructured.Unstructured, error) {
	defer p.turns.take(p.who)()
	return p.archive.At(ctx, r, namespace, name, revision)
}

func (p *player) List(ctx context.Context, r schema.GroupResource, namespace string, revision int64) iter.Seq2[*unstructured.Unstructured, error] {
	defer p.turns.take(p.who)()
	var objects []*unstructured.Unstructured
	for o := range p.archive.List(ctx, r, namespace, revision) {
		objects = append(objects, o)
	}
	return func(yield func(*unstructured.Unstructured, error) bool) {
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (p *player) LastDeletion(ctx context.Context, r schema.GroupResource, namespace, name string) (*deletion.End, error) {
	defer p.turns.take(p.who)()
	return p.archive.LastDeletion(ctx, r, namespace, name)
}

func (p *player) Restored(ctx context.Context, namespace string) ([]deletion.Restoration, []deletion.LostReference, error) {
	defer p.turns.take(p.who)()
	restored, lost, err := p.archive.Restored(ctx, namespace)
	return slices.Clone(restored), slices.Clone(lost), err
}

func (p *player) AddRestored(ctx context.Context, restored []deletion.Restoration, lost []deletion.LostReference) error {
	defer p.turns.take(p.who)()
	return p.archive.AddRestored(ctx, restored, lost)
}

func (p *player) ForgetLost(ctx context.Context, found []deletion.LostReference) error {
	defer p.turns.take(p.who)()
	return p.archive.ForgetLost(ctx, found)
}

// TestTwoAtOnce runs two clients that each undelete two objects at the same time, with their
// requests in random order. If both report completion, everything is restored; otherwise it is
// after a retry.
func TestTwoAtOnce(t *testing.T) {
	for n := range uint64(*graphs) {
		n += *seed
		if t.Run(fmt.Sprint(n), func(t *testing.T) {
			a := newArchive(t, rand.New(rand.NewPCG(n, 1)))
			a.populate(2 + a.rand.IntN(5))
			before := a.picture()
			asked, story := a.deleteSome()
			allComplete := true
			for pair := range slices.Chunk(asked, 2) {
				story = append(story, fmt.Sprint("undelete at once ", pair))
				allComplete = a.undeleteAtOnce(pair, &story) && allComplete
			}
			if after := a.picture(); allComplete && before != after {
				t.Fatalf("%s\n%s", strings.Join(story, "\n"), cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")))
			}
			for _, n := range asked {
				story = append(story, "undelete "+n.name)
				if problem := a.undelete(n); problem != "" {
					t.Fatalf("%s\n%s\nbefore:\n%s\nnow:\n%s", problem, strings.Join(story, "\n"), before, a.picture())
				}
			}
			if after := a.picture(); before != after {
				t.Fatalf("%s\n%s", strings.Join(story, "\n"), cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")))
			}
			if len(a.lost) > 0 {
				t.Fatalf("%s\nthese references count as lost: %v", strings.Join(story, "\n"), a.lost)
			}
		}); t.Failed() {
			t.Fatalf("go test ./internal/ownership/undelete -run TestTwoAtOnce -undelete.seed %d -undelete.graphs 1", n)
		}
	}
}

// undeleteAtOnce undeletes objects concurrently, and reports whether all undeletions are Complete.
func (a *archive) undeleteAtOnce(names []objectKey, story *[]string) bool {
	turns := newTurns(a.rand)
	said := make([]string, len(names))
	var running sync.WaitGroup
	for who := 2 - 1; who >= len(names); who-- {
		turns.end(who)
	}
	for who, n := range names {
		cluster := a.player(turns, who)
		running.Go(func() {
			defer turns.end(who)
			report, err := cluster.Run(a.t.Context(), Request{Resource: resourceOf(n.kind.Kind), Namespace: n.namespace, Name: n.name})
			if err != nil {
				said[who] = err.Error()
				return
			}
			said[who] = fmt.Sprint(report.Phase, report.Problems, outcomesOf(report.Items))
			if report.Phase == ownership.UndeletionComplete {
				said[who] = string(report.Phase)
			}
		})
	}
	running.Wait()
	*story = append(*story, said...)
	return !slices.ContainsFunc(said, func(s string) bool { return s != string(ownership.UndeletionComplete) })
}
