// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	clocktesting "k8s.io/utils/clock/testing"
)

// keeper returns a compactor whose rounds are run by the test, on a store without another
// compactor.
func keeper(t *testing.T, client *clientv3.Client, c *clocktesting.FakeClock, r Retention, inUse *int64) *compactor {
	t.Helper()
	return newCompactor(client, c, r, func(context.Context) (int64, error) { return *inUse, nil })
}

// quietStore returns a client of a store whose own compactor was stopped.
func quietStore(t *testing.T) *clientv3.Client {
	t.Helper()
	b := open(t, filepath.Join(t.TempDir(), "etcd"))
	t.Cleanup(b.Close)
	b.compactor.Stop()
	if _, err := b.Client().Txn(t.Context()).Then(clientv3.OpDelete(markKey), clientv3.OpDelete(upstreamCompactKey)).Commit(); err != nil {
		t.Fatal(err)
	}
	return b.Client()
}

func write(t *testing.T, client *clientv3.Client, key, content string) int64 {
	t.Helper()
	answer, err := client.Put(t.Context(), key, content)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

func readable(t *testing.T, client *clientv3.Client, revision int64) bool {
	t.Helper()
	_, err := client.Get(t.Context(), "/registry/a", clientv3.WithRev(revision))
	if err != nil && !strings.Contains(err.Error(), "compacted") {
		t.Fatal(err)
	}
	return err == nil
}

func rounds(t *testing.T, c *clocktesting.FakeClock, n int, of ...*compactor) {
	t.Helper()
	for range n {
		c.Step(markEvery)
		for _, one := range of {
			if err := one.round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestCompactionByAge(t *testing.T) {
	client, c := quietStore(t), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var small int64
	k := keeper(t, client, c, Retention{Age: 10 * time.Minute, Size: 100, Deletions: time.Hour}, &small)
	rounds(t, c, 1, k)
	first := write(t, client, "/registry/a", "1")
	write(t, client, "/registry/a", "2")
	rounds(t, c, 10, k)
	if !readable(t, client, first) {
		t.Fatal("history was compacted too early")
	}
	rounds(t, c, 2, k)
	if readable(t, client, first) {
		t.Fatal("history was not compacted")
	}
	if got, err := client.Get(t.Context(), "/registry/a"); err != nil || string(got.Kvs[0].Value) != "2" {
		t.Errorf("the current state is lost: %v, %v", got, err)
	}
	if marks := k.marks.all(); len(marks) > 12 {
		t.Errorf("%d marks for a retention of 10 minutes", len(marks))
	}
}

func TestCompactionBySize(t *testing.T) {
	client, c := quietStore(t), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	size := int64(100)
	k := keeper(t, client, c, Retention{Age: time.Hour, Size: 100, Deletions: time.Hour}, &size)
	rounds(t, c, 1, k)
	first := write(t, client, "/registry/a", "1")
	write(t, client, "/registry/a", "2")
	rounds(t, c, 20, k)
	if !readable(t, client, first) {
		t.Fatal("history was compacted although the database is within its limit")
	}
	size = 101
	rounds(t, c, 1, k)
	if readable(t, client, first) {
		t.Fatal("the oldest history is kept although the database exceeds its limit")
	}
	// However small the limit, the history of the last five minutes stays.
	size = 1 << 40
	last := write(t, client, "/registry/a", "3")
	write(t, client, "/registry/a", "4")
	rounds(t, c, 5, k)
	if !readable(t, client, last) {
		t.Error("history of the last five minutes was compacted")
	}
	rounds(t, c, 4, k)
	if readable(t, client, last) {
		t.Error("history older than five minutes was not compacted for size")
	}
}

// TestServersDoNotFight: several servers on one etcd write marks and compact as often as one
// server.
func TestServersDoNotFight(t *testing.T) {
	client, c := quietStore(t), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var small int64
	r := Retention{Age: 10 * time.Minute, Size: 100, Deletions: time.Hour}
	one, other := keeper(t, client, c, r, &small), keeper(t, client, c, r, &small)
	rounds(t, c, 5, one, other)
	got, err := client.Get(t.Context(), markKey)
	if err != nil || got.Kvs[0].Version != 5 {
		t.Fatalf("the mark is %v after 5 minutes, %v", got, err)
	}
	first := write(t, client, "/registry/a", "1")
	// When the first server stops, the other one takes over, with the first one's marks.
	rounds(t, c, 12, other)
	if readable(t, client, first) {
		t.Error("the remaining server does not compact")
	}
	if one, other := len(one.marks.all()), len(other.marks.all()); one != 5 || other > 12 {
		t.Errorf("marks: %d and %d", one, other)
	}
}

// TestCompactionAfterRestart: a compactor continues where the last one ended, and an upstream API
// server on the same etcd finds that another server compacts.
func TestCompactionAfterRestart(t *testing.T) {
	client, c := quietStore(t), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var small int64
	r := Retention{Age: 10 * time.Minute, Size: 100, Deletions: time.Hour}
	rounds(t, c, 1, keeper(t, client, c, r, &small))
	first := write(t, client, "/registry/a", "1")
	write(t, client, "/registry/a", "2")
	for range 11 { // each in a process of its own
		rounds(t, c, 1, keeper(t, client, c, r, &small))
	}
	if readable(t, client, first) {
		t.Error("restarts prevent compaction")
	}
	got, err := client.Get(t.Context(), upstreamCompactKey)
	if err != nil || got.Kvs[0].Version != 12 || string(got.Kvs[0].Value) == "0" {
		t.Errorf("upstream's key is %v, %v", got, err)
	}
}

// TestSnapshotsOfWatchCaches: the watch caches drop their snapshots after the usual time, however
// long the history is.
func TestSnapshotsOfWatchCaches(t *testing.T) {
	client, c := quietStore(t), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var small int64
	k := keeper(t, client, c, Retention{Age: time.Hour, Size: 100, Deletions: time.Hour}, &small)
	rounds(t, c, 5, k)
	if got := k.CompactRevision(); got != 0 {
		t.Errorf("after 5 minutes snapshots before %d are dropped", got)
	}
	rounds(t, c, 1, k)
	if got, want := k.CompactRevision(), k.marks.all()[0].revision; got != want {
		t.Errorf("after 6 minutes snapshots before %d are dropped, not %d", got, want)
	}
}

func TestRetentionMistakes(t *testing.T) {
	for name, tt := range map[string]struct {
		r        Retention
		embedded bool
		want     string
	}{
		"default":          {DefaultRetention, true, ""},
		"least":            {Retention{5 * time.Minute, 1, time.Minute}, true, ""},
		"short":            {Retention{5*time.Minute - 1, 1, time.Hour}, true, "must be at least 5m0s"},
		"no records":       {Retention{time.Hour, 1, 0}, false, "--deletion-records is 0s, and must be at least 1m0s"},
		"no size":          {Retention{time.Hour, 0, time.Hour}, true, "must be greater than 0"},
		"above the quota":  {Retention{time.Hour, 7 << 30, time.Hour}, true, "may be at most 6Gi"},
		"an external etcd": {Retention{time.Hour, 7 << 30, time.Hour}, false, ""},
	} {
		err := tt.r.Check(tt.embedded)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}
