// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/deviceplugin"
	"github.com/kindred-project/kindred/internal/node/deviceplugin/plugintest"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/topology"
)

const deviceName = "example.com/device"

// bed is the directory of an agent on a machine with two NUMA nodes of four CPUs and 1000 bytes, and four devices.
type bed struct {
	t       *testing.T
	dir     string
	config  *config.Configuration
	machine *topology.Machine
	plugins *deviceplugin.Manager
	plugin  *plugintest.Plugin
	woken   chan types.UID
	// observer counts for the agents, if set.
	observer Observer
}

func newBed(t *testing.T, set func(c *config.Configuration)) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, dir: dir, config: config.Default(), machine: &topology.Machine{}, woken: make(chan types.UID, 100)}
	for id := range 8 {
		b.machine.CPUs = append(b.machine.CPUs, topology.CPU{ID: id, Core: id, Cache: id / 4 * 4, Node: id / 4, Socket: id / 4})
	}
	for id := range 2 {
		b.machine.Nodes = append(b.machine.Nodes, topology.Node{ID: id, Memory: 1000})
	}
	b.config.CPUManagerPolicy, b.config.ReservedSystemCPUs = "static", "0"
	b.config.MemoryManagerPolicy = "Static"
	b.config.ReservedMemory = []kubeletv1beta1.MemoryReservation{{NumaNode: 0, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("100")}}}
	set(b.config)
	b.startPlugin()
	return b
}

func (b *bed) startPlugin() {
	b.t.Helper()
	ready := make(chan struct{}, 100)
	sockets := filepath.Join(b.dir, "d")
	b.plugin = &plugintest.Plugin{Dir: sockets, Resource: deviceName}
	var err error
	b.plugins, err = deviceplugin.New(deviceplugin.Options{Dir: sockets, Nodes: 3, Clock: clock.RealClock{}, Changed: func(string, []string) { ready <- struct{}{} }})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.plugins.Run(ctx)
	}()
	b.t.Cleanup(func() {
		cancel()
		<-done
		_ = os.RemoveAll(b.dir)
	})
	for {
		if _, err := os.Stat(filepath.Join(sockets, "kubelet.sock")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	stop, err := b.plugin.Serve(deviceOn("a", 0), deviceOn("b", 0), deviceOn("c", 1), deviceOn("d", 1))
	if err == nil {
		err = b.plugin.Register(ctx)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(stop)
	<-ready
}

func deviceOn(id string, node int64) *deviceapi.Device {
	return &deviceapi.Device{ID: id, Health: deviceapi.Healthy, Topology: &deviceapi.TopologyInfo{Nodes: []*deviceapi.NUMANode{{ID: node}}}}
}

// agent is a new agent, which knows only what is on disk.
func (b *bed) agent() *Manager {
	b.t.Helper()
	m, err := New(Options{
		Dir: filepath.Join(b.dir, "r"), Config: b.config, Machine: b.machine, Clock: clock.RealClock{},
		Reserved: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("100")},
		Plugins:  b.plugins, Wake: func(uid types.UID) { b.woken <- uid }, Observer: b.observer,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

// want is a container: CPUs, bytes and devices; a letter i or s at the end of the name means init container or sidecar.
type want struct {
	name            string
	cpus, mem, devs int64
}

func guaranteed(uid string, containers ...want) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)}}
	for _, w := range containers {
		list := v1.ResourceList{
			v1.ResourceCPU: *resource.NewQuantity(w.cpus, resource.DecimalSI), v1.ResourceMemory: *resource.NewQuantity(w.mem, resource.DecimalSI),
		}
		if w.devs > 0 {
			list[deviceName] = *resource.NewQuantity(w.devs, resource.DecimalSI)
		}
		c := v1.Container{Name: w.name, Resources: v1.ResourceRequirements{Requests: list, Limits: list}}
		switch w.name[len(w.name)-1] {
		case 'i':
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case 's':
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

func (b *bed) assign(m *Manager, p *v1.Pod, want *pod.Refusal) {
	b.t.Helper()
	if diff := cmp.Diff(want, m.Assign(b.t.Context(), p)); diff != "" {
		b.t.Fatalf("%s (-want +got):\n%s", p.Name, diff)
	}
}

func (b *bed) has(m *Manager, uid types.UID, name, cpus, nodes, devices string) {
	b.t.Helper()
	c, _ := m.store.get(uid).of(name)
	at := topology.Mask(0)
	for _, block := range c.Memory {
		at |= block.Nodes
	}
	got := []string{c.CPUs, at.String(), fmt.Sprint(c.Devices[deviceName].IDs)}
	if diff := cmp.Diff([]string{cpus, nodes, devices}, got); diff != "" {
		b.t.Errorf("%s/%s (-want +got):\n%s", uid, name, diff)
	}
}

// TestAssign: containers get CPUs, memory and devices, which the next agent knows, until the pod is released.
func TestAssign(t *testing.T) {
	b := newBed(t, func(*config.Configuration) {})
	m := b.agent()
	b.assign(m, guaranteed("p", want{"1i", 2, 300, 2}, want{"2s", 1, 100, 0}, want{"3", 2, 200, 1}), nil)
	b.has(m, "p", "1i", "1-2", "[0]", "[a b]")
	b.has(m, "p", "2s", "1", "[0]", "[]")
	b.has(m, "p", "3", "2-3", "[0]", "[a]")
	b.assign(m, guaranteed("shares", want{"1", 0, 0, 0}), nil)
	if m.Has("shares") || !m.HasCPUs("p") || !m.Exclusive("p", "3") || m.Exclusive("p", "4") {
		t.Error("the wrong containers have CPUs of their own")
	}

	next := b.agent()
	b.has(next, "p", "3", "2-3", "[0]", "[a]")
	b.assign(next, guaranteed("q", want{"1", 5, 10, 0}), &pod.Refusal{Reason: "UnexpectedAdmissionError",
		Message: "Allocate failed due to not enough cpus available to satisfy request: requested=5, available=4, which is unexpected"})
	b.assign(next, guaranteed("q", want{"1", 0, 0, 3}), &pod.Refusal{Reason: "UnexpectedAdmissionError",
		Message: "Allocate failed due to requested number of devices unavailable for example.com/device. Requested: 3, Available: 2, which is unexpected"})
	b.assign(next, guaranteed("q", want{"1", 4, 1000, 2}), nil)
	b.has(next, "q", "1", "4-7", "[1]", "[c d]")
	if err := next.RemoveOrphans(t.Context(), func(uid types.UID) bool { return uid == "q" }); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(next.Release("q"), next.Release("q")); err != nil {
		t.Fatal(err)
	}
	if last := b.agent(); last.Has("p") || last.Has("q") {
		t.Error("a released pod has resources")
	}
}

// TestTopology: resources of a container, or of a pod, are on one NUMA node, or the pod is refused.
func TestTopology(t *testing.T) {
	refused := &pod.Refusal{Reason: "TopologyAffinityError", Message: "Resources cannot be allocated with Topology locality"}
	aligned := func(scope string) func(*config.Configuration) {
		return func(c *config.Configuration) {
			c.TopologyManagerPolicy, c.TopologyManagerScope = topology.SingleNUMANode, scope
		}
	}
	b := newBed(t, aligned(topology.ContainerScope))
	m := b.agent()
	b.assign(m, guaranteed("p", want{"1", 2, 100, 1}, want{"2", 4, 100, 1}), nil)
	b.has(m, "p", "1", "1-2", "[0]", "[a]")
	b.has(m, "p", "2", "4-7", "[1]", "[c]")
	b.assign(m, guaranteed("q", want{"1", 1, 901, 0}), refused)
	b.assign(m, guaranteed("q", want{"1", 2, 10, 0}), refused)
	b.assign(m, guaranteed("q", want{"1", 1, 100, 2}), refused)
	b.assign(m, guaranteed("q", want{"1", 1, 100, 1}), nil)
	b.has(m, "q", "1", "3", "[0]", "[b]")

	b = newBed(t, aligned(topology.PodScope))
	m = b.agent()
	b.assign(m, guaranteed("p", want{"1i", 4, 10, 0}, want{"2", 1, 10, 1}, want{"3", 2, 10, 1}), nil)
	b.has(m, "p", "2", "4", "[1]", "[c]")
	b.has(m, "p", "3", "5-6", "[1]", "[d]")
	b.assign(m, guaranteed("q", want{"1", 2, 10, 0}, want{"2", 2, 10, 0}), refused)
}

// TestPrepare: a container that is created gets its CPUs, nodes and devices; one without gets the other CPUs.
func TestPrepare(t *testing.T) {
	b := newBed(t, func(*config.Configuration) {})
	m := b.agent()
	p := guaranteed("p", want{"1", 2, 100, 1})
	b.assign(m, p, nil)
	a, err := m.Prepare(t.Context(), p, "1")
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(a.CPUs, a.MemoryNodes, a.Exclusive, " ", a.Env, a.Annotations, len(a.Mounts), len(a.Devices), len(a.CDIDevices))
	if want := `1-2 0 true [key:"DEVICES" value:"[a]"] map[example.com/device:a] 1 1 1`; cleaned(got) != cleaned(want) {
		t.Errorf("got %s, want %s", got, want)
	}
	a, err = m.Prepare(t.Context(), guaranteed("q", want{"1", 0, 0, 0}), "1")
	if diff := cmp.Diff(criconfig.Assigned{CPUs: "0,3-7"}, a); diff != "" || err != nil {
		t.Errorf("shared: %v (-want +got):\n%s", err, diff)
	}
	b.machine.CPUs = slices.DeleteFunc(b.machine.CPUs, func(c topology.CPU) bool { return c.ID == 2 })
	if _, err := b.agent().Prepare(t.Context(), p, "1"); err == nil || err.Error() != "the container was assigned CPUs 2, which are offline; delete the pod" {
		t.Error(err)
	}
}

// cleaned removes blanks, of which protobuf's texts have a random number.
func cleaned(text string) string {
	return string(slices.DeleteFunc([]byte(text), func(c byte) bool { return c == ' ' }))
}

// TestHealth: statuses have the health of devices, and a change wakes the pod. The API of monitors has all.
func TestHealth(t *testing.T) {
	b := newBed(t, func(*config.Configuration) {})
	m := b.agent()
	b.assign(m, guaranteed("p", want{"1", 1, 100, 1}), nil)
	health := func(want v1.ResourceHealthStatus) {
		t.Helper()
		list := map[string][]v1.ResourceStatus{"1": {{Name: deviceName, Resources: []v1.ResourceHealth{{ResourceID: "a", Health: want}}}}}
		if diff := cmp.Diff(list, m.Health("p")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	health(v1.ResourceHealthStatusHealthy)
	m.DevicesChanged(deviceName, []string{"b"})
	m.DevicesChanged(deviceName, []string{"a"})
	if len(b.woken) != 1 || <-b.woken != "p" {
		t.Error("the pod was not woken once")
	}
	if m.Health("q") != nil {
		t.Error("a pod without devices has some")
	}
	has := m.Resources("p", "1")
	if fmt.Sprint(has.CpuIds, has.Devices[0].DeviceIds, has.Devices[0].Topology.Nodes[0].ID, has.Memory[0].Size, has.Memory[0].MemoryType) != "[1] [a] 0 100memory" {
		t.Errorf("resources %v", has)
	}
	all := m.AllocatableResources()
	if fmt.Sprint(all.CpuIds, len(all.Devices), len(all.Memory)) != "[1 2 3 4 5 6 7] 4 2" {
		t.Errorf("allocatable %v", all)
	}
	node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{deviceName: resource.MustParse("0")}}}
	if got := m.Allocatable(node).Status.Allocatable[deviceName]; got.Value() != 1 || !node.Status.Allocatable.Name(deviceName, "").IsZero() {
		t.Errorf("allocatable %v, want what is allocated", got.Value())
	}
}

// A claim's extended resource is not a device plugin's.
func TestExtendedResourceOfClaim(t *testing.T) {
	b := newBed(t, func(*config.Configuration) {})
	m := b.agent()
	p := guaranteed("p", want{"1", 0, 0, 1})
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "1", ResourceName: deviceName}},
	}
	b.assign(m, p, nil)
	if m.Has("p") {
		t.Error("the pod has a device of the plugin")
	}
}

func TestResize(t *testing.T) {
	b := newBed(t, func(*config.Configuration) {})
	m := b.agent()
	for _, test := range []struct {
		cpus, mem    int64
		want, detail string
	}{
		{1, 100, "", ""},
		{2, 100, `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`, "guaranteed_pod_cpu_manager_static_policy"},
		{1, 200, `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`, "guaranteed_pod_memory_manager_static_policy"},
	} {
		got := m.CheckResize(guaranteed("p", want{"1", test.cpus, test.mem, 0}), guaranteed("p", want{"1", 1, 100, 0}))
		if (got == nil) != (test.want == "") || got != nil && *got != (pod.Refusal{Reason: v1.PodReasonInfeasible, Message: test.want, Detail: test.detail}) {
			t.Errorf("got %v, want %s", got, test.want)
		}
	}
}

func TestDamagedRecord(t *testing.T) {
	for _, text := range []string{"{", `{"containers":[{"cpus":"x"}]}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "uid.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := open(dir); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
