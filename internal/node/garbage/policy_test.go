// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func ids(images []Image) []string {
	list := []string{}
	for _, image := range images {
		list = append(list, image.ID)
	}
	return list
}

func TestRemovable(t *testing.T) {
	policy := Policy{MinAge: 2 * time.Minute}
	got := ids(policy.removable([]Image{
		{ID: "pinned", Pinned: true},
		{ID: "in use", InUse: true},
		{ID: "young", FirstSeen: ago(119 * time.Second)},
		{ID: "used lately", FirstSeen: ago(time.Hour), LastUsed: ago(time.Second)},
		{ID: "used long ago", FirstSeen: ago(time.Hour), LastUsed: ago(time.Minute)},
		{ID: "never used", FirstSeen: ago(2 * time.Minute)},
		{ID: "older, never used", FirstSeen: ago(3 * time.Minute)},
	}, now))
	want := []string{"older, never used", "never used", "used long ago", "used lately"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("removable (-want +got):\n%s", diff)
	}
}

func TestSplit(t *testing.T) {
	images := []Image{
		{ID: "never used", FirstSeen: ago(2 * time.Hour)},
		{ID: "new, never used", FirstSeen: ago(time.Hour)},
		{ID: "used", FirstSeen: ago(5 * time.Hour), LastUsed: ago(time.Hour)},
		{ID: "forgotten", FirstSeen: ago(5 * time.Hour), LastUsed: ago(time.Hour + 1)},
	}
	expired, others := Policy{MaxAge: time.Hour}.split(images, now)
	if diff := cmp.Diff([]string{"never used", "forgotten"}, ids(expired)); diff != "" {
		t.Errorf("expired (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"new, never used", "used"}, ids(others)); diff != "" {
		t.Errorf("others (-want +got):\n%s", diff)
	}
	if expired, others = (Policy{}).split(images, now); len(expired) > 0 || len(others) != len(images) {
		t.Errorf("without a maximum age, %v have expired", ids(expired))
	}
}

func TestExcess(t *testing.T) {
	for _, test := range []struct {
		high, low int
		disk      space
		want      uint64
	}{
		{85, 80, space{1000, 160}, 0},
		{85, 80, space{1000, 150}, 50},
		{85, 80, space{1000, 0}, 200},
		{85, 80, space{1000, 2000}, 0},
		{1, 0, space{1000, 999}, 1}, // 0.1 % counts as 1 %
		{1, 0, space{1000, 1000}, 0},
		{100, 99, space{1000, 0}, 10},
		{100, 99, space{1000, 1}, 9},
		{85, 80, space{1 << 50, 0}, (1 << 50) / 5},
	} {
		if got := (Policy{High: test.high, Low: test.low}).excess(test.disk); got != test.want {
			t.Errorf("%d/%d on %v: excess %d, want %d", test.high, test.low, test.disk, got, test.want)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for size, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 19: "1.5 MiB", 1 << 30: "1.0 GiB", 5 << 50: "5120.0 TiB"} {
		if got := formatSize(size); got != want {
			t.Errorf("%d is %q, want %q", size, got, want)
		}
	}
}

// randomImages returns images with all combinations of what matters.
func randomImages(r *rand.Rand) []Image {
	images := make([]Image, r.IntN(12))
	for i := range images {
		image := &images[i]
		*image = Image{ID: fmt.Sprint("i", i), Size: uint64(r.IntN(100)), Pinned: r.IntN(4) == 0, InUse: r.IntN(3) == 0}
		image.FirstSeen = ago(time.Duration(r.IntN(10)) * time.Minute)
		if r.IntN(2) == 0 {
			image.LastUsed = image.FirstSeen.Add(time.Duration(r.IntN(int(now.Sub(image.FirstSeen)/time.Second)+1)) * time.Second)
		}
	}
	return images
}

// TestPolicyProperties: whatever the images are, none that is used, pinned or young can be removed, all others can, and
// no image is removed before one that was unused for longer.
func TestPolicyProperties(t *testing.T) {
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 1))
		images := randomImages(r)
		policy := Policy{MinAge: time.Duration(r.IntN(5)) * time.Minute, MaxAge: time.Duration(r.IntN(8)) * time.Minute}
		removable := policy.removable(images, now)
		for _, image := range images {
			must := !image.Pinned && !image.InUse && !image.FirstSeen.Add(policy.MinAge).After(now)
			if got := slices.Contains(ids(removable), image.ID); got != must {
				t.Fatalf("seed %d: %+v is removable: %t, want %t", seed, image, got, must)
			}
		}
		for i := 1; i < len(removable); i++ {
			if removable[i].LastUsed.Before(removable[i-1].LastUsed) {
				t.Fatalf("seed %d: %+v comes before %+v", seed, removable[i-1], removable[i])
			}
		}
		expired, others := policy.split(removable, now)
		if len(expired)+len(others) != len(removable) {
			t.Fatalf("seed %d: %d and %d of %d images", seed, len(expired), len(others), len(removable))
		}
		for _, image := range expired {
			if policy.MaxAge == 0 || !image.FirstSeen.Add(policy.MaxAge).Before(now) || !image.LastUsed.Add(policy.MaxAge).Before(now) {
				t.Fatalf("seed %d: %+v has expired after %v", seed, image, policy.MaxAge)
			}
		}
	}
}
