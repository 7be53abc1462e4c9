// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	testingclock "k8s.io/utils/clock/testing"
)

// fakeRuntime has images, containers, and a disk on which everything else uses some space.
type fakeRuntime struct {
	images     map[string]*runtimeapi.Image
	containers []*runtimeapi.Container
	mounts     map[string]string // container ID: image ID
	config     string
	capacity   uint64
	others     uint64 // bytes on the disk that are not images
	removed    []string
	fails      map[string]bool // images that cannot be removed
	listFails  error
	lists      atomic.Int32 // calls of ListImages
}

func (f *fakeRuntime) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	f.lists.Add(1)
	return slices.Collect(maps.Values(f.images)), f.listFails
}

func (f *fakeRuntime) RemoveImage(_ context.Context, image *runtimeapi.ImageSpec) error {
	if f.fails[image.Image] {
		return fmt.Errorf("%s: read-only file system", image.Image)
	}
	delete(f.images, image.Image)
	f.removed = append(f.removed, image.Image)
	return nil
}

func (f *fakeRuntime) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{
		{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}},
	}}, nil
}

func (f *fakeRuntime) disk(path string) (space, error) {
	if path != "/images" {
		return space{}, errors.New(path)
	}
	used := f.others
	for _, image := range f.images {
		used += image.Size
	}
	return space{capacity: f.capacity, available: max(f.capacity, used) - used}, nil
}

func (f *fakeRuntime) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return f.containers, nil
}

func (f *fakeRuntime) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	if id == "gone" {
		return nil, status.Error(codes.NotFound, id)
	}
	s := &runtimeapi.ContainerStatus{Mounts: []*runtimeapi.Mount{{HostPath: "/x"}}}
	if image, ok := f.mounts[id]; ok {
		s.Mounts = append(s.Mounts, &runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: image}})
	}
	return &runtimeapi.ContainerStatusResponse{Status: s}, nil
}

func (f *fakeRuntime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Info: map[string]string{"config": f.config}}, nil
}

// set is a collector of a fake runtime's images.
type set struct {
	*Images
	*fakeRuntime
	clock  *testingclock.FakeClock
	wanted []string
	pinned []string
	pruned []string // images that had records after the last prune
	events []string
	counts map[string]int // of removals, by reason
}

// quiet returns the test's context, without logs.
func quiet(t *testing.T) context.Context { return klog.NewContext(t.Context(), logr.Discard()) }

func newSet(t *testing.T, policy Policy) *set {
	t.Helper()
	s := &set{
		clock:       testingclock.NewFakeClock(now),
		fakeRuntime: &fakeRuntime{images: map[string]*runtimeapi.Image{}, capacity: 1000, mounts: map[string]string{}, fails: map[string]bool{}},
	}
	s.open(filepath.Join(t.TempDir(), "usage"), policy)
	return s
}

// open makes a collector, as a new agent does.
func (s *set) open(file string, policy Policy) {
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	s.Images = NewImages(ImageOptions{
		Policy: policy, Images: s.fakeRuntime, Runtime: s.fakeRuntime, Volumes: true, Clock: s.clock, File: file,
		Pinned: func(context.Context) ([]string, error) { return s.pinned, nil },
		Wanted: func() []string { return s.wanted },
		Prune: func(list func() ([]string, error)) (err error) {
			s.pruned, err = list()
			return err
		},
		Removed: func(reason string) { s.counts[reason]++ },
		Event:   func(eventType, reason, message string) { s.events = append(s.events, eventType+" "+reason+" "+message) },
	})
	s.Images.disk = s.fakeRuntime.disk
}

func (s *set) add(id string, size uint64, names ...string) {
	s.images[id] = &runtimeapi.Image{Id: id, Size: size, RepoTags: names}
}

// collect collects images, and checks which are removed, in order. Not all that was wanted need be freed.
func (s *set) collect(t *testing.T, want ...string) {
	t.Helper()
	s.removed = nil
	if err := s.Collect(quiet(t)); err != nil && !strings.HasPrefix(err.Error(), "Insufficient") {
		t.Error(err)
	}
	if diff := cmp.Diff(want, s.removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
}

// TestCollectKeepsWhatIsNeeded: each reason to keep an image, with a disk that is full.
func TestCollectKeepsWhatIsNeeded(t *testing.T) {
	s := newSet(t, Policy{High: 1, Low: 0, MinAge: time.Minute})
	for _, id := range []string{"by-id", "by-ref", "by-name", "of-exited", "volume", "wanted", "sandbox", "listed", "unused"} {
		s.add(id, 10, "docker.io/library/"+id+":1")
	}
	s.add("pinned", 10)
	s.images["pinned"].Pinned = true
	s.images["by-ref"].RepoDigests = []string{"docker.io/library/by-ref@sha256:0"}
	s.containers = []*runtimeapi.Container{
		{Id: "1", ImageId: "by-id"},
		{Id: "2", ImageRef: "docker.io/library/by-ref@sha256:0"},
		{Id: "3", Image: &runtimeapi.ImageSpec{Image: "docker.io/library/by-name:1"}},
		{Id: "4", ImageRef: "of-exited", State: runtimeapi.ContainerState_CONTAINER_EXITED},
		{Id: "5"}, {Id: "gone"},
	}
	s.mounts["5"] = "volume"
	s.wanted, s.pinned = []string{"docker.io/library/wanted:1"}, []string{"docker.io/library/listed:1"}
	s.config = `{"sandboxImage": "docker.io/library/sandbox:1"}`
	s.collect(t)
	s.clock.Step(time.Minute)
	s.removed, s.events = nil, nil
	err := s.Collect(quiet(t))
	if diff := cmp.Diff([]string{"unused"}, s.removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	// 90 of 1000 bytes are left, and none may be.
	want := "Insufficient free disk space on the node's image filesystem (10% of 1000 B used). Failed to free sufficient space by " +
		"deleting unused images (freed 10 bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
	if err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"Warning FreeDiskSpaceFailed " + want}, s.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if slices.Contains(s.pruned, "unused") || len(s.pruned) != 9 {
		t.Errorf("records are kept for %v", s.pruned)
	}
}

// TestCollectLeastRecentlyUsed: only as many images go as needed, in the order of their last use.
func TestCollectLeastRecentlyUsed(t *testing.T) {
	s := newSet(t, Policy{High: 85, Low: 80, MinAge: time.Minute})
	s.others = 700
	for i := range 4 {
		s.add(fmt.Sprint(i), 30)
		s.Used(fmt.Sprint(3 - i))
		s.clock.Step(2 * time.Minute)
	}
	s.collect(t) // 82 %
	s.others = 750
	s.collect(t, "3", "2", "1") // 87 %, 70 bytes too much
	s.collect(t)
	if len(s.events) > 0 {
		t.Errorf("events %v", s.events)
	}
}

// TestMaximumAge: unused images go, and a restart of the agent does not change when.
func TestMaximumAge(t *testing.T) {
	policy := Policy{High: 100, Low: 80, MinAge: time.Minute, MaxAge: time.Hour}
	s := newSet(t, policy)
	s.add("used", 1)
	s.add("unused", 1)
	s.add("pinned", 1)
	s.images["pinned"].Pinned = true
	s.containers = []*runtimeapi.Container{{Id: "1", ImageId: "used"}}
	s.collect(t)
	s.clock.Step(30 * time.Minute)
	s.collect(t)
	s.containers = nil
	s.open(s.usage.file, policy)
	s.clock.Step(30*time.Minute + 1)
	s.collect(t, "unused")
	s.clock.Step(30 * time.Minute)
	s.collect(t, "used")
	if len(s.counts) != 1 || s.counts[removedForAge] != 2 {
		t.Errorf("counted %v", s.counts)
	}
}

// TestUsageIsLost: without the file, images count as new.
func TestUsageIsLost(t *testing.T) {
	policy := Policy{High: 1, Low: 0, MinAge: time.Minute}
	s := newSet(t, policy)
	s.add("a", 1)
	s.collect(t)
	s.clock.Step(time.Hour)
	s.open(filepath.Join(t.TempDir(), "usage"), policy)
	s.collect(t)
}

// TestClockIsSetBack: an image is not kept because it was seen in the future.
func TestClockIsSetBack(t *testing.T) {
	s := newSet(t, Policy{High: 1, Low: 0, MinAge: time.Minute})
	s.add("a", 1)
	s.Used("a")
	s.collect(t)
	s.clock.SetTime(now.Add(-time.Hour))
	s.collect(t)
	s.clock.Step(time.Minute)
	s.collect(t, "a")
}

func TestReclaim(t *testing.T) {
	s := newSet(t, Policy{High: 100, Low: 99, MinAge: time.Minute})
	s.add("unused", 1)
	s.add("used", 1)
	s.wanted = []string{"used"}
	s.collect(t) // disabled, but the ages are observed
	s.clock.Step(time.Minute)
	s.collect(t)
	if err := s.Reclaim(quiet(t)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"unused"}, s.removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
}

func TestCollectFailures(t *testing.T) {
	s := newSet(t, Policy{High: 1, Low: 0})
	s.add("a", 1)
	s.add("b", 1)
	s.fails["a"] = true
	if err := s.Collect(quiet(t)); err == nil || !strings.Contains(err.Error(), "wanted to free 2 bytes, but freed 1 bytes") || !strings.Contains(err.Error(), "a: read-only") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"b"}, s.removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	s.capacity = 0
	if err := s.Collect(quiet(t)); err == nil {
		t.Error("a disk without capacity is no failure")
	}
	if diff := cmp.Diff([]string{"Warning InvalidDiskCapacity invalid capacity 0 on image filesystem"}, s.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	s.listFails = errors.New("no runtime")
	if err := s.Reclaim(quiet(t)); err == nil || !strings.Contains(err.Error(), "list images: no runtime") {
		t.Errorf("error %v", err)
	}
}

// TestRun: the first failure in a row is no event.
func TestRun(t *testing.T) {
	s := newSet(t, Policy{High: 85, Low: 80})
	s.listFails = errors.New("no runtime")
	events := make(chan string)
	s.Images.options.Event = func(_, reason, message string) { events <- reason + " " + message }
	ctx, cancel := context.WithCancel(quiet(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	for want := range int32(3) {
		if want > 0 {
			s.clock.Step(imagePeriod)
			if got := <-events; got != "ImageGCFailed list images: no runtime" {
				t.Errorf("event %q", got)
			}
		}
		for s.lists.Load() <= want {
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	<-done
}

// TestCollectProperties: on random nodes, over several collections with restarts in between, no image is removed that is
// used, pinned or young, and as much is freed as is needed, if that is possible.
func TestCollectProperties(t *testing.T) {
	file := filepath.Join(t.TempDir(), "usage")
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		policy := Policy{High: 20 + r.IntN(70), MinAge: time.Duration(r.IntN(10)) * time.Minute}
		policy.Low = r.IntN(policy.High)
		s := newSet(t, policy)
		s.open(fmt.Sprint(file, seed), policy)
		seen := map[string]time.Time{}
		for step := range 8 {
			s.randomize(r, step)
			before, used := maps.Clone(s.images), map[string]bool{}
			for _, c := range s.containers {
				used[c.ImageId] = true
			}
			disk, _ := s.fakeRuntime.disk("/images")
			s.removed = nil
			err := s.Collect(quiet(t))
			freed := uint64(0)
			for id, image := range before {
				if _, known := seen[id]; !known {
					seen[id] = s.clock.Now()
				}
				if s.images[id] != nil {
					continue
				}
				freed += image.Size
				if used[id] || image.Pinned || s.clock.Now().Sub(seen[id]) < policy.MinAge {
					t.Fatalf("seed %d: %s was removed", seed, id)
				}
				delete(seen, id)
			}
			excess := policy.excess(disk)
			switch {
			case excess == 0 && freed > 0:
				t.Fatalf("seed %d: %d bytes were freed below the threshold", seed, freed)
			case freed < excess && err == nil:
				t.Fatalf("seed %d: only %d of %d bytes were freed", seed, freed, excess)
			case freed < excess:
				for id, image := range s.images {
					if !used[id] && !image.Pinned && image.Size > 0 && s.clock.Now().Sub(seen[id]) >= policy.MinAge {
						t.Fatalf("seed %d: %s is left, with %d of %d bytes freed", seed, id, freed, excess)
					}
				}
			}
			s.open(s.usage.file, policy)
		}
	}
}

// randomize changes what the runtime has, and moves the clock.
func (s *set) randomize(r *rand.Rand, step int) {
	for i := range r.IntN(5) {
		id := fmt.Sprintf("%d-%d", step, i)
		s.add(id, uint64(r.IntN(150)))
		s.images[id].Pinned = r.IntN(5) == 0
	}
	s.containers = nil
	for id := range s.images {
		if r.IntN(4) == 0 {
			s.containers = append(s.containers, &runtimeapi.Container{Id: "c", ImageId: id})
		}
	}
	s.others = uint64(r.IntN(900))
	s.clock.Step(time.Duration(r.IntN(8)) * time.Minute)
}
