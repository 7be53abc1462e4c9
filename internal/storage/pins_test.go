// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTarget: the revision up to which history is compacted.
func TestTarget(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	const gibibyte = 1 << 30
	retention := Retention{Age: time.Hour, Size: gibibyte}
	for name, tt := range map[string]struct {
		retention Retention
		oldest    int64
		pinned    int64
		size      int64
		want      int64
	}{
		"older than the retention":                             {want: 30},
		"at the size limit":                                    {size: gibibyte, want: 30},
		"above the size limit: half of the rest too":           {size: gibibyte + 1, want: 58},
		"above the size limit again: half of the rest":         {size: gibibyte + 1, oldest: 58, want: 72},
		"only the last five minutes are left":                  {size: gibibyte + 1, oldest: 85, want: 30},
		"pinned":                                               {pinned: 20, want: 20},
		"pinned, and younger":                                  {pinned: 40, want: 30},
		"pinned, and too large":                                {pinned: 20, size: gibibyte + 1, want: 20},
		"pinned, and younger than half":                        {pinned: 60, size: gibibyte + 1, want: 58},
		"pinned, at half as much again":                        {pinned: 20, size: gibibyte / 2 * 3, want: 20},
		"pinned, beyond half as much again":                    {pinned: 20, size: gibibyte/2*3 + 1, want: 58},
		"pinned, the largest":                                  {retention: Retention{Age: time.Hour, Size: maxSize}, pinned: 20, size: maxSize + gibibyte, want: 20},
		"pinned, a gibibyte beyond the largest":                {retention: Retention{Age: time.Hour, Size: maxSize}, pinned: 20, size: maxSize + gibibyte + 1, want: 58},
		"pinned, and already compacted":                        {oldest: 25, pinned: 20, want: 20},
		"pinned, too large, half of the rest is below the pin": {oldest: 58, pinned: 60, size: gibibyte + 1, want: 60},
	} {
		var marks marks
		for minute := range 91 {
			marks.add(mark{int64(minute), noon.Add(time.Duration(minute-90) * time.Minute)})
		}
		r := tt.retention
		if r.Size == 0 {
			r = retention
		}
		e := extent{now: noon, marks: &marks, oldest: tt.oldest, pinned: tt.pinned, size: tt.size}
		if got := r.target(e); got != tt.want {
			t.Errorf("%s: %d, not %d", name, got, tt.want)
		}
	}
}

// TestCompactionDuringAList: a list at a pinned revision can take any time. A list at another
// revision fails after a compaction.
func TestCompactionDuringAList(t *testing.T) {
	p := newPast(t, Encryption{})
	rounds(t, p.clock, 1, p.backend.compactor)
	var revision int64
	for i := range pageSize + 1 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i), Namespace: "default"}}
		revision = p.written(pod, p.pods.Create(t.Context(), podKey(pod.Name), pod, pod, 0))
	}
	p.delete("pod-0")
	// rest reads the remaining pages after two hours.
	rest := func() (n int, err error) {
		for _, failed := range p.backend.History().List(t.Context(), pods, "", revision) {
			if n == 0 {
				rounds(t, p.clock, 120, p.backend.compactor)
			}
			if failed != nil {
				return n, failed
			}
			n++
		}
		return n, nil
	}
	unpin, err := p.backend.History().Pin(t.Context(), revision)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := rest(); n != pageSize+1 || err != nil {
		t.Errorf("pinned: %d objects, %v", n, err)
	}
	unpin()
	if n, err := rest(); n != pageSize || !apierrors.IsResourceExpired(err) {
		t.Errorf("not pinned: %d objects, %v", n, err)
	}
	if _, err := p.backend.History().Pin(t.Context(), revision); !apierrors.IsResourceExpired(err) || !strings.Contains(err.Error(), fmt.Sprintf("revision %d is no longer retained; the oldest retained revision is ", revision)) {
		t.Errorf("too late: %v", err)
	}
	if left, err := p.backend.Client().Get(t.Context(), pinPrefix, clientv3.WithPrefix()); err != nil || left.Count != 0 {
		t.Errorf("remaining pins: %v, %v", left, err)
	}
}

// TestPinAndRound: a compaction that was decided before a pin was set fails, whichever server
// decided it. The next one compacts up to the pin.
func TestPinAndRound(t *testing.T) {
	p := newPast(t, Encryption{})
	c := p.backend.compactor
	rounds(t, p.clock, 1, c)
	revision := p.create("a", "1")
	rounds(t, p.clock, 2, c)
	seen, err := c.follow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.backend.History().Pin(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	if marked, err := c.mark(t.Context(), seen, revision+1); marked || err != nil {
		t.Errorf("a compaction past the pin is announced: %v, %v", marked, err)
	}
	if seen, err = c.follow(t.Context()); err != nil || seen.pinned != revision {
		t.Fatalf("%d is pinned, not %d: %v", seen.pinned, revision, err)
	}
	if marked, err := c.mark(t.Context(), seen, revision); !marked || err != nil {
		t.Errorf("a compaction up to the pin is not announced: %v", err)
	}
	small := int64(0)
	other := keeper(t, p.backend.Client(), p.clock, DefaultRetention, &small)
	rounds(t, p.clock, 120, other)
	if !readable(t, p.backend.Client(), revision) {
		t.Error("another server has compacted past the pin")
	}
}

// TestPinEnds: the pin of a killed process expires, and a malformed pin has no effect.
func TestPinEnds(t *testing.T) {
	p := newPast(t, Encryption{})
	if _, err := p.backend.History().Pin(t.Context(), p.create("a", "1")); err != nil {
		t.Fatal(err)
	}
	pins, err := p.backend.Client().Get(t.Context(), pinPrefix, clientv3.WithPrefix())
	if err != nil || len(pins.Kvs) != 1 {
		t.Fatalf("%v, %v", pins, err)
	}
	lease, err := p.backend.Client().TimeToLive(t.Context(), clientv3.LeaseID(pins.Kvs[0].Lease))
	if err != nil || lease.TTL <= 60 || lease.TTL > int64(pinTime.Seconds()) {
		t.Errorf("the pin expires in %d s, %v", lease.TTL, err)
	}
	write(t, p.backend.Client(), string(pins.Kvs[0].Key), "nonsense")
	if seen, err := p.backend.compactor.follow(t.Context()); err != nil || seen.pinned != 0 {
		t.Errorf("a malformed pin holds %d, %v", seen.pinned, err)
	}
}
