// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package revisions

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

var (
	ctx = context.Background()
	app = map[string]string{"app": "web"}
)

// bench is a Keeper with its own World, and an owner.
type bench struct {
	*controltest.World
	Keeper
	owner *appsv1.StatefulSet
}

func newBench(t *testing.T) bench {
	owner := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	w := controltest.New(t, owner)
	env := w.Env()
	return bench{w, Keeper{
		Kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), Label: "hash", Client: env.Client, Live: env.Live,
		Ledger: owned.NewLedger[*appsv1.ControllerRevision](w.Seen),
	}, owner}
}

// list returns the owner's revisions.
func (b bench) list() []*appsv1.ControllerRevision {
	all, err := b.List(ctx, b.owner, labels.SelectorFromSet(app))
	b.Must(err)
	return all
}

// use makes a state the current one, as a controller does in each Reconcile.
func (b bench) use(state string) *appsv1.ControllerRevision {
	same, others := Split(b.list(), []byte(state))
	current, err := b.Current(ctx, b.owner, b.New(b.owner, app, []byte(state), nil), same, others)
	b.Must(err)
	return current
}

// states lists the revisions in order.
func (b bench) states() (out []string) {
	for _, revision := range b.list() {
		out = append(out, string(revision.Data.Raw))
	}
	return out
}

func TestHoldIsNotCopied(t *testing.T) {
	b := newBench(t)
	b.owner.Annotations = map[string]string{"kubernetes.io/change-cause": "why not", ownership.HoldAnnotation: "test"}
	revision := b.New(b.owner, app, []byte(`"a"`), nil)
	if diff := cmp.Diff(map[string]string{"kubernetes.io/change-cause": "why not"}, revision.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if len(b.owner.Annotations) != 2 {
		t.Error("the owner itself has lost its hold")
	}
}

func TestEachStateHasOneRevision(t *testing.T) {
	b := newBench(t)
	var numbers []int64
	for i, state := range []string{`"a"`, `"a"`, `"b"`, `"b"`, `"c"`, `"a"`, `"a"`, `"b"`} {
		// The cache is synced only sometimes.
		if i%3 == 0 {
			b.Sync()
		}
		numbers = append(numbers, b.use(state).Revision)
	}
	if diff := cmp.Diff([]int64{1, 1, 2, 2, 3, 4, 4, 5}, numbers); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{`"c"`, `"a"`, `"b"`}, b.states()); diff != "" {
		t.Errorf("states by number (-want +got):\n%s", diff)
	}
	stored := &appsv1.ControllerRevisionList{}
	b.Must(b.API.List(ctx, stored))
	if len(stored.Items) != 3 {
		t.Errorf("%d revisions are stored", len(stored.Items))
	}
}

func TestNew(t *testing.T) {
	b := newBench(t)
	b.owner.Annotations = map[string]string{"kubernetes.io/change-cause": "x"}
	plain, again := b.New(b.owner, app, []byte("data"), nil), b.New(b.owner, app, []byte("data"), nil)
	if diff := cmp.Diff(plain, again); diff != "" {
		t.Errorf("the same state twice:\n%s", diff)
	}
	hash := plain.Labels["hash"]
	want := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web-" + hash, Labels: map[string]string{"app": "web", "hash": hash}, Annotations: b.owner.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(b.owner, b.Kind)},
		},
		Data: runtime.RawExtension{Raw: []byte("data")},
	}
	if diff := cmp.Diff(want, plain); diff != "" || hash == "" || b.Hash(plain) != hash {
		t.Errorf("hash %q, revision (-want +got):\n%s", hash, diff)
	}
	seen := map[string]bool{hash: true}
	for _, other := range []*appsv1.ControllerRevision{
		b.New(b.owner, app, []byte("other"), nil), b.New(b.owner, app, []byte("data"), new(int32(1))), b.New(b.owner, app, []byte("data"), new(int32(2))),
	} {
		if seen[b.Hash(other)] {
			t.Errorf("hash %s twice", b.Hash(other))
		}
		seen[b.Hash(other)] = true
	}
	b.owner.Name = strings.Repeat("x", 253)
	if long := b.New(b.owner, app, []byte("data"), nil); len(long.Name) != 253 || !strings.HasSuffix(long.Name, "-"+hash) {
		t.Errorf("name of %d characters: %s", len(long.Name), long.Name)
	}
	delete(plain.Labels, "hash")
	if b.Hash(plain) != plain.Name {
		t.Errorf("hash of a revision without the label: %s", b.Hash(plain))
	}
}

// After a restart, a revision may exist that neither the cache nor the ledger has.
func TestRevisionFromBeforeARestart(t *testing.T) {
	b := newBench(t)
	made := b.use(`"a"`)
	b.Ledger = owned.NewLedger[*appsv1.ControllerRevision](b.Seen)
	if got := b.use(`"a"`); got.UID != made.UID {
		t.Errorf("returned %s, want %s", got.UID, made.UID)
	}
}

func TestNameCollision(t *testing.T) {
	wanted := func(b bench) *appsv1.ControllerRevision { return b.New(b.owner, nil, []byte(`"a"`), nil) }
	for name, change := range map[string]func(*appsv1.ControllerRevision){
		"another state": func(r *appsv1.ControllerRevision) { r.Data.Raw = []byte(`"b"`) },
		"another owner": func(r *appsv1.ControllerRevision) { r.OwnerReferences[0].UID = "other" },
		"no owner":      func(r *appsv1.ControllerRevision) { r.OwnerReferences = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			taken := wanted(b)
			change(taken)
			b.Must(b.API.Create(ctx, taken))
			_, err := b.Current(ctx, b.owner, wanted(b), nil, nil)
			if !errors.Is(err, ErrNameTaken) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestListAdoptsAndReleases(t *testing.T) {
	b := newBench(t)
	b.use(`"mine"`)
	orphan := b.New(b.owner, app, []byte(`"orphan"`), nil)
	orphan.OwnerReferences = nil
	b.Must(b.API.Create(ctx, orphan))
	released := b.New(b.owner, map[string]string{"app": "other"}, []byte(`"released"`), nil)
	b.Must(b.API.Create(ctx, released))
	b.Sync()
	if diff := cmp.Diff([]string{`"orphan"`, `"mine"`}, b.states()); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	b.Must(b.API.Get(ctx, client.ObjectKeyFromObject(released), released))
	b.Must(b.API.Get(ctx, client.ObjectKeyFromObject(orphan), orphan))
	if len(released.OwnerReferences) != 0 || !metav1.IsControlledBy(orphan, b.owner) {
		t.Errorf("owners of the released revision %v, of the orphan %v", released.OwnerReferences, orphan.OwnerReferences)
	}
}

func TestTrim(t *testing.T) {
	for _, tc := range []struct {
		surplus int
		inUse   string
		want    []string
	}{
		{-1, "", []string{`"a"`, `"b"`, `"c"`}},
		{0, "", []string{`"a"`, `"b"`, `"c"`}},
		{1, "", []string{`"b"`, `"c"`}},
		{1, `"a"`, []string{`"a"`, `"c"`}},
		{3, `"b"`, []string{`"b"`}},
	} {
		b := newBench(t)
		for _, state := range []string{`"a"`, `"b"`, `"c"`} {
			b.use(state)
		}
		b.Must(b.Trim(ctx, b.owner, b.list(), tc.surplus, func(r *appsv1.ControllerRevision) bool { return string(r.Data.Raw) == tc.inUse }))
		if diff := cmp.Diff(tc.want, b.states()); diff != "" {
			t.Errorf("surplus %d, %s in use (-want +got):\n%s", tc.surplus, tc.inUse, diff)
		}
	}
}
