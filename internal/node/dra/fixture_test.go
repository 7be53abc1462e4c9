// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"
)

// fakeDriver is a driver whose devices are all for request "r".
type fakeDriver struct {
	drapb.UnimplementedDRAPluginServer
	healthv1.UnimplementedDRAResourceHealthServer
	name, endpoint string
	reports        chan []*healthv1.DeviceHealth

	mu       sync.Mutex
	calls    []string
	prepared map[string]bool
	fail     map[string]error  // calls, by name
	problem  map[string]string // claims that cannot be prepared or unprepared, by name
	skip     map[string]bool   // claims without an answer, by name
	hold     chan struct{}     // if set, calls wait until it is closed
}

func newDriver(t *testing.T, name string, register func(*grpc.Server, *fakeDriver)) *fakeDriver {
	t.Helper()
	d := &fakeDriver{
		name: name, endpoint: filepath.Join(t.TempDir(), "dra.sock"), prepared: map[string]bool{},
		fail: map[string]error{}, problem: map[string]string{}, skip: map[string]bool{}, reports: make(chan []*healthv1.DeviceHealth),
	}
	t.Cleanup(d.serve(t, register).Stop)
	return d
}

func (d *fakeDriver) serve(t *testing.T, register func(*grpc.Server, *fakeDriver)) *grpc.Server {
	t.Helper()
	listener, err := net.Listen("unix", d.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server, d)
	go func() { _ = server.Serve(listener) }()
	return server
}

func withV1(s *grpc.Server, d *fakeDriver) { drapb.RegisterDRAPluginServer(s, d) }

func withV1beta1(s *grpc.Server, d *fakeDriver) {
	drapbv1beta1.RegisterDRAPluginServer(s, drapbv1beta1.V1ServerWrapper{DRAPluginServer: d})
}

func withHealth(s *grpc.Server, d *fakeDriver) {
	withV1(s, d)
	healthv1.RegisterDRAResourceHealthServer(s, d)
}

// enter notes a call, and returns its failure.
func (d *fakeDriver) enter(ctx context.Context, call string) error {
	d.mu.Lock()
	hold, err := d.hold, d.fail[call]
	d.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (d *fakeDriver) NodePrepareResources(ctx context.Context, r *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
	err := d.enter(ctx, "prepare")
	d.mu.Lock()
	defer d.mu.Unlock()
	response := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		d.calls = append(d.calls, "prepare "+c.Name)
		d.prepared[c.Uid] = true // also when the call fails: it may have got that far
		if !d.skip[c.Name] {
			response.Claims[c.Uid] = &drapb.NodePrepareResourceResponse{Error: d.problem[c.Name], Devices: []*drapb.Device{{
				RequestNames: []string{"r"}, PoolName: "pool", DeviceName: c.Name, CdiDeviceIds: []string{d.name + "/gpu=" + c.Name},
			}}}
		}
	}
	if d.skip["unknown"] {
		response.Claims["unknown"] = &drapb.NodePrepareResourceResponse{}
	}
	return response, err
}

func (d *fakeDriver) NodeUnprepareResources(ctx context.Context, r *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
	err := d.enter(ctx, "unprepare")
	d.mu.Lock()
	defer d.mu.Unlock()
	response := &drapb.NodeUnprepareResourcesResponse{Claims: map[string]*drapb.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		d.calls = append(d.calls, "unprepare "+c.Name)
		delete(d.prepared, c.Uid)
		if !d.skip[c.Name] {
			response.Claims[c.Uid] = &drapb.NodeUnprepareResourceResponse{Error: d.problem[c.Name]}
		}
	}
	return response, err
}

func (d *fakeDriver) NodeWatchResources(_ *healthv1.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[healthv1.NodeWatchResourcesResponse]) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case report := <-d.reports:
			if report == nil {
				return errors.New("broken")
			}
			if err := stream.Send(&healthv1.NodeWatchResourcesResponse{Devices: report}); err != nil {
				return err
			}
		}
	}
}

// took returns the calls since its last call.
func (d *fakeDriver) took() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

func (d *fakeDriver) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// world is a manager with a fake API.
type world struct {
	*Manager
	t       *testing.T
	dir     string
	client  *fake.Clientset
	clock   *clocktesting.FakeClock
	changed chan types.UID
	stop    context.CancelFunc
}

func newWorld(t *testing.T, drivers ...*fakeDriver) *world {
	t.Helper()
	w := &world{
		t: t, dir: filepath.Join(t.TempDir(), "claims"), client: fake.NewClientset(), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)),
		changed: make(chan types.UID, 100), stop: func() {},
	}
	w.restart(drivers...)
	return w
}

// restart replaces the manager by a new process's, with which drivers register.
func (w *world) restart(drivers ...*fakeDriver) {
	w.t.Helper()
	store, err := Open(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	w.stop()
	ctx, stop := context.WithCancel(w.t.Context())
	w.stop = stop
	w.Manager = New(ctx, Options{
		Store: store, Client: w.client, Node: "n", Clock: w.clock, Changed: func(pod types.UID) { w.changed <- pod },
	})
	for _, d := range drivers {
		w.register(d, drapb.DRAPluginService)
	}
}

func (w *world) register(d *fakeDriver, services ...string) {
	w.t.Helper()
	if err := w.Register(w.t.Context(), d.name, d.endpoint, services); err != nil {
		w.t.Fatal(err)
	}
}

// connected reports whether calls to a driver go to this instance, over a connection that is made.
func (w *world) connected(d *fakeDriver) bool {
	got, err := w.drivers.get(d.name)
	w.drivers.mu.Lock()
	defer w.drivers.mu.Unlock()
	return err == nil && got.endpoint == d.endpoint && got.connected
}

// allocated creates a claim with devices of drivers, reserved for pods.
func (w *world) allocated(name string, drivers []string, pods ...string) *resourcev1.ResourceClaim {
	w.t.Helper()
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, driver := range drivers {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Driver: driver, Request: "r"})
	}
	for _, pod := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod, UID: types.UID(pod)})
	}
	if err := w.client.Tracker().Add(c); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// podWith returns a pod whose container c uses claims.
func podWith(name string, claims ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	c := v1.Container{Name: "c"}
	for _, claim := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
		c.Resources.Claims = append(c.Resources.Claims, v1.ResourceClaim{Name: claim})
	}
	p.Spec.Containers = []v1.Container{c}
	return p
}

// records returns the claims on disk with their pods.
func (w *world) records() map[string][]types.UID {
	w.t.Helper()
	store, err := Open(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string][]types.UID{}
	for _, c := range store.all() {
		found[c.Name] = slices.Sorted(slices.Values(c.Pods))
	}
	return found
}

func (w *world) prepared(d *fakeDriver) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.prepared))
}

// waitUntil waits for work in the background.
func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 500 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal(what)
}
