// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/rootdir"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// fakeCRI is a container runtime in memory. Containers do nothing; they run until they are stopped.
type fakeCRI struct {
	cri.RuntimeService
	clock *testingclock.FakeClock

	mu         sync.Mutex
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*fakeContainer
	fail       map[string]error  // by name of the call
	usage      uint64            // of memory, by each container
	calls      []string          // calls that change state
	configs    map[string]string // of sandboxes and containers, by ID
	podMemory  podMemory
}

type fakeContainer struct {
	status  *runtimeapi.ContainerStatus
	sandbox string
}

func newFakeCRI(clock *testingclock.FakeClock) *fakeCRI {
	return &fakeCRI{
		clock: clock, sandboxes: map[string]*runtimeapi.PodSandboxStatus{}, containers: map[string]*fakeContainer{},
		fail: map[string]error{}, configs: map[string]string{},
	}
}

// call records a call, and returns its configured error.
func (f *fakeCRI) call(name, text string) error {
	f.calls = append(f.calls, strings.TrimSpace(name+" "+text))
	return f.fail[name]
}

// do calls f under the fake's lock; tests use it to inspect the fake.
func (f *fakeCRI) do(look func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	look()
}

// took returns the calls since its last call.
func (f *fakeCRI) took() (calls []string) {
	f.do(func() { calls, f.calls = f.calls, nil })
	return calls
}

func notFound(what string) error { return status.Error(codes.NotFound, "no such "+what) }

func (f *fakeCRI) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := fmt.Sprintf("sandbox-%d", config.Metadata.Attempt)
	if err := f.call("RunPodSandbox", id+" "+handler); err != nil {
		return "", err
	}
	f.sandboxes[id] = &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: config.Metadata, Labels: config.Labels, State: runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: f.clock.Now().UnixNano(), Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.2"},
	}
	f.configs[id] = config.Linux.CgroupParent
	return id, nil
}

func (f *fakeCRI) StopPodSandbox(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("StopPodSandbox", id); err != nil {
		return err
	}
	if f.sandboxes[id] == nil {
		return notFound("sandbox")
	}
	f.sandboxes[id].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	return nil
}

func (f *fakeCRI) RemovePodSandbox(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("RemovePodSandbox", id); err != nil {
		return err
	}
	if f.sandboxes[id] == nil {
		return notFound("sandbox")
	}
	delete(f.sandboxes, id)
	maps.DeleteFunc(f.containers, func(_ string, c *fakeContainer) bool { return c.sandbox == id })
	return nil
}

func (f *fakeCRI) CreateContainer(_ context.Context, sandbox string, config *runtimeapi.ContainerConfig, parent *runtimeapi.PodSandboxConfig) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := fmt.Sprintf("%s-%d", config.Metadata.Name, config.Metadata.Attempt)
	if err := f.call("CreateContainer", id+" in "+sandbox); err != nil {
		return "", err
	}
	f.containers[id] = &fakeContainer{sandbox: sandbox, status: &runtimeapi.ContainerStatus{
		Id: id, Metadata: config.Metadata, Labels: config.Labels, Annotations: config.Annotations, Image: config.Image,
		ImageRef: config.Image.Image, Mounts: config.Mounts, CreatedAt: f.clock.Now().UnixNano(), LogPath: parent.LogDirectory + "/" + config.LogPath,
	}}
	return id, nil
}

func (f *fakeCRI) StartContainer(_ context.Context, id string) error {
	return f.change("StartContainer", id, id, func(s *runtimeapi.ContainerStatus) {
		s.State, s.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, f.clock.Now().UnixNano()
	})
}

func (f *fakeCRI) StopContainer(_ context.Context, id string, seconds int64) error {
	return f.change("StopContainer", id, fmt.Sprintf("%s in %ds", id, seconds), func(s *runtimeapi.ContainerStatus) {
		s.State, s.FinishedAt, s.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, f.clock.Now().UnixNano(), 143
	})
}

func (f *fakeCRI) UpdateContainerResources(_ context.Context, id string, r *runtimeapi.ContainerResources) error {
	return f.change("UpdateContainerResources "+id, id, fmt.Sprintf("%dMi", r.Linux.MemoryLimitInBytes>>20), func(*runtimeapi.ContainerStatus) {})
}

func (f *fakeCRI) change(name, id, text string, change func(*runtimeapi.ContainerStatus)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call(name, text); err != nil {
		return err
	}
	if f.containers[id] == nil {
		return notFound("container")
	}
	change(f.containers[id].status)
	return nil
}

func (f *fakeCRI) RemoveContainer(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("RemoveContainer", id); err != nil {
		return err
	}
	delete(f.containers, id)
	return nil // even if it does not exist, as CRI requires
}

func (f *fakeCRI) ContainerStats(context.Context, string) (*runtimeapi.ContainerStats, error) {
	return &runtimeapi.ContainerStats{Memory: &runtimeapi.MemoryUsage{UsageBytes: &runtimeapi.UInt64Value{Value: f.usage}}}, nil
}

func (f *fakeCRI) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) (list []*runtimeapi.PodSandbox, err error) {
	f.do(func() {
		for _, id := range slices.Sorted(maps.Keys(f.sandboxes)) {
			s := f.sandboxes[id]
			list = append(list, &runtimeapi.PodSandbox{Id: id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels})
		}
	})
	return list, nil
}

func (f *fakeCRI) ListContainers(context.Context, *runtimeapi.ContainerFilter) (list []*runtimeapi.Container, err error) {
	f.do(func() {
		for _, id := range slices.Sorted(maps.Keys(f.containers)) {
			c := f.containers[id]
			list = append(list, &runtimeapi.Container{
				Id: id, PodSandboxId: c.sandbox, Metadata: c.status.Metadata, State: c.status.State,
				CreatedAt: c.status.CreatedAt, Labels: c.status.Labels, Annotations: c.status.Annotations,
			})
		}
	})
	return list, nil
}

func (f *fakeCRI) PodSandboxStatus(_ context.Context, id string, _ bool) (response *runtimeapi.PodSandboxStatusResponse, err error) {
	f.do(func() {
		response = &runtimeapi.PodSandboxStatusResponse{Status: f.sandboxes[id]}
	})
	return response, nil
}

func (f *fakeCRI) ContainerStatus(_ context.Context, id string, _ bool) (response *runtimeapi.ContainerStatusResponse, err error) {
	f.do(func() {
		response = &runtimeapi.ContainerStatusResponse{Status: f.containers[id].status}
	})
	return response, nil
}

// fakeNode replaces the other parts of the node. It records their calls together with calls of
// the runtime, so that tests see the order.
type fakeNode struct {
	*fakeCRI
	mounts  []*runtimeapi.Mount
	devices []*runtimeapi.Device
	groups  []int64
	env     []*runtimeapi.KeyValue
	hook    func(ctx context.Context) (string, error)
}

// podMemory is what Memory returns of the pod's cgroup.
type podMemory struct {
	used  uint64
	limit int64
}

func (n fakeNode) Prepare(context.Context, *v1.Pod) error { return n.note("Prepare") }

func (n fakeNode) Mounts(context.Context, *v1.Pod, *v1.Container, []*runtimeapi.KeyValue) ([]*runtimeapi.Mount, error) {
	return n.mounts, n.fail["Mounts"]
}

func (n fakeNode) Devices(*v1.Pod, *v1.Container) ([]*runtimeapi.Device, error) {
	return n.devices, n.fail["Devices"]
}

func (n fakeNode) Groups(*v1.Pod) []int64 { return n.groups }

func (n fakeNode) DetachContent(types.UID) error { return n.note("DetachContent") }

func (n fakeNode) Teardown(context.Context, types.UID) error { return n.note("Teardown") }

func (n fakeNode) For(context.Context, *v1.Pod, *v1.Container) ([]*runtimeapi.KeyValue, error) {
	return n.env, n.fail["For"]
}

func (n fakeNode) EnsurePresent(_ context.Context, _ *v1.Pod, c *v1.Container, _ *runtimeapi.PodSandboxConfig) (criconfig.Image, error) {
	return criconfig.Image{Ref: "id of " + c.Image}, n.fail["EnsurePresent"]
}

func (n fakeNode) Run(ctx context.Context, _ *v1.Pod, _ *v1.Container, _ string, _ *v1.LifecycleHandler) (string, error) {
	return n.hook(ctx)
}

func (n fakeNode) Ensure(*v1.Pod) (string, error)    { return "/pods/u", n.note("Ensure") }
func (n fakeNode) Kill(_ types.UID, id string) error { return n.note("Kill " + id) }
func (n fakeNode) Grow(*v1.Pod) (string, error)      { return "/pods/u", n.note("Grow") }
func (n fakeNode) Memory(*v1.Pod) (uint64, int64, error) {
	return n.podMemory.used, n.podMemory.limit, n.fail["Memory"]
}
func (n fakeNode) Remove(types.UID) error { return n.note("Remove") }

// fakeUsers replaces the user namespaces of the node.
type fakeUsers struct{ *fakeNode }

func (u fakeUsers) For(types.UID, string) (*runtimeapi.UserNamespace, error) {
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD}, u.note("UserNamespace")
}

func (u fakeUsers) Release(types.UID) error { return u.note("ReleaseUsers") }

// fakeClaims replaces the drivers of the pod's claims.
type fakeClaims struct {
	*fakeNode
	devices []*runtimeapi.CDIDevice
	health  map[string][]v1.ResourceStatus
}

func (c *fakeClaims) Prepare(context.Context, *v1.Pod) error { return c.note("PrepareClaims") }

func (c *fakeClaims) Devices(*v1.Pod, *v1.Container) ([]*runtimeapi.CDIDevice, error) {
	return c.devices, c.fail["CDIDevices"]
}

func (c *fakeClaims) Health(*v1.Pod) map[string][]v1.ResourceStatus { return c.health }

func (c *fakeClaims) Unprepare(context.Context, types.UID) error { return c.note("Unprepare") }

// fakeResources replaces what is assigned to the pod.
type fakeResources struct {
	*fakeNode
	assigned  criconfig.Assigned
	has       bool
	exclusive bool
	health    map[string][]v1.ResourceStatus
}

func (r *fakeResources) Prepare(context.Context, *v1.Pod, string) (criconfig.Assigned, error) {
	return r.assigned, r.fail["Assigned"]
}
func (r *fakeResources) Exclusive(types.UID, string) bool                { return r.exclusive }
func (r *fakeResources) Has(types.UID) bool                              { return r.has }
func (r *fakeResources) Health(types.UID) map[string][]v1.ResourceStatus { return r.health }
func (r *fakeResources) Release(types.UID) error                         { return r.note("Release") }

func (n fakeNode) note(name string) (err error) {
	n.do(func() { err = n.call(name, "") })
	return err
}

// stageTest is a worker without its loop, and its fakes.
type stageTest struct {
	*Worker
	t         *testing.T
	cri       *fakeCRI
	node      *fakeNode
	claims    *fakeClaims
	resources *fakeResources
	clock     *testingclock.FakeClock
	events    *record.FakeRecorder
	pod       *v1.Pod
}

// testPod is a pod with one container.
func testPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i:1"}}},
	}
}

func newStageTest(t *testing.T, pod *v1.Pod) *stageTest {
	clock := testingclock.NewFakeClock(caseTime)
	fake := newFakeCRI(clock)
	node := &fakeNode{fakeCRI: fake}
	claims := &fakeClaims{fakeNode: node}
	resources := &fakeResources{fakeNode: node}
	events := record.NewFakeRecorder(100)
	parts := &Parts{
		Host:    criconfig.Host{Layout: rootdir.Layout{Root: t.TempDir()}, Owner: "me", DNS: criconfig.DNS{Servers: []string{"10.0.0.10"}}},
		Runtime: runtime.New(fake, "me", clock), RuntimeName: "fake", Clock: clock, Recorder: events,
		Volumes: node, Claims: claims, Resources: resources, Users: fakeUsers{node}, Environment: node, Images: node, Handlers: node, Cgroups: node,
		RuntimeHandler: func(_ context.Context, class string) (string, error) { return "handler of " + class, nil },
	}
	return &stageTest{Worker: NewWorker(parts, pod, nil, false), t: t, cri: fake, node: node, claims: claims, resources: resources, clock: clock, events: events, pod: pod}
}

// do runs the stage of an action to its end, applies what it returns to the worker's memory, and
// reads the pod from the runtime as the next round would.
func (s *stageTest) do(a Action) {
	s.t.Helper()
	s.doIn(s.t.Context(), a)
}

func (s *stageTest) doIn(ctx context.Context, a Action) {
	s.t.Helper()
	apply := stageOf(a.Kind).run(s.Worker, ctx, s.taskOf(s.pod, a))
	if apply != nil {
		apply(&s.memory)
	}
	s.look()
}

func (s *stageTest) look() {
	s.t.Helper()
	seen, err := s.parts.Runtime.Get(s.t.Context(), s.uid)
	if err != nil {
		s.t.Fatal(err)
	}
	s.seen = seen
}

// running starts the pod's first container, and clears the recorded calls and events.
func (s *stageTest) running() {
	s.t.Helper()
	s.do(Action{Kind: CreateSandbox})
	s.do(Action{Kind: StartContainer, Container: s.pod.Spec.Containers[0].Name})
	if len(s.memory.Failures) > 0 {
		s.t.Fatalf("failures %v", s.memory.Failures)
	}
	s.cri.took()
	s.takeEvents()
}

// takeEvents returns the events recorded since its last call.
func (s *stageTest) takeEvents() []string {
	var events []string
	for len(s.events.Events) > 0 {
		events = append(events, <-s.events.Events)
	}
	return events
}

// failTeardown runs a teardown action that fails, and waits for its pause.
func (s *stageTest) failTeardown(a Action) {
	s.t.Helper()
	if apply := s.stopFails(a); apply != nil {
		s.t.Errorf("a failed %s changes memory", a.Kind)
	}
}

// stopFails runs an action that fails, and returns its change of the memory.
func (s *stageTest) stopFails(a Action) func(*Memory) {
	s.t.Helper()
	done := make(chan func(*Memory), 1)
	go func() { done <- stageOf(a.Kind).run(s.Worker, s.t.Context(), s.taskOf(s.pod, a)) }()
	for !s.clock.HasWaiters() {
		select {
		case <-done:
			s.t.Fatalf("%s did not pause after its failure", a.Kind)
		case <-time.After(time.Millisecond):
		}
	}
	s.clock.Step(teardownPause)
	return <-done
}
