// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

// Tests with an API use a fake clientset and a fake clock.
type cluster struct {
	t      *testing.T
	client *fake.Clientset
	clock  *clocktesting.FakeClock
	nodes  *Nodes
	stop   func()
	// watching receives the name of each watched resource.
	watching chan string
}

func newCluster(t *testing.T, o Options, objects ...runtime.Object) *cluster {
	t.Helper()
	c := &cluster{t: t, client: fake.NewClientset(objects...), clock: clocktesting.NewFakeClock(start)}
	c.watching = make(chan string, 100)
	c.client.PrependWatchReactor("*", c.watch)
	o.Client, o.Clock, o.Version = c.client, c.clock, "v1.37.1"
	c.run(o)
	return c
}

// watch reports when a watch is open. The fake API loses events before that.
func (c *cluster) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	var options metav1.ListOptions
	if a, ok := action.(clienttesting.WatchActionImpl); ok {
		options = a.ListOptions
	}
	w, err := c.client.Tracker().Watch(action.GetResource(), action.GetNamespace(), options)
	c.watching <- action.GetResource().Resource
	return true, w, err
}

// run starts the nodes and waits until they are registered and their watches are open.
func (c *cluster) run(o Options) {
	c.t.Helper()
	o.Informers = informers.NewSharedInformerFactory(c.client, 0)
	nodes, err := New(o)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	o.Informers.StartWithContext(ctx)
	for open := map[string]bool{}; !open["pods"] || !open["nodes"]; {
		open[<-c.watching] = true
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := nodes.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	c.nodes = nodes
	c.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	c.t.Cleanup(c.stop)
	select {
	case <-nodes.Registered():
	case <-time.After(10 * time.Second):
		c.t.Fatal("the nodes are not registered after 10 s")
	}
}

func (c *cluster) eventually(what string, is func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("not true after 10 s: %s", what)
		}
	}
}

func (c *cluster) node(name string) *v1.Node {
	c.t.Helper()
	node, err := c.client.CoreV1().Nodes().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return node
}

func (c *cluster) create(p *v1.Pod) {
	c.t.Helper()
	if _, err := c.client.CoreV1().Pods(p.Namespace).Create(c.t.Context(), p, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) pod(name string) *v1.Pod {
	p, err := c.client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (c *cluster) awaitPhase(name string, phase v1.PodPhase) *v1.Pod {
	c.t.Helper()
	c.eventually(name+" is "+string(phase), func() bool { p := c.pod(name); return p != nil && p.Status.Phase == phase })
	return c.pod(name)
}

func named(name, node string) *v1.Pod {
	p := newPod("a")
	p.Name, p.UID, p.Spec.NodeName = name, types.UID("uid-"+name), node
	return p
}

func TestNodesAreRegistered(t *testing.T) {
	c := newCluster(t, Options{Count: 3, Taint: true, Capacity: v1.ResourceList{v1.ResourcePods: quantity("1")}})
	addresses := map[string]bool{}
	for i := range 3 {
		node := c.node(fmt.Sprintf("sim-%d", i))
		if len(node.Spec.Taints) != 1 || node.Spec.Taints[0] != taint() {
			t.Errorf("taints %v", node.Spec.Taints)
		}
		if pods := node.Status.Allocatable[v1.ResourcePods]; pods.Value() != 1 {
			t.Errorf("capacity of %s pods, want 1", pods.String())
		}
		if cpu := node.Status.Capacity[v1.ResourceCPU]; cpu.Value() != 32 {
			t.Errorf("%s CPUs, want 32", cpu.String())
		}
		if !isHealthy(node) || node.Status.NodeInfo.KubeletVersion != "v1.37.1" {
			t.Errorf("status %+v", node.Status)
		}
		addresses[internalIPs(node)[0]] = true
		lease, err := c.client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), node.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if *lease.Spec.HolderIdentity != node.Name || *lease.Spec.LeaseDurationSeconds != 40 || lease.OwnerReferences[0].Name != node.Name {
			t.Errorf("lease %+v", lease)
		}
	}
	if len(addresses) != 3 {
		t.Errorf("three nodes have the addresses %v", addresses)
	}
}

func TestNodesAreAdopted(t *testing.T) {
	c := newCluster(t, Options{Count: 1, Taint: true})
	c.stop()
	lost := c.node("sim-0")
	lost.Status.Conditions[3].Status = v1.ConditionUnknown
	lost.Labels["mine"] = "kept"
	lost.Spec.Taints = append(lost.Spec.Taints, v1.Taint{Key: "other", Effect: v1.TaintEffectNoExecute})
	if _, err := c.client.CoreV1().Nodes().Update(t.Context(), lost, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.run(Options{Client: c.client, Clock: c.clock, Count: 1})
	node := c.node("sim-0")
	if !isHealthy(node) {
		t.Errorf("conditions %v", node.Status.Conditions)
	}
	if node.Labels["mine"] != "kept" || len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "other" {
		t.Errorf("labels %v, taints %v: want those of other clients kept, and the simulated taint removed", node.Labels, node.Spec.Taints)
	}
}

func TestRealNodeIsNotAdopted(t *testing.T) {
	real := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "sim-0"}}
	client := fake.NewClientset(real)
	nodes, err := New(Options{Client: client, Informers: informers.NewSharedInformerFactory(client, 0), Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := nodes.Run(ctx); err == nil {
		t.Error("a real node was adopted")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	none := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	for _, count := range []int{-1, 1 << 20} {
		if _, err := New(Options{Informers: none, Count: count}); err == nil {
			t.Errorf("%d nodes are accepted", count)
		}
	}
	last := 1<<15 - 2
	if _, err := New(Options{Informers: none, Count: last}); err != nil {
		t.Error(err)
	}
	if got := nodeAddress(last - 1); got != "198.18.127.254" {
		t.Errorf("the last node's address is %s", got)
	}
}

func TestPodLife(t *testing.T) {
	c := newCluster(t, Options{Count: 2})
	c.create(named("other", "somewhere-else"))
	c.create(named("p", "sim-1"))
	p := c.awaitPhase("p", v1.PodRunning)
	if p.Status.HostIP != nodeAddress(1) {
		t.Errorf("host IP %s, want that of sim-1", p.Status.HostIP)
	}
	if got := c.writes("pods/status"); got != 1 {
		t.Errorf("%d status writes from Pending to Running, want 1", got)
	}
	at, grace := metav1.NewTime(start), int64(30)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	if _, err := c.client.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("p is deleted", func() bool { return c.pod("p") == nil })
	c.eventually("its address is free", func() bool {
		c.nodes.allocations.mu.Lock()
		defer c.nodes.allocations.mu.Unlock()
		return len(c.nodes.allocations.taken) == 0 && len(c.nodes.allocations.pods) == 0
	})
	if other := c.pod("other"); other.Status.Phase != v1.PodPending {
		t.Errorf("another node's pod is %s", other.Status.Phase)
	}
}

// writes returns the number of updates of a resource.
func (c *cluster) writes(resource string) int {
	n := 0
	for _, a := range c.client.Actions() {
		name := a.GetResource().Resource
		if sub := a.GetSubresource(); sub != "" {
			name += "/" + sub
		}
		if name == resource && a.GetVerb() == "update" {
			n++
		}
	}
	return n
}

func TestPodExitsWhenDue(t *testing.T) {
	c := newCluster(t, Options{Count: 1})
	c.create(with(named("job", "sim-0"), v1.RestartPolicyNever, ExitAfter, "1m", ExitCode, "7"))
	c.awaitPhase("job", v1.PodRunning)
	c.eventually("the pod has failed", func() bool {
		c.clock.Step(time.Second)
		return c.pod("job").Status.Phase == v1.PodFailed
	})
	ended := c.pod("job").Status.ContainerStatuses[0].State.Terminated
	if ended.ExitCode != 7 || ended.FinishedAt.Sub(ended.StartedAt.Time) != time.Minute {
		t.Errorf("ended %+v", ended)
	}
}

func TestPodsAreTakenOver(t *testing.T) {
	c := newCluster(t, Options{Count: 1})
	for i := range 5 {
		c.create(named(fmt.Sprintf("p%d", i), "sim-0"))
	}
	before := map[string]string{}
	for i := range 5 {
		name := fmt.Sprintf("p%d", i)
		before[name] = c.awaitPhase(name, v1.PodRunning).Status.PodIP
	}
	c.stop()
	c.client.ClearActions()
	c.clock.Step(time.Hour)
	c.run(Options{Client: c.client, Clock: c.clock, Count: 1})
	c.create(named("new", "sim-0"))
	addresses := map[string]string{c.awaitPhase("new", v1.PodRunning).Status.PodIP: "new"}
	for name, ip := range before {
		p := c.pod(name)
		if p.Status.PodIP != ip || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s had address %s and has %s; %d restarts", name, ip, p.Status.PodIP, p.Status.ContainerStatuses[0].RestartCount)
		}
		if other, taken := addresses[ip]; taken {
			t.Errorf("%s and %s have the address %s", name, other, ip)
		}
		addresses[ip] = name
	}
	if got := c.writes("pods/status"); got != 1 {
		t.Errorf("%d status writes after the restart, want only the new pod's", got)
	}
}

func TestConflictIsRetried(t *testing.T) {
	c := newCluster(t, Options{Count: 1})
	var once sync.Once
	c.client.PrependReactor("update", "pods", func(a clienttesting.Action) (handled bool, _ runtime.Object, err error) {
		if a.GetSubresource() == "status" {
			once.Do(func() { handled, err = true, apierrors.NewConflict(v1.Resource("pods"), "p", nil) })
		}
		return handled, nil, err
	})
	c.create(named("p", "sim-0"))
	c.eventually("the write is retried", func() bool {
		c.clock.Step(retryFirst)
		return c.pod("p").Status.Phase == v1.PodRunning
	})
}

func TestRefusals(t *testing.T) {
	cpu := func(p *v1.Pod, amount string) *v1.Pod {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: quantity(amount)}
		return p
	}
	tests := map[string]struct {
		pod             *v1.Pod
		reason, message string
	}{
		"too large": {cpu(named("p", "sim-0"), "33"), "OutOfcpu",
			"Pod was rejected: Node didn't have enough resource: cpu, requested: 33000, used: 0, capacity: 32000"},
		"other node's selector": {func() *v1.Pod { p := named("p", "sim-0"); p.Spec.NodeSelector = map[string]string{"a": "b"}; return p }(),
			"NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		"Windows": {func() *v1.Pod { p := named("p", "sim-0"); p.Spec.OS = &v1.PodOS{Name: v1.Windows}; return p }(),
			"PodOSNotSupported", "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS"},
		"bad annotation": {with(named("p", "sim-0"), v1.RestartPolicyNever, ExitAfter, "soon"),
			"InvalidSimulation", "Pod was rejected: annotation kindred.dev/simulated-exit-after is \"soon\", not a duration such as 1.5s"},
		"bad code": {with(named("p", "sim-0"), v1.RestartPolicyNever, ExitCode, "256"),
			"InvalidSimulation", "Pod was rejected: annotation kindred.dev/simulated-exit-code is \"256\", not an exit code from 0 to 255"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, Options{Count: 1})
			c.create(tt.pod)
			p := c.awaitPhase("p", v1.PodFailed)
			if p.Status.Reason != tt.reason || p.Status.Message != tt.message {
				t.Errorf("got %s: %s\nwant %s: %s", p.Status.Reason, p.Status.Message, tt.reason, tt.message)
			}
		})
	}
}

func TestFullNodeRefusesUntilPodsFinish(t *testing.T) {
	c := newCluster(t, Options{Count: 2, Capacity: v1.ResourceList{v1.ResourcePods: quantity("1")}})
	c.create(named("first", "sim-0"))
	c.awaitPhase("first", v1.PodRunning)
	c.create(named("second", "sim-0"))
	if p := c.awaitPhase("second", v1.PodFailed); p.Status.Reason != "OutOfpods" {
		t.Errorf("refused for %s", p.Status.Reason)
	}
	c.create(named("elsewhere", "sim-1"))
	c.awaitPhase("elsewhere", v1.PodRunning)
	if err := c.client.CoreV1().Pods("default").Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the node has room again", func() bool {
		c.nodes.allocations.mu.Lock()
		defer c.nodes.allocations.mu.Unlock()
		return c.nodes.allocations.pods["uid-first"] == nil
	})
	c.create(named("third", "sim-0"))
	c.awaitPhase("third", v1.PodRunning)
}

func TestHostPortConflict(t *testing.T) {
	onPort := func(name, node string) *v1.Pod {
		p := named(name, node)
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: v1.ProtocolTCP}}
		return p
	}
	c := newCluster(t, Options{Count: 2})
	c.create(onPort("first", "sim-0"))
	c.awaitPhase("first", v1.PodRunning)
	c.create(onPort("second", "sim-0"))
	if p := c.awaitPhase("second", v1.PodFailed); p.Status.Reason != "NodePorts" {
		t.Errorf("refused for %s", p.Status.Reason)
	}
	c.create(onPort("elsewhere", "sim-1"))
	c.awaitPhase("elsewhere", v1.PodRunning)
}

// TestHeartbeatsAreSpread advances the clock by one interval: each tick renews one lease, and all are
// renewed once.
func TestHeartbeatsAreSpread(t *testing.T) {
	const count = 50
	c := newCluster(t, Options{Count: count})
	tick := renewInterval / count
	c.eventually("the first renewal", func() bool {
		c.clock.Step(tick)
		time.Sleep(20 * time.Millisecond)
		return c.writes("leases") > 0
	})
	first := c.writes("leases")
	if first > 3 {
		t.Errorf("%d leases were renewed in the first ticks", first)
	}
	for i := range count {
		c.clock.Step(tick)
		c.eventually("one more renewal", func() bool { return c.writes("leases") >= first+i+1 })
		if got := c.writes("leases"); got > first+i+1 {
			t.Fatalf("%d renewals in %d ticks", got-first, i+1)
		}
	}
	for i := range count {
		name := fmt.Sprintf("sim-%d", i)
		lease, err := c.client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !lease.Spec.RenewTime.After(start) {
			t.Errorf("the lease of %s was not renewed", name)
		}
	}
}

func TestUnknownConditionsAreRepaired(t *testing.T) {
	c := newCluster(t, Options{Count: 1})
	node := c.node("sim-0")
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].Status = v1.ConditionUnknown
	}
	if _, err := c.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the node is healthy again", func() bool { return isHealthy(c.node("sim-0")) })
}

func TestDeletedNodeIsNotRecreated(t *testing.T) {
	c := newCluster(t, Options{Count: 1})
	if err := c.client.CoreV1().Nodes().Delete(t.Context(), "sim-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the node is forgotten", func() bool { return c.nodes.node("sim-0") == nil })
	before := c.writes("leases")
	c.nodes.heartbeat(t.Context(), 0)
	if after := c.writes("leases"); after != before {
		t.Error("the lease of a deleted node was renewed")
	}
	if _, err := c.client.CoreV1().Nodes().Get(t.Context(), "sim-0", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the deleted node was created again: %v", err)
	}
}
