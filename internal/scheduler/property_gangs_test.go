// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// gangWorld is a simple model of a cluster with gangs, whose pods differ only in their CPU, so that
// counting shows whether a gang fits.
type gangWorld struct {
	*bench
	t      *testing.T
	random *rand.Rand
	nodes  map[string]*v1.Node
	gangs  map[string]*schedulingv1beta1.PodGroup
	pods   map[string]*v1.Pod
	// on has the nodes of pods, bound or being bound; inFlight the pods being bound.
	on       map[string]string
	inFlight map[string]bool
	made     int
}

func newGangWorld(t *testing.T, seed uint64) *gangWorld {
	return &gangWorld{
		bench: newBench(), t: t, random: rand.New(rand.NewPCG(seed, 1)), nodes: map[string]*v1.Node{}, gangs: map[string]*schedulingv1beta1.PodGroup{},
		pods: map[string]*v1.Pod{}, on: map[string]string{}, inFlight: map[string]bool{},
	}
}

func cpuOf(p *v1.Pod) int64 { return p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() }

// free returns the free CPU of a node.
func (w *gangWorld) free(node *v1.Node) int64 {
	free := node.Status.Allocatable.Cpu().MilliValue()
	for name, on := range w.on {
		if on == node.Name {
			free -= cpuOf(w.pods[name])
		}
	}
	return free
}

// count returns how many pods of a gang are on nodes, and how many are pending, with the CPU of each.
func (w *gangWorld) count(gang string) (placed, pending int, cpu int64) {
	for name, p := range w.pods {
		switch group := p.Spec.SchedulingGroup; {
		case group == nil || *group.PodGroupName != gang:
			continue
		case w.on[name] != "":
			placed++
		default:
			pending++
		}
		cpu = cpuOf(p)
	}
	return placed, pending, cpu
}

func (w *gangWorld) step() {
	gangName := fmt.Sprint("g", w.random.IntN(5))
	switch w.random.IntN(12) {
	case 0, 1:
		n := testNode(fmt.Sprint("n", w.random.IntN(4)), fmt.Sprint(1+w.random.IntN(4)))
		w.nodes[n.Name] = n
		w.setNode(n)
	case 2:
		if n := anyOf(w.random, w.nodes); n != nil && w.random.IntN(2) == 0 {
			delete(w.nodes, n.Name)
			w.removeNode(n.Name)
		}
	case 3, 4:
		g := gang(gangName, int32(1+w.random.IntN(4)))
		w.gangs[gangName] = g
		w.setGroup(g)
	case 5:
		if g := w.gangs[gangName]; g != nil && w.random.IntN(3) == 0 {
			delete(w.gangs, gangName)
			w.removeGroup(g)
		}
	case 6, 7:
		if p := anyOf(w.random, w.pods); p != nil {
			delete(w.pods, p.Name)
			delete(w.on, p.Name)
			delete(w.inFlight, p.Name)
			w.removePod(p.UID)
		}
	case 8:
		w.settleBinding()
	case 9:
		w.create(testPod("", "700m"))
	default:
		// The gang's number determines the CPU of its pods.
		for range 1 + w.random.IntN(3) {
			w.create(testPod("", []string{"300m", "500m", "1", "1500m", "2"}[gangName[1]-'0'], inGroup(gangName)))
		}
	}
}

func (w *gangWorld) create(p *v1.Pod) {
	w.made++
	named := testPod(fmt.Sprint("p", w.made), "")
	p.ObjectMeta = named.ObjectMeta
	w.pods[p.Name] = p
	w.set(p)
}

// settleBinding lets the API accept or refuse a binding.
func (w *gangWorld) settleBinding() {
	if len(w.inFlight) == 0 {
		return
	}
	name := slices.Sorted(maps.Keys(w.inFlight))[0]
	delete(w.inFlight, name)
	if w.random.IntN(5) == 0 {
		delete(w.on, name)
		w.notBound(w.pods[name].UID, errors.New("refused"))
		return
	}
	bound := w.pods[name].DeepCopy()
	bound.Spec.NodeName = w.on[name]
	w.pods[name] = bound
	w.set(bound)
}

// settle runs the machine until it has nothing to decide. The bindings of a group, which end with the
// report about the group, must be none or enough.
func (w *gangWorld) settle() {
	var together []string
	for d, found := w.next(); found; d, found = w.next() {
		switch {
		case d.group != nil:
			w.checkTogether(d.group, together)
			together = nil
		case d.node == "":
		default:
			p, n := w.pods[d.pod.Name], w.nodes[d.node]
			if p == nil || n == nil || w.on[p.Name] != "" || w.free(n) < cpuOf(p) {
				w.t.Fatalf("%s -> %s: it does not fit there", d.pod.Name, d.node)
			}
			w.on[p.Name], w.inFlight[p.Name] = n.Name, true
			if p.Spec.SchedulingGroup != nil {
				together = append(together, p.Name)
			}
		}
	}
	if together != nil {
		w.t.Fatalf("%v are bound without their group", together)
	}
}

func (w *gangWorld) checkTogether(r *groupReport, pods []string) {
	for _, name := range pods {
		if group := *w.pods[name].Spec.SchedulingGroup.PodGroupName; group != r.object.Name {
			w.t.Fatalf("%s of group %s is bound with group %s", name, group, r.object.Name)
		}
	}
	g := w.gangs[r.object.Name]
	if g == nil {
		w.t.Fatalf("group %s does not exist", r.object.Name)
	}
	placed, _, _ := w.count(g.Name)
	if least := int(g.Spec.SchedulingPolicy.Gang.MinCount); len(pods) > 0 && placed < least {
		w.t.Fatalf("%d of %d pods of %s are on nodes", placed, least, g.Name)
	}
}

// check fails the test if a pending gang would fit.
func (w *gangWorld) check() {
	for name, g := range w.gangs {
		placed, pending, cpu := w.count(name)
		least := int(g.Spec.SchedulingPolicy.Gang.MinCount)
		if need := max(1, least-placed); pending >= need && w.slots(cpu) >= int64(need) {
			w.t.Fatalf("%d pods of %s are pending, and %d of %d on nodes, although there is room for %d", pending, name, placed, least, w.slots(cpu))
		}
	}
}

// slots returns how many pods fit in the free CPU of all nodes.
func (w *gangWorld) slots(cpu int64) int64 {
	var slots int64
	for _, n := range w.nodes {
		slots += max(0, w.free(n)/cpu)
	}
	return slots
}

// TestRandomGangs checks that a gang is bound with enough pods or not at all, and that none stays
// pending that fits.
func TestRandomGangs(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newGangWorld(t, seed)
			for range 150 {
				w.step()
				w.settle()
				for next, found := w.queue.Next(); found && next.Sub(w.clock.Now()) <= 10*time.Second; next, found = w.queue.Next() {
					w.clock.SetTime(next)
					w.settle()
				}
				w.check()
			}
		})
	}
}

// TestRandomGangPreemption checks that preemption for a gang changes nothing by itself, removes only
// less important pods, and makes room for the gang.
func TestRandomGangPreemption(t *testing.T) {
	preemptions := 0
	for seed := range uint64(300) {
		w := newGangWorld(t, seed)
		for i := range 3 {
			w.setNode(testNode(fmt.Sprint("n", i), fmt.Sprint(1+w.random.IntN(3))))
		}
		w.groups(gang("old", 1, asOne))
		for i := range 8 {
			edit := []func(*v1.Pod){priority(int32(w.random.IntN(3))), app(w.pick("a", "b"))}
			if w.random.IntN(3) == 0 {
				edit = []func(*v1.Pod){inGroup("old")}
			}
			w.set(testPod(fmt.Sprint("p", i), w.pick("200m", "500m", "1"), edit...))
		}
		w.decide()
		before := w.placements()
		size := 1 + w.random.IntN(4)
		w.groups(gang("new", int32(size), urgent(2))).set(members("new", size, w.pick("500m", "1"), priority(2))...)
		victims, bound := w.preempts()
		if bound > 0 || victims == nil {
			continue
		}
		preemptions++
		if after := w.placements(); !maps.Equal(before, after) {
			t.Fatalf("seed %d: preemption moved pods: %v, then %v", seed, before, after)
		}
		for _, victim := range victims {
			if w.cluster.PriorityOf(victim) >= 2 {
				t.Errorf("seed %d: %s is as important as the gang", seed, victim.Name)
			}
		}
		for _, victim := range victims {
			w.removePod(victim.UID)
		}
		w.clock.Step(20 * time.Second)
		if _, bound := w.preempts(); bound != size {
			t.Errorf("seed %d: %d of %d pods are bound after the preemption of %d", seed, bound, size, len(victims))
		}
	}
	if preemptions < 50 {
		t.Errorf("only %d preemptions", preemptions)
	}
}

func (w *gangWorld) pick(names ...string) string { return names[w.random.IntN(len(names))] }

// placements returns the nodes of all pods.
func (w *gangWorld) placements() map[string]string {
	on := map[string]string{}
	for _, n := range w.cluster.Nodes() {
		for _, p := range n.Pods {
			on[p.Name] = n.Name
		}
	}
	return on
}

// preempts runs the machine, and returns the victims and the number of bound pods of the group "new".
func (w *gangWorld) preempts() (victims []*model.Pod, bound int) {
	for d, found := w.next(); found; d, found = w.next() {
		if d.group != nil && d.group.preempt != nil {
			victims = d.group.preempt.victims
		}
		if d.node != "" && d.pod.Group.Name == "new" {
			bound++
		}
	}
	return victims, bound
}
