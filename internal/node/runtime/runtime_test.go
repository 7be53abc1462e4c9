// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// fakeCRI is a runtime in memory that records status requests.
type fakeCRI struct {
	cri.RuntimeService

	mu         sync.Mutex
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*runtimeapi.ContainerStatus
	sandboxOf  map[string]string
	pids       map[string]int
	requested  []string
	events     chan *runtimeapi.ContainerEventResponse // nil: none
	noEvents   error                                   // the result of a stream, if events is nil
	stop       chan struct{}                           // StopContainer receives from it when it begins and before it ends
	grace      int64                                   // of the last StopContainer, in seconds
	startErr   error
	lists      int
}

func newFakeCRI() *fakeCRI {
	return &fakeCRI{
		sandboxes: map[string]*runtimeapi.PodSandboxStatus{}, containers: map[string]*runtimeapi.ContainerStatus{},
		sandboxOf: map[string]string{}, pids: map[string]int{},
	}
}

func matches(labels map[string]string, filter map[string]string) bool {
	for k, v := range filter {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (f *fakeCRI) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	var list []*runtimeapi.PodSandbox
	for _, id := range slices.Sorted(maps.Keys(f.sandboxes)) {
		if s := f.sandboxes[id]; matches(s.Labels, filter.LabelSelector) {
			list = append(list, &runtimeapi.PodSandbox{Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations})
		}
	}
	return list, nil
}

func (f *fakeCRI) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*runtimeapi.Container
	for _, id := range slices.Sorted(maps.Keys(f.containers)) {
		if c := f.containers[id]; matches(c.Labels, filter.LabelSelector) {
			list = append(list, &runtimeapi.Container{
				Id: c.Id, PodSandboxId: f.sandboxOf[id], Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt, Labels: c.Labels, Annotations: c.Annotations,
			})
		}
	}
	return list, nil
}

func (f *fakeCRI) info(id string) map[string]string {
	return map[string]string{"info": fmt.Sprintf(`{"pid":%d}`, f.pids[id])}
}

func (f *fakeCRI) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requested = append(f.requested, id)
	if s, ok := f.sandboxes[id]; ok {
		return &runtimeapi.PodSandboxStatusResponse{Status: s, Info: f.info(id)}, nil
	}
	return nil, status.Error(codes.NotFound, "no such sandbox")
}

func (f *fakeCRI) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requested = append(f.requested, id)
	if c, ok := f.containers[id]; ok {
		return &runtimeapi.ContainerStatusResponse{Status: proto.CloneOf(c), Info: f.info(id)}, nil
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

func (f *fakeCRI) GetContainerEvents(ctx context.Context, out chan *runtimeapi.ContainerEventResponse, _ func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	if f.events == nil {
		return f.noEvents
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-f.events:
			out <- e
		}
	}
}

func (f *fakeCRI) StopContainer(_ context.Context, id string, grace int64) error {
	if f.stop != nil {
		<-f.stop
		defer func() { <-f.stop }()
	}
	f.change(func() {
		f.grace = grace
		if c := f.containers[id]; c != nil {
			c.State, c.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, 7
		}
	})
	return nil
}

func (f *fakeCRI) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	f.change(func() {
		f.sandboxes["new-s"] = &runtimeapi.PodSandboxStatus{
			Id: "new-s", Metadata: config.Metadata, Labels: config.Labels, Annotations: config.Annotations,
			Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.3"},
		}
	})
	return "new-s", nil
}

func (f *fakeCRI) CreateContainer(_ context.Context, sandbox string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	f.change(func() {
		f.containers["new-c"] = &runtimeapi.ContainerStatus{
			Id: "new-c", Metadata: config.Metadata, Labels: config.Labels, Annotations: config.Annotations, ImageRef: "sha256:1",
		}
		f.sandboxOf["new-c"] = sandbox
	})
	return "new-c", nil
}

func (f *fakeCRI) StartContainer(_ context.Context, id string) error {
	f.change(func() {
		f.containers[id].State, f.containers[id].StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, 5
	})
	return f.startErr
}

func (f *fakeCRI) StopPodSandbox(_ context.Context, id string) error {
	f.change(func() { f.sandboxes[id].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY })
	return nil
}

func (f *fakeCRI) RemoveContainer(_ context.Context, id string) error {
	f.change(func() { delete(f.containers, id) })
	return nil
}

func (f *fakeCRI) RemovePodSandbox(_ context.Context, id string) error {
	f.change(func() {
		delete(f.sandboxes, id)
		for container, sandbox := range f.sandboxOf {
			if sandbox == id {
				delete(f.containers, container)
			}
		}
	})
	return nil
}

func (f *fakeCRI) takeRequests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	requested := f.requested
	f.requested = nil
	return requested
}

func (f *fakeCRI) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func podLabels(owner, uid, container string) map[string]string {
	labels := map[string]string{LabelOwner: owner, LabelPodUID: uid, LabelPodNamespace: "ns", LabelPodName: "p"}
	if container != "" {
		labels[LabelContainerName] = container
	}
	return labels
}

// fill adds a pod with two runs of a container to the runtime.
func (f *fakeCRI) fill(owner, uid string) {
	f.sandboxes[uid+"-s"] = &runtimeapi.PodSandboxStatus{
		Id: uid + "-s", Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}, Labels: podLabels(owner, uid, ""),
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.2", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::2"}}},
	}
	for attempt, state := range []runtimeapi.ContainerState{runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_RUNNING} {
		id := fmt.Sprintf("%s-c%d", uid, attempt)
		f.containers[id] = &runtimeapi.ContainerStatus{
			Id: id, Metadata: &runtimeapi.ContainerMetadata{Attempt: uint32(attempt)}, State: state,
			CreatedAt: int64(attempt + 1), StartedAt: int64(attempt + 1), Labels: podLabels(owner, uid, "c"),
			Annotations: map[string]string{AnnotationBackOff: "10s", AnnotationRestartCount: fmt.Sprint(attempt)},
			Image:       &runtimeapi.ImageSpec{Image: "i"}, ImageRef: "sha256:1",
		}
		f.sandboxOf[id] = uid + "-s"
	}
	f.containers[uid+"-c0"].ExitCode = 3
}

func TestGet(t *testing.T) {
	fake := newFakeCRI()
	fake.fill("me", "u")
	fake.fill("other", "v")
	r := New(fake, "me", clock.RealClock{})
	got, err := r.Get(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	run := Container{Name: "c", SandboxID: "u-s", BackOff: 10 * time.Second, Image: "i", ImageID: "sha256:1"}
	second, first := run, run
	second.ID, second.Attempt, second.State, second.CreatedAt, second.StartedAt = "u-c1", 1, Running, time.Unix(0, 2), time.Unix(0, 2)
	first.ID, first.State, first.CreatedAt, first.StartedAt, first.FinishedAt, first.ExitCode = "u-c0", Exited, time.Unix(0, 1), time.Unix(0, 1), time.Unix(0, 0), 3
	want := &Pod{
		UID: "u", Namespace: "ns", Name: "p",
		Sandboxes:  []Sandbox{{ID: "u-s", Ready: true, CreatedAt: time.Unix(0, 0), IPs: []string{"10.0.0.2", "fd00::2"}}},
		Containers: []Container{second, first},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
	all, err := r.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || !all["u"].Same(got) {
		t.Errorf("the list is %+v", all)
	}
}

// TestKnown: a pod that no Get has read is read, and not remembered.
func TestKnown(t *testing.T) {
	fake := newFakeCRI()
	fake.fill("me", "u")
	r := New(fake, "me", clock.RealClock{})
	first, err := r.Known(t.Context(), "u")
	if err != nil || r.Last("u") != nil {
		t.Fatalf("%+v is remembered, %v", r.Last("u"), err)
	}
	read, err := r.Get(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read, first); diff != "" {
		t.Errorf("before the first Get (-Get +Known):\n%s", diff)
	}
	fake.takeRequests()
	if known, err := r.Known(t.Context(), "u"); known != read || err != nil {
		t.Errorf("after a Get: %+v, %v", known, err)
	}
	if requested := fake.takeRequests(); len(requested) > 0 {
		t.Errorf("requested again: %v", requested)
	}
}

func TestGetAsksOnlyForWhatChanged(t *testing.T) {
	fake := newFakeCRI()
	fake.fill("me", "u")
	r := New(fake, "me", clock.RealClock{})
	get := func() {
		t.Helper()
		if _, err := r.Get(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
	}
	get()
	if diff := cmp.Diff([]string{"u-s", "u-c1", "u-c0"}, fake.takeRequests()); diff != "" {
		t.Errorf("requested (-want +got):\n%s", diff)
	}
	get()
	if requested := fake.takeRequests(); len(requested) > 0 {
		t.Errorf("requested again: %v", requested)
	}
	fake.change(func() { fake.containers["u-c1"].State = runtimeapi.ContainerState_CONTAINER_EXITED })
	get()
	if diff := cmp.Diff([]string{"u-c1"}, fake.takeRequests()); diff != "" {
		t.Errorf("requested (-want +got):\n%s", diff)
	}
}

func TestTerminationMessages(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "message")
	log := filepath.Join(dir, "0.log")
	lines := strings.Repeat("2016-10-06T00:17:09.669794202Z stdout F a line of the log\n", 200)
	if err := os.WriteFile(log, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	failed := &Container{MessageFile: file, LogPath: log, ExitCode: 1, TerminationPolicy: "FallbackToLogsOnError"}
	write(strings.Repeat("x", 5000) + "end")
	if got := terminationMessage(failed); len(got) != 4096 || !strings.HasSuffix(got, "end") {
		t.Errorf("message of %d bytes", len(got))
	}
	write("")
	if got := terminationMessage(failed); got != strings.Repeat("a line of the log\n", 80) {
		t.Errorf("message from the log: %d bytes, %q", len(got), got)
	}
	// Text without a final newline stays without one. A long line keeps its end.
	for text, want := range map[string]string{
		"2016-10-06T00:17:09.669794202Z stderr P DONE\n":                                           "DONE",
		"2016-10-06T00:17:09.669794202Z stdout P DO\n2016-10-06T00:17:09.669794202Z stdout F NE\n": "DONE\n",
		"2016-10-06T00:17:09.669794202Z stdout F " + strings.Repeat("x", 15000) + "y\n":            strings.Repeat("x", 2046) + "y\n",
	} {
		if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := terminationMessage(failed); got != want {
			t.Errorf("message %q from the log %.100q", got, text)
		}
	}
	failed.TerminationPolicy = "File"
	if got := terminationMessage(failed); got != "" {
		t.Errorf("message %q from the log without permission", got)
	}
	failed.TerminationPolicy, failed.ExitCode = "FallbackToLogsOnError", 0
	if got := terminationMessage(failed); got != "" {
		t.Errorf("message %q of a container that did not fail", got)
	}
}

func TestEventsWakePods(t *testing.T) {
	fake := newFakeCRI()
	fake.events = make(chan *runtimeapi.ContainerEventResponse)
	r := New(fake, "me", clock.RealClock{})
	changed := make(chan types.UID, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Watch(ctx, func(uid types.UID) { changed <- uid })
	}()
	fake.events <- &runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}}}
	if got := <-changed; got != "u" {
		t.Errorf("pod %q changed", got)
	}
	cancel()
	<-done
}

// TestExitsWakePods: in a runtime without events, the exit of a real process is noticed, once the
// runtime has noticed it as well. containerd 1.6 and CRI-O refuse to send events in different ways.
func TestExitsWakePods(t *testing.T) {
	for name, refusal := range map[string]error{"Unimplemented": status.Error(codes.Unimplemented, "no events"), "end of the stream": io.EOF} {
		t.Run(name, func(t *testing.T) { exitsWakePods(t, refusal) })
	}
}

func exitsWakePods(t *testing.T, refusal error) {
	process := exec.Command("sleep", "1000")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	fake := newFakeCRI()
	fake.noEvents = refusal
	fake.fill("me", "u")
	fake.pids["u-c1"] = process.Process.Pid
	r := New(fake, "me", clock.RealClock{})
	changed := make(chan types.UID, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Watch(ctx, func(uid types.UID) { changed <- uid })
	}()
	for !r.exits.wantsPIDs() {
		time.Sleep(time.Millisecond)
	}
	if _, err := r.Get(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait()
	select {
	case <-changed:
		t.Fatal("reported before the runtime noticed the exit")
	case <-time.After(20 * time.Millisecond):
	}
	fake.change(func() { fake.containers["u-c1"].State = runtimeapi.ContainerState_CONTAINER_EXITED })
	if got := <-changed; got != "u" {
		t.Errorf("pod %q changed", got)
	}
	cancel()
	<-done
}

// TestStopsAreNotReported: who stops a container reads the pod afterwards, so that Watch need not report its end.
func TestStopsAreNotReported(t *testing.T) {
	fake := newFakeCRI()
	fake.events = make(chan *runtimeapi.ContainerEventResponse)
	fake.stop = make(chan struct{})
	r := New(fake, "me", clock.RealClock{})
	changed := make(chan types.UID, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Watch(ctx, func(uid types.UID) { changed <- uid }) })
	event := func(uid, id string) {
		fake.events <- &runtimeapi.ContainerEventResponse{
			ContainerId: id, PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}},
		}
	}
	running.Go(func() {
		if err := r.StopContainer(ctx, "u", "c", 1500*time.Millisecond); err != nil {
			t.Error(err)
		}
	})
	fake.stop <- struct{}{}
	event("stopped", "c")
	event("other", "d")
	if got := <-changed; got != "other" {
		t.Errorf("pod %q changed, want only the one with another container", got)
	}
	fake.stop <- struct{}{}
	for r.isStopping("c") {
		time.Sleep(time.Millisecond)
	}
	event("again", "c")
	if got := <-changed; got != "again" {
		t.Errorf("pod %q changed", got)
	}
	if fake.grace != 2 {
		t.Errorf("grace of %d s, want 1.5 s rounded up", fake.grace)
	}
	cancel()
	running.Wait()
}

// TestSeenEnds: an exit that a reading of the pod has shown is not reported again.
func TestSeenEnds(t *testing.T) {
	fake := newFakeCRI()
	fake.fill("me", "u")
	r := New(fake, "me", clock.RealClock{})
	p := process{pod: "u", id: "u-c1"}
	if r.hasSeenEnd(p) {
		t.Error("seen without a reading")
	}
	for state, want := range map[runtimeapi.ContainerState]bool{
		runtimeapi.ContainerState_CONTAINER_RUNNING: false, runtimeapi.ContainerState_CONTAINER_EXITED: true,
	} {
		fake.change(func() { fake.containers["u-c1"].State = state })
		if _, err := r.Get(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
		if got := r.hasSeenEnd(p); got != want {
			t.Errorf("%v: seen %t, want %t", state, got, want)
		}
	}
	if !r.hasSeenEnd(process{pod: "u", id: "removed"}) {
		t.Error("a removed container has not ended")
	}
	if r.hasSeenEnd(process{pod: "u", id: "u-s", sandbox: true}) {
		t.Error("a ready sandbox has ended")
	}
}
