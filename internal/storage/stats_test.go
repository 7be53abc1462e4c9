// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestStats: the statistics of a resource follow its writes, and a version that was never read does not hide the sizes that another knows.
func TestStats(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "etcd"))
	defer b.Close()
	now := clocktesting.NewFakeClock(time.Unix(1000, 0))
	b.clock = now
	resource := schema.GroupResource{Resource: "pods"}
	if _, err := b.Stats(t.Context(), resource); err == nil {
		t.Error("a resource without a storage has statistics")
	}
	pods := newStorage(t, b, "pods", false)
	newStorage(t, b, "pods", true)

	const large = 10 << 10
	create := func(n int) {
		for i := range 10 {
			name := fmt.Sprintf("p%d-%d", n, i)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{"text": strings.Repeat("x", large)}}}
			if err := pods.Create(t.Context(), podKey(name), pod, nil, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range 3 {
		create(n)
		now.Step(statsPeriod)
		stats, err := b.Stats(t.Context(), resource)
		if err != nil || stats.ObjectCount != int64(10*(n+1)) || stats.EstimatedAverageObjectSizeBytes < large || stats.EstimatedAverageObjectSizeBytes > 2*large {
			t.Errorf("after %d writes of %d bytes: %+v, %v", 10*(n+1), large, stats, err)
		}
	}
	create(3)
	if stats, err := b.Stats(t.Context(), resource); err != nil || stats.ObjectCount != 30 {
		t.Errorf("within %v: %+v, %v, want what was known", statsPeriod, stats, err)
	}
}

// TestStatsOfVersions: a version whose statistics fail does not hide those of the others.
func TestStatsOfVersions(t *testing.T) {
	failure := errors.New("the cache is being filled")
	for _, test := range []struct {
		name  string
		fails []bool // of each version
		want  error
	}{
		{"all known", []bool{false, false}, nil},
		{"the first fails", []bool{true, false}, nil},
		{"the last fails", []bool{false, true}, nil},
		{"all fail", []bool{true, true}, failure},
	} {
		t.Run(test.name, func(t *testing.T) {
			resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
			b := &Backend{open: openResources{byResource: map[schema.GroupResource][]*openResource{}}}
			for _, fails := range test.fails {
				calculate := func(context.Context) (storage.Stats, error) {
					if fails {
						return storage.Stats{}, failure
					}
					return storage.Stats{ObjectCount: 3, EstimatedAverageObjectSizeBytes: 100}, nil
				}
				version := &openResource{stats: &recentStats{calculate: calculate, clock: clocktesting.NewFakeClock(time.Unix(1000, 0))}}
				b.open.byResource[resource] = append(b.open.byResource[resource], version)
			}
			stats, err := b.Stats(t.Context(), resource)
			if !errors.Is(err, test.want) || test.want == nil && (stats.ObjectCount != 3 || stats.EstimatedAverageObjectSizeBytes != 100) {
				t.Errorf("%+v, %v, want the statistics of a version, or %v", stats, err, test.want)
			}
		})
	}
}

// TestStatsFail: after a failure the last statistics are returned, and the next attempt is made when they would have been renewed.
func TestStatsFail(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1000, 0))
	calls, count, failure := 0, int64(1), errors.New("the cache is behind")
	r := &recentStats{clock: now, calculate: func(context.Context) (storage.Stats, error) {
		calls++
		return storage.Stats{ObjectCount: count}, failure
	}}
	for _, step := range []struct {
		after   time.Duration
		failure error
		count   int64
		want    int64 // 0 for an error
		calls   int
	}{
		{0, failure, 1, 0, 1},
		{statsPeriod - 1, nil, 2, 0, 1},
		{1, nil, 2, 2, 2},
		{statsPeriod - 1, nil, 3, 2, 2},
		{1, failure, 3, 2, 3},
		{1, nil, 4, 2, 3},
		{statsPeriod, nil, 4, 4, 4},
	} {
		now.Step(step.after)
		failure, count = step.failure, step.count
		got, err := r.read(t.Context())
		if got.ObjectCount != step.want || err != nil != (step.want == 0) || calls != step.calls {
			t.Errorf("%+v: %d, %v after %d calls", step, got.ObjectCount, err, calls)
		}
	}
}
