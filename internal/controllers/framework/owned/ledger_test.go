// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"math/rand"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var testOwner = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "owner", UID: "owner"}}

// store is a model of etcd and a watch cache: versions increase by one, and the cache has the state
// of an older version.
type store struct {
	version int
	live    map[types.UID]*corev1.Pod
	history []map[types.UID]*corev1.Pod // by version
	seen    int
}

func newStore() *store {
	return &store{version: 1, seen: 1, live: map[types.UID]*corev1.Pod{}, history: []map[types.UID]*corev1.Pod{{}, {}}}
}

func (s *store) commit() {
	s.version++
	snapshot := map[types.UID]*corev1.Pod{}
	for uid, pod := range s.live {
		snapshot[uid] = pod
	}
	s.history = append(s.history, snapshot)
}

func (s *store) put(uid types.UID, terminating bool) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: uid, Name: string(uid), ResourceVersion: strconv.Itoa(s.version + 1),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(testOwner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
	}}
	if terminating {
		pod.DeletionTimestamp = &metav1.Time{}
	}
	s.live[uid] = pod
	s.commit()
	return pod
}

func (s *store) drop(uid types.UID) {
	delete(s.live, uid)
	s.commit()
}

func (s *store) list() ([]*corev1.Pod, error) {
	var out []*corev1.Pod
	for _, pod := range s.history[s.seen] {
		out = append(out, pod)
	}
	return out, nil
}

func active(pods []*corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

// TestLedgerReadsItsOwnWrites mixes writes of the controller, writes of other clients and updates of
// the cache at random. If there are only its own writes, the controller must see the exact state at
// any lag. Once the cache has caught up, it must see the exact state in any case, and the ledger must
// be empty.
func TestLedgerReadsItsOwnWrites(t *testing.T) {
	for seed := range int64(300) {
		rng := rand.New(rand.NewSource(seed))
		others := seed%2 == 1
		s := newStore()
		l := NewLedger[*corev1.Pod](func() string { return strconv.Itoa(s.seen) })
		for step := range 80 {
			switch uids := active(values(s.live)); {
			case rng.Intn(3) == 0:
				s.seen += rng.Intn(s.version - s.seen + 1)
			case rng.Intn(2) == 0 || len(uids) == 0:
				l.Wrote(testOwner, s.put(types.UID("p"+strconv.Itoa(step)), false))
			case others && rng.Intn(2) == 0:
				s.drop(types.UID(uids[rng.Intn(len(uids))]))
			default:
				victim := s.live[types.UID(uids[rng.Intn(len(uids))])]
				if rng.Intn(2) == 0 {
					s.put(victim.UID, true) // graceful
				} else {
					s.drop(victim.UID) // never scheduled: removed immediately
				}
				l.Deleted(testOwner, victim)
			}
			if others && s.seen != s.version {
				continue
			}
			got, err := l.Read(testOwner, s.list)
			if err != nil {
				t.Fatal(err)
			}
			if want := active(values(s.live)); !slices.Equal(active(got), want) {
				t.Fatalf("seed %d step %d: read %v, the API has %v", seed, step, active(got), want)
			}
		}
		s.seen = s.version
		if _, err := l.Read(testOwner, s.list); err != nil {
			t.Fatal(err)
		}
		if len(l.owners) != 0 {
			t.Fatalf("seed %d: the cache has caught up, but the ledger still has %v", seed, l.owners)
		}
	}
}

func values(m map[types.UID]*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range m {
		out = append(out, pod)
	}
	return out
}

func TestLedgerShowsTheNewerVersion(t *testing.T) {
	cached := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", ResourceVersion: "5"}}
	written := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", ResourceVersion: "7"}}
	l := NewLedger[*corev1.Pod](func() string { return "6" })
	l.Wrote(testOwner, written)
	read := func() *corev1.Pod {
		got, err := l.Read(testOwner, func() ([]*corev1.Pod, error) { return []*corev1.Pod{cached}, nil })
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		return got[0]
	}
	if got := read(); got != written {
		t.Errorf("read version %s, written was 7", got.ResourceVersion)
	}
	cached = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", ResourceVersion: "9"}}
	if got := read(); got != cached {
		t.Errorf("read version %s, the cache has 9", got.ResourceVersion)
	}
}

// A terminating child is listed until the cache has it as terminating, or as removed.
func TestLedgerListsTerminatingChildren(t *testing.T) {
	s := newStore()
	l := NewLedger[*corev1.Pod](func() string { return strconv.Itoa(s.seen) })
	pod := s.put("a", false)
	l.Terminating(testOwner, pod, time.Unix(1, 0))
	read := func() []*corev1.Pod {
		got, err := l.Read(testOwner, s.list)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for range 2 {
		if got := read(); len(got) != 1 || got[0].DeletionTimestamp == nil {
			t.Errorf("at version %d it reads %v", s.seen, got)
		}
		s.seen = s.version // In the first round, the cache does not even have the creation of the pod.
	}
	terminating := s.put("a", true)
	s.seen = s.version
	if got := read(); len(got) != 1 || got[0] != terminating {
		t.Errorf("reads %v, the cache shows it terminating", got)
	}
	l.Terminating(testOwner, terminating, time.Unix(2, 0))
	s.drop("a")
	s.seen = s.version
	if got := read(); len(got) != 0 || len(l.owners) != 0 {
		t.Errorf("reads %v of a removed pod, the ledger has %v", got, l.owners)
	}
}

// A new owner of the same name must not inherit the children of the old one.
func TestLedgerKnowsOwnersByUID(t *testing.T) {
	s := newStore()
	l := NewLedger[*corev1.Pod](func() string { return "1" })
	l.Wrote(testOwner, s.put("child", false))
	heir := testOwner.DeepCopy()
	heir.UID = "heir"
	if got, _ := l.Read(heir, s.list); len(got) != 0 {
		t.Errorf("the new owner reads %v", active(got))
	}
	l.Forget(client.ObjectKeyFromObject(heir))
	if got, _ := l.Read(testOwner, s.list); len(got) != 0 {
		t.Errorf("forgotten, but still reads %v", active(got))
	}
}
