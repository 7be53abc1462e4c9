// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// node is a Source, which changes as a node's agent changes its own.
type node struct {
	server *Server

	mu   sync.Mutex
	pods map[types.UID]*v1.Pod
}

func newNode(pods ...*v1.Pod) *node {
	n := &node{pods: map[types.UID]*v1.Pod{}}
	for _, p := range pods {
		n.pods[p.UID] = p
	}
	n.server = &Server{Source: n, Ready: func() bool { return true }}
	return n
}

func (n *node) VerifiedPods() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var pods []*v1.Pod
	for _, p := range n.pods {
		pods = append(pods, p)
	}
	return pods
}

func (n *node) VerifiedPod(uid types.UID) (*v1.Pod, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.pods[uid]
	return p, ok
}

func (n *node) set(p *v1.Pod) {
	n.mu.Lock()
	n.pods[p.UID] = p
	n.mu.Unlock()
	n.server.PodChanged(p, false)
}

func (n *node) remove(uid types.UID) {
	n.mu.Lock()
	delete(n.pods, uid)
	n.mu.Unlock()
	n.server.PodEnded(uid)
}

// client returns a client of the node's API.
func (n *node) client(t *testing.T) api.PodsClient {
	t.Helper()
	listener, server := bufconn.Listen(1<<20), grpc.NewServer()
	api.RegisterPodsServer(server, n.server)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///node", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
	})
	return api.NewPodsClient(conn)
}

func podOf(uid types.UID, phase v1.PodPhase) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + string(uid), UID: uid, Labels: map[string]string{"a": "b"}},
		Status:     v1.PodStatus{Phase: phase},
	}
}

// text formats an encoded pod.
func text(t *testing.T, encoded []byte) string {
	t.Helper()
	var p v1.Pod
	if err := p.Unmarshal(encoded); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(fmt.Sprintf("%s/%s %s %d %s", p.Namespace, p.Name, p.UID, len(p.Labels), p.Status.Phase))
}

// next formats the next event of a watch.
func next(t *testing.T, stream interface {
	Recv() (*api.WatchPodsEvent, error)
}) string {
	t.Helper()
	e, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if e.Type == api.EventType_INITIAL_SYNC_COMPLETE {
		if e.Pod != nil {
			t.Errorf("%s has a pod", e.Type)
		}
		return e.Type.String()
	}
	return e.Type.String() + " " + text(t, e.Pod)
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestListAndGet(t *testing.T) {
	client := newNode(podOf("2", v1.PodRunning), podOf("1", v1.PodSucceeded), podOf("3", v1.PodPending)).client(t)
	list, err := client.ListPods(within(t), &api.ListPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, encoded := range list.Pods {
		got = append(got, text(t, encoded))
	}
	if want := []string{"ns/pod-1 1 1 Succeeded", "ns/pod-2 2 1 Running", "ns/pod-3 3 1 Pending"}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	one, err := client.GetPod(within(t), &api.GetPodRequest{PodUID: "2"})
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, one.Pod); got != "ns/pod-2 2 1 Running" {
		t.Errorf("got %q", got)
	}
	_, err = client.GetPod(within(t), &api.GetPodRequest{PodUID: "none"})
	if s := status.Convert(err); s.Code() != codes.NotFound || s.Message() != "pod with UID none not found" {
		t.Errorf("got %v", err)
	}
}

// TestNotReady: until all pods are known, no request is answered.
func TestNotReady(t *testing.T) {
	n := newNode(podOf("1", v1.PodRunning))
	n.server.Ready = func() bool { return false }
	client := n.client(t)
	for name, request := range map[string]func() error{
		"list": func() error { _, err := client.ListPods(within(t), &api.ListPodsRequest{}); return err },
		"get":  func() error { _, err := client.GetPod(within(t), &api.GetPodRequest{PodUID: "1"}); return err },
		"watch": func() error {
			stream, err := client.WatchPods(within(t), &api.WatchPodsRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		if s := status.Convert(request()); s.Code() != codes.FailedPrecondition || s.Message() != "Kubelet is initializing" {
			t.Errorf("%s: %v", name, s)
		}
	}
	if n.server.Watched() {
		t.Error("the failed watch is open")
	}
}

// TestWatch: a watch has the pods in the order of their UIDs, the end of this list, and then each change once.
func TestWatch(t *testing.T) {
	n := newNode(podOf("2", v1.PodRunning), podOf("1", v1.PodPending))
	n.set(podOf("1", v1.PodRunning)) // nothing watches
	stream, err := n.client(t).WatchPods(within(t), &api.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		if got := next(t, stream); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	expect("ADDED ns/pod-1 1 1 Running")
	expect("ADDED ns/pod-2 2 1 Running")
	expect("INITIAL_SYNC_COMPLETE")
	if !n.server.Watched() {
		t.Error("the watch is not counted")
	}

	n.server.PodChanged(podOf("orphan", v1.PodRunning), true)
	n.server.PodEnded("orphan")
	n.set(podOf("3", v1.PodPending))
	expect("ADDED ns/pod-3 3 1 Pending")
	n.set(podOf("3", v1.PodRunning))
	expect("MODIFIED ns/pod-3 3 1 Running")
	n.server.PodChanged(podOf("3", v1.PodFailed), true)
	expect("MODIFIED ns/pod-3 3 1 Failed")
	n.remove("3")
	n.remove("3")
	expect("DELETED ns/pod-3 3 0")
	n.set(podOf("3", v1.PodPending)) // a static pod starts again
	expect("ADDED ns/pod-3 3 1 Pending")
}

// TestOpen: while the list of a new watch is read, changes are announced, and their events wait. So the watch misses no change,
// and gets none that is older than its list.
func TestOpen(t *testing.T) {
	n := newNode(podOf("1", v1.PodPending))
	set := make(chan struct{})
	w, pods := n.server.watches.open(func() []*v1.Pod {
		if !n.server.Watched() {
			t.Error("changes are not announced")
		}
		if n.server.watches.mu.TryLock() {
			t.Error("events do not wait")
			n.server.watches.mu.Unlock()
		}
		pods := n.server.sorted()
		go func() {
			n.set(podOf("1", v1.PodRunning))
			close(set)
		}()
		return pods
	})
	if phase := pods[0].Status.Phase; phase != v1.PodPending {
		t.Errorf("the list has a pod that is %s", phase)
	}
	<-set
	if phase := (<-w.events).pod.Status.Phase; phase != v1.PodRunning {
		t.Errorf("the first event has a pod that is %s", phase)
	}
	n.server.watches.close(w)
	if n.server.Watched() {
		t.Error("the closed watch is counted")
	}
}

// stuck is the stream of a client that takes what was listed and then, until released, nothing more.
type stuck struct {
	grpc.ServerStreamingServer[api.WatchPodsEvent]
	ctx             context.Context
	synced, blocked chan struct{}
	release         chan struct{}
	sent            int
}

func (s *stuck) Context() context.Context { return s.ctx }

func (s *stuck) Send(e *api.WatchPodsEvent) error {
	if e.Type == api.EventType_INITIAL_SYNC_COMPLETE {
		close(s.synced)
		return nil
	}
	if s.sent == 0 {
		close(s.blocked)
		<-s.release
	}
	s.sent++
	return nil
}

// TestSlowClient: a client whose queue is full gets what is queued and then an error. Other clients, and the agent, do not wait
// for it.
func TestSlowClient(t *testing.T) {
	n := newNode()
	dropped := 0
	n.server.Dropped = func() { dropped++ }
	slow := &stuck{ctx: within(t), synced: make(chan struct{}), blocked: make(chan struct{}), release: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- n.server.WatchPods(nil, slow) }()
	<-slow.synced
	n.set(podOf("0", v1.PodRunning))
	<-slow.blocked
	for i := range queueLength {
		n.set(podOf(types.UID(fmt.Sprint(i+1)), v1.PodRunning))
	}
	if dropped != 0 || !n.server.Watched() {
		t.Fatalf("%d events are dropped before the queue is full", dropped)
	}
	other, _ := n.server.watches.open(n.server.sorted)
	n.set(podOf("too-many", v1.PodRunning))
	n.set(podOf("after", v1.PodRunning))
	if dropped != 1 {
		t.Errorf("%d events dropped, want 1", dropped)
	}
	if a, b := (<-other.events).uid, (<-other.events).uid; a != "too-many" || b != "after" {
		t.Errorf("the other watch has %s, %s", a, b)
	}
	close(slow.release)
	err := <-done
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted || s.Message() != "watch client channel closed" {
		t.Errorf("the slow watch ended with %v", err)
	}
	if want := queueLength + 1; slow.sent != want {
		t.Errorf("the slow client got %d events, want %d", slow.sent, want)
	}
	n.server.watches.close(other)
	if n.server.Watched() {
		t.Error("closed watches are counted")
	}
}

// TestClientLeaves: a client that leaves ends its watch.
func TestClientLeaves(t *testing.T) {
	n := newNode()
	ctx, cancel := context.WithCancel(within(t))
	gone := &stuck{ctx: ctx, synced: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- n.server.WatchPods(nil, gone) }()
	<-gone.synced
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
	if n.server.Watched() {
		t.Error("the watch is open")
	}
}
