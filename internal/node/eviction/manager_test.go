// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	testingclock "k8s.io/utils/clock/testing"
)

// model is a node with some memory and disk space, whose pods release what they use a time after their eviction.
type model struct {
	clock  *testingclock.FakeClock
	layout Layout
	memory int64 // capacity
	disk   int64 // capacity
	waste  int64 // bytes of images and dead containers
	pods   []*v1.Pod
	usages Usages
	takes  time.Duration // until an evicted pod has ended

	evicted []string
	noticed []string
	counted []Signal
	ages    []time.Duration // of the measurements of evictions
	ending  map[types.UID]time.Time
	failed  error
}

func (n *model) Layout(context.Context) (Layout, error) { return n.layout, n.failed }

func (n *model) Observe(context.Context) (Observations, error) {
	memory, disk := n.memory, n.disk-n.waste
	for _, p := range n.pods {
		if n.released(p.UID) {
			continue
		}
		memory -= valueOf(n.usages[p.UID].Memory)
		disk -= n.usages[p.UID].total(p).Bytes
	}
	now := n.clock.Now()
	return Observations{
		MemoryAvailable: {Available: binary(memory), Capacity: binary(n.memory), Time: now},
		NodeFsAvailable: {Available: binary(disk), Capacity: binary(n.disk), Time: now},
	}, n.failed
}

func (n *model) released(uid types.UID) bool {
	at, ok := n.ending[uid]
	return ok && !n.clock.Now().Before(at)
}

func (n *model) Pods() []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(n.pods), func(p *v1.Pod) bool { return n.released(p.UID) })
}

func (n *model) Usages(context.Context, []*v1.Pod) Usages { return n.usages }

func (n *model) Evict(pod *v1.Pod, e Eviction) bool {
	if _, ok := n.ending[pod.UID]; ok {
		return false
	}
	n.ending[pod.UID] = n.clock.Now().Add(n.takes)
	n.evicted = append(n.evicted, fmt.Sprintf("%s in %d s, disrupted %t: %s", pod.Name, e.GraceSeconds, e.Disrupts, e.Message))
	return true
}

func (n *model) IsEvicting(uid types.UID) bool {
	_, ok := n.ending[uid]
	return ok && !n.released(uid)
}

// reclaimer frees some of the model's waste.
type reclaimer struct {
	node  *model
	frees int64
	err   error
	calls int
}

func (r *reclaimer) Reclaim(context.Context) error {
	r.calls++
	r.node.waste -= min(r.frees, r.node.waste)
	return r.err
}

func newModel(thresholds ...Threshold) (*model, *Manager, *record.FakeRecorder) {
	n := &model{clock: testingclock.NewFakeClock(begin), memory: 1000, disk: 1000, usages: Usages{}, ending: map[types.UID]time.Time{}, takes: 3 * time.Second}
	events := record.NewFakeRecorder(1000)
	return n, New(Options{
		Config: Config{Thresholds: thresholds, Transition: 20 * time.Second, LocalLimits: true, MaxPodGraceSeconds: 7},
		Node:   n, Clock: n.clock, Recorder: events, Reference: &v1.ObjectReference{Kind: "Node", Name: "n"}, Changed: func() {},
		Notice:    func(sentence string) { n.noticed = append(n.noticed, sentence) },
		Evicted:   func(s Signal) { n.counted = append(n.counted, s) },
		EvictedBy: func(_ Signal, age time.Duration) { n.ages = append(n.ages, age) },
	}), events
}

// run lets the manager run for some time.
func (n *model) run(t *testing.T, m *Manager, d time.Duration) {
	for end := n.clock.Now().Add(d); n.clock.Now().Before(end); {
		n.clock.Step(m.sync(t.Context()))
	}
}

func recorded(events *record.FakeRecorder) (list []string) {
	for {
		select {
		case e := <-events.Events:
			list = append(list, e)
		default:
			return list
		}
	}
}

// TestManagerUnderMemoryPressure: pods are evicted one by one, each after the last one has ended, until enough is free.
func TestManagerUnderMemoryPressure(t *testing.T) {
	n, m, events := newModel(Threshold{Signal: MemoryAvailable, Value: quantity(100)})
	for name, used := range map[string]int64{"a": 300, "b": 400, "c": 250} {
		n.pods = append(n.pods, podOf(name, 0, ""))
		n.usages[types.UID(name)] = uses(used)
	}
	n.pods = append(n.pods, podOf("critical", systemCritical, ""))
	n.usages["critical"] = uses(40)
	n.run(t, m, time.Minute)
	want := []string{"b in 1 s, disrupted true: The node was low on resource: memory. Threshold quantity: 100, available: 10. " +
		"Container c was using 400, request is 0, has larger consumption of memory. "}
	if diff := cmp.Diff(want, n.evicted); diff != "" {
		t.Errorf("evicted (-want +got):\n%s", diff)
	}
	if got := recorded(events); len(got) != 2 || got[0] != "Warning EvictionThresholdMet Attempting to reclaim memory" || !strings.HasPrefix(got[1], "Warning Evicted The node was low on resource: memory. ") {
		t.Errorf("events %q", got)
	}
	if want := []Signal{MemoryAvailable}; !slices.Equal(n.counted, want) {
		t.Errorf("counted %v, want %v", n.counted, want)
	}
	if len(n.ages) != 1 || n.ages[0] < 0 || n.ages[0] > time.Minute {
		t.Errorf("ages of measurements: %v", n.ages)
	}
	if got := m.Conditions(); len(got) != 0 {
		t.Errorf("conditions %v after the transition period", got)
	}
}

// TestManagerWaits: while an evicted pod ends, no other one is evicted, but for 30 s at most.
func TestManagerWaits(t *testing.T) {
	n, m, _ := newModel(Threshold{Signal: MemoryAvailable, Value: quantity(100)})
	n.takes = time.Hour
	for _, name := range []string{"a", "b"} {
		n.pods = append(n.pods, podOf(name, 0, ""))
		n.usages[types.UID(name)] = uses(480)
	}
	n.run(t, m, 25*time.Second)
	if len(n.evicted) != 1 {
		t.Errorf("evicted %q after 25 s", n.evicted)
	}
	if got := m.Conditions(); !slices.Equal(got, []v1.NodeConditionType{v1.NodeMemoryPressure}) {
		t.Errorf("conditions %v", got)
	}
	n.run(t, m, 10*time.Second)
	if len(n.evicted) != 2 {
		t.Errorf("evicted %q after 35 s", n.evicted)
	}
}

// TestManagerAfterRestart: a new agent waits for the pod that the last one evicted.
func TestManagerAfterRestart(t *testing.T) {
	n, _, _ := newModel()
	n.pods = []*v1.Pod{podOf("a", 0, ""), podOf("b", 0, "")}
	n.usages["a"], n.usages["b"] = uses(480), uses(480)
	n.ending["a"] = begin.Add(5 * time.Second)
	m := New(Options{Config: Config{Thresholds: []Threshold{{Signal: MemoryAvailable, Value: quantity(100)}}}, Node: n, Clock: n.clock,
		Recorder: record.NewFakeRecorder(100), Changed: func() {}})
	n.run(t, m, time.Minute)
	if len(n.evicted) != 0 {
		t.Errorf("evicted %q although the end of the first pod was enough", n.evicted)
	}
}

// TestManagerSoft: a soft threshold waits, and gives pods time to end: no more than configured, nor than they want.
func TestManagerSoft(t *testing.T) {
	for own, want := range map[int64]string{3: "in 3 s", 30: "in 7 s"} {
		n, m, _ := newModel(Threshold{Signal: MemoryAvailable, Value: quantity(100), Grace: 30 * time.Second})
		n.pods = []*v1.Pod{podOf("a", 0, "")}
		n.pods[0].Spec.TerminationGracePeriodSeconds = &own
		n.usages["a"] = uses(950)
		n.run(t, m, 29*time.Second)
		if len(n.evicted) != 0 || len(m.Conditions()) != 1 {
			t.Errorf("evicted %q before the grace period is over; conditions %v", n.evicted, m.Conditions())
		}
		n.run(t, m, 10*time.Second)
		if len(n.evicted) != 1 || !strings.Contains(n.evicted[0], want) {
			t.Errorf("evicted %q, want one pod %s", n.evicted, want)
		}
	}
	// A negative limit leaves pods their own grace period.
	m := New(Options{Config: Config{MaxPodGraceSeconds: -1}})
	pod := podOf("a", 0, "")
	pod.Spec.TerminationGracePeriodSeconds = new(int64(40))
	if got := m.grace(Threshold{Grace: time.Second}, pod); got != 40 {
		t.Errorf("grace period %d, want the pod's", got)
	}
}

// TestManagerReclaims: pods are not evicted for disk space if deleting waste is enough.
func TestManagerReclaims(t *testing.T) {
	for _, test := range []struct {
		containers, images int64
		evicted            int
	}{{300, 0, 0}, {0, 300, 0}, {10, 10, 1}} {
		n, m, _ := newModel(Threshold{Signal: NodeFsAvailable, Value: Value{Share: 0.5}})
		n.pods, n.waste = []*v1.Pod{podOf("a", 0, "")}, 300
		n.usages["a"] = stores(200, 150)
		containers, images := &reclaimer{node: n, frees: test.containers, err: errors.New("one of them is in use")}, &reclaimer{node: n, frees: test.images}
		m.options.Containers, m.options.Images = containers, images
		m.sync(t.Context())
		if len(n.evicted) != test.evicted || containers.calls != 1 || images.calls != 1 {
			t.Errorf("frees %d and %d: evicted %q, called %d and %d times", test.containers, test.images, n.evicted, containers.calls, images.calls)
		}
	}
	// Nothing is deleted for memory, nor for nodefs if images are elsewhere.
	for _, test := range []struct {
		signal             Signal
		layout             Layout
		containers, images bool
	}{
		{MemoryAvailable, OneFs, false, false}, {PIDAvailable, OneFs, false, false},
		{NodeFsAvailable, OneFs, true, true}, {NodeFsAvailable, ImageFs, false, false}, {NodeFsInodesFree, SplitFs, true, false},
		{ImageFsAvailable, OneFs, true, true}, {ImageFsAvailable, ImageFs, true, true}, {ImageFsInodesFree, SplitFs, false, true},
		{ContainerFsAvailable, OneFs, true, true}, {ContainerFsAvailable, ImageFs, true, true}, {ContainerFsInodesFree, SplitFs, true, false},
	} {
		if containers, images := test.layout.reclaimable(test.signal); containers != test.containers || images != test.images {
			t.Errorf("%s, layout %d: containers %t, images %t", test.signal, test.layout, containers, images)
		}
	}
}

// TestManagerLimits: all pods over a limit of their own are evicted at once, with or without pressure, unless switched off.
func TestManagerLimits(t *testing.T) {
	for _, on := range []bool{true, false} {
		n, m, events := newModel()
		m.options.Config.LocalLimits = on
		for _, name := range []string{"a", "b", "c"} {
			p := podOf(name, 0, "")
			p.Spec.Containers[0].Resources.Limits = listOf("ephemeral-storage=100")
			n.pods = append(n.pods, p)
		}
		n.usages["a"], n.usages["b"], n.usages["c"] = stores(101, 0), stores(100, 0), stores(0, 101)
		n.run(t, m, time.Minute)
		var want []string
		if on {
			want = []string{"a in 1 s, disrupted false: Pod ephemeral local storage usage exceeds the total limit of containers 100. ",
				"c in 1 s, disrupted false: Pod ephemeral local storage usage exceeds the total limit of containers 100. "}
		}
		if diff := cmp.Diff(want, n.evicted); diff != "" {
			t.Errorf("limits on %t: evicted (-want +got):\n%s", on, diff)
		}
		if got := recorded(events); len(got) != len(want) {
			t.Errorf("limits on %t: events %q", on, got)
		}
	}
}

// TestManagerProperties: whatever pods use, the manager ends with enough memory or without pods to evict; it evicts no pod
// while its predecessor ends, no critical pod, none without need, and in the order of Rank.
func TestManagerProperties(t *testing.T) {
	evictions := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		least := int64(r.IntN(400))
		n, m, _ := newModel(Threshold{Signal: MemoryAvailable, Value: quantity(least)})
		n.takes = time.Duration(r.IntN(20)) * time.Second
		for i := range 1 + r.IntN(8) {
			priority := int32(r.IntN(3))
			if r.IntN(8) == 0 {
				priority = systemCritical
			}
			p := podOf(fmt.Sprintf("p%d", i), priority, fmt.Sprintf("memory=%d", r.IntN(200)))
			n.pods = append(n.pods, p)
			n.usages[p.UID] = uses(int64(r.IntN(250)))
		}
		available := func() int64 {
			seen, _ := n.Observe(t.Context())
			q := seen[MemoryAvailable].Available
			return q.Value()
		}
		evictable := func() []*v1.Pod {
			return slices.DeleteFunc(n.Pods(), func(p *v1.Pod) bool { return IsCritical(p) || n.IsEvicting(p.UID) })
		}
		for range 300 {
			before, candidates, free := len(n.evicted), evictable(), available()
			ending := slices.ContainsFunc(n.pods, func(p *v1.Pod) bool { return n.IsEvicting(p.UID) })
			n.clock.Step(m.sync(t.Context()))
			if len(n.evicted) == before {
				continue
			}
			evictions++
			best := Rank(MemoryAvailable, OneFs, candidates, n.usages)[0].Name
			if len(n.evicted) != before+1 || ending || free >= least || !strings.HasPrefix(n.evicted[before], best+" ") {
				t.Fatalf("seed %d: evicted %q with %d of %d available, another one ending %t, best %s", seed, n.evicted[before:], free, least, ending, best)
			}
		}
		if free := available(); free < least && len(evictable()) > 0 {
			t.Errorf("seed %d: %d of %d available, and pods are left", seed, free, least)
		}
	}
	if evictions < 100 {
		t.Errorf("only %d evictions: the test is too weak", evictions)
	}
}

// TestManagerWithoutMeasurements: a node that cannot be measured evicts nothing, and is asked again.
func TestManagerWithoutMeasurements(t *testing.T) {
	n, m, _ := newModel(Threshold{Signal: MemoryAvailable, Value: quantity(1000)})
	n.pods, n.failed = []*v1.Pod{podOf("a", 0, "")}, errors.New("no runtime")
	n.usages["a"] = uses(10)
	n.run(t, m, time.Minute)
	if len(n.evicted) != 0 {
		t.Errorf("evicted %q", n.evicted)
	}
	n.failed = nil
	n.run(t, m, time.Minute)
	if len(n.evicted) != 1 {
		t.Errorf("evicted %q, want one pod", n.evicted)
	}
}

// TestRefusal has upstream's rules for pods on a node under pressure.
func TestRefusal(t *testing.T) {
	memory, disk := v1.NodeMemoryPressure, v1.NodeDiskPressure
	tolerating := podOf("p", 0, "")
	tolerating.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}}
	static := podOf("p", 0, "")
	static.Annotations = map[string]string{sourceAnnotation: "file"}
	fromAPI := podOf("p", 0, "")
	fromAPI.Annotations = map[string]string{sourceAnnotation: "api"}
	for _, test := range []struct {
		name       string
		pod        *v1.Pod
		conditions []v1.NodeConditionType
		want       string
	}{
		{"no pressure", podOf("p", 0, ""), nil, ""},
		{"memory, BestEffort", podOf("p", 0, ""), []v1.NodeConditionType{memory}, "The node had condition: [MemoryPressure]. "},
		{"memory, Burstable", podOf("p", 0, "memory=1Mi"), []v1.NodeConditionType{memory}, ""},
		{"memory, tolerating", tolerating, []v1.NodeConditionType{memory}, ""},
		{"memory and disk, Burstable", podOf("p", 0, "memory=1Mi"), []v1.NodeConditionType{memory, disk}, "The node had condition: [MemoryPressure DiskPressure]. "},
		{"disk, Burstable", podOf("p", 0, "memory=1Mi"), []v1.NodeConditionType{disk}, "The node had condition: [DiskPressure]. "},
		{"disk, critical", podOf("p", systemCritical, ""), []v1.NodeConditionType{disk}, ""},
		{"PIDs, static", static, []v1.NodeConditionType{v1.NodePIDPressure}, ""},
		{"PIDs, from the API", fromAPI, []v1.NodeConditionType{v1.NodePIDPressure}, "The node had condition: [PIDPressure]. "},
	} {
		if got := Refusal(klog.Background(), test.conditions, test.pod); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
