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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// world is a simple model of the cluster, with a second implementation of the rules that has none
// of the machine's optimizations.
type world struct {
	*bench
	t      *testing.T
	random *rand.Rand
	nodes  map[string]*v1.Node
	// pods holds the existing pods, with spec.nodeName as in the API; the machine has also
	// placed pods whose bindings are in flight.
	pods   map[string]*v1.Pod
	placed map[string]string
	made   int
	storage
}

func newWorld(t *testing.T, seed uint64) *world {
	return &world{
		bench: newBench(), t: t, random: rand.New(rand.NewPCG(seed, 1)),
		nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{}, placed: map[string]string{},
		storage: newStorage(),
	}
}

// where returns the node of a pod, or "" if it has none.
func (w *world) where(p *v1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	if d := w.reserving[p.Name]; d != nil {
		return d.node
	}
	return w.placed[p.Name]
}

// on returns the other pods on a node.
func (w *world) on(node string, but *v1.Pod) []*v1.Pod {
	var pods []*v1.Pod
	for _, p := range w.pods {
		if p != but && w.where(p) == node {
			pods = append(pods, p)
		}
	}
	return pods
}

func selects(s *metav1.LabelSelector, p *v1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(p.Labels))
}

// fits reports whether a pod may run on a node.
func (w *world) fits(p *v1.Pod, n *v1.Node) bool {
	cpu := p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	others := w.on(n.Name, p)
	for _, o := range others {
		cpu += o.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		if port := hostPortOf(p); port != 0 && port == hostPortOf(o) {
			return false
		}
	}
	free := p.Spec.Containers[0].Resources.Requests.Cpu().IsZero() || cpu <= n.Status.Allocatable.Cpu().MilliValue()
	room := int64(len(others)) < n.Status.Allocatable.Pods().Value()
	tolerant := len(p.Spec.Tolerations) > 0 || len(n.Spec.Taints) == 0
	return free && room && tolerant && !n.Spec.Unschedulable &&
		labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(n.Labels)) &&
		w.affinityAllows(p, n) && w.spreadAllows(p, n) && w.volumesAllow(p, n)
}

func hostPortOf(p *v1.Pod) int32 {
	if ports := p.Spec.Containers[0].Ports; len(ports) > 0 {
		return ports[0].HostPort
	}
	return 0
}

func apartOf(p *v1.Pod) *v1.PodAffinityTerm {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return &p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
}

func nearOf(p *v1.Pod) *v1.PodAffinityTerm {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAffinity == nil {
		return nil
	}
	return &p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
}

// together reports whether two nodes have a label with the same value.
func together(key string, a, b *v1.Node) bool {
	value, found := a.Labels[key]
	other, foundToo := b.Labels[key]
	return found && foundToo && value == other
}

func (w *world) affinityAllows(p *v1.Pod, n *v1.Node) bool {
	near := nearOf(p)
	somewhere, here := false, false
	for _, m := range w.nodes {
		for _, o := range w.on(m.Name, p) {
			if t := apartOf(p); t != nil && together(t.TopologyKey, n, m) && selects(t.LabelSelector, o) {
				return false
			}
			if t := apartOf(o); t != nil && together(t.TopologyKey, n, m) && selects(t.LabelSelector, p) {
				return false
			}
			if near != nil && selects(near.LabelSelector, o) && m.Labels[near.TopologyKey] != "" {
				somewhere = true
				here = here || together(near.TopologyKey, n, m)
			}
		}
	}
	if near == nil {
		return true
	}
	_, labelled := n.Labels[near.TopologyKey]
	return labelled && (here || !somewhere && selects(near.LabelSelector, p))
}

func (w *world) spreadAllows(p *v1.Pod, n *v1.Node) bool {
	for _, c := range p.Spec.TopologySpreadConstraints {
		count := map[string]int{}
		for _, m := range w.nodes {
			domain, found := m.Labels[c.TopologyKey]
			if !found || !labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(m.Labels)) {
				continue
			}
			count[domain] += 0
			for _, o := range w.on(m.Name, p) {
				if selects(c.LabelSelector, o) {
					count[domain]++
				}
			}
		}
		domain, found := n.Labels[c.TopologyKey]
		least := 1 << 30
		for _, k := range count {
			least = min(least, k)
		}
		own := 0
		if selects(c.LabelSelector, p) {
			own = 1
		}
		if !found || count[domain]+own-least > int(c.MaxSkew) {
			return false
		}
	}
	return true
}

func (w *world) describe(p *v1.Pod) string {
	text := fmt.Sprintf("rejected by %v\n", w.rejectedBy(p))
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		n := w.nodes[name]
		text += fmt.Sprintf("node %s %v %v\n", name, n.Labels, n.Spec)
		for _, o := range w.on(name, nil) {
			text += fmt.Sprintf("  %s %v %v %v\n", o.Name, o.Labels, o.Spec.Affinity, o.Spec.TopologySpreadConstraints)
		}
	}
	return text + w.describeStorage(p) + fmt.Sprintf("pod %s %v %v %v %v", p.Name, p.Labels, p.Spec.Affinity, p.Spec.TopologySpreadConstraints, p.Spec.NodeSelector)
}

func (w *world) rejectedBy(p *v1.Pod) []string {
	if item := w.queue.Get(p.UID); item != nil {
		return item.RejectedBy
	}
	return nil
}

func (w *world) chance(percent int) bool { return w.random.IntN(100) < percent }

func (w *world) pick(names ...string) string { return names[w.random.IntN(len(names))] }

func (w *world) anyNode() *v1.Node { return anyOf(w.random, w.nodes) }
func (w *world) anyPod() *v1.Pod   { return anyOf(w.random, w.pods) }

func anyOf[T any](random *rand.Rand, m map[string]*T) *T {
	if len(m) == 0 {
		return nil
	}
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return m[names[random.IntN(len(names))]]
}

func (w *world) randomNode(name string) *v1.Node {
	n := testNode(name, w.pick("1", "2", "4"))
	n.Status.Allocatable[v1.ResourcePods] = resource.MustParse(w.pick("2", "5", "9"))
	if w.chance(70) {
		n.Labels["zone"] = w.pick("z1", "z2")
	}
	if w.chance(20) {
		tainted(n)
	}
	n.Spec.Unschedulable = w.chance(10)
	return n
}

func (w *world) randomPod() *v1.Pod {
	w.made++
	p := testPod(fmt.Sprint("p", w.made), w.pick("", "300m", "1", "2"), priority(int32(w.random.IntN(3))), app(w.pick("a", "b")))
	p.Spec.PreemptionPolicy = ptr.To(v1.PreemptNever)
	like := &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.pick("a", "b")}}
	term := []v1.PodAffinityTerm{{TopologyKey: w.pick("zone", v1.LabelHostname), LabelSelector: like}}
	if w.chance(w.share) {
		w.addClaims(p)
	}
	switch w.random.IntN(10) {
	case 0:
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
	case 1:
		p.Spec.NodeSelector = map[string]string{"zone": w.pick("z1", "z2")}
	case 2:
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
	case 3:
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
	case 4:
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			TopologyKey: term[0].TopologyKey, MaxSkew: int32(1 + w.random.IntN(2)), WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: like,
		}}
	case 5:
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
		p.Spec.Tolerations[0].Key = "k"
	}
	return p
}

// step makes a random change.
func (w *world) step() {
	if w.chance(w.share) {
		w.stepStorage()
		return
	}
	switch w.random.IntN(10) {
	case 0:
		w.putNode(w.randomNode(fmt.Sprint("n", w.random.IntN(6))))
	case 1:
		if n := w.anyNode(); n != nil && w.chance(50) {
			delete(w.nodes, n.Name)
			w.removeNode(n.Name)
		}
	case 2, 3:
		if p := w.anyPod(); p != nil {
			w.drop(p)
		}
	case 4:
		if p := w.anyPod(); p != nil && w.where(p) != "" {
			relabelled := p.DeepCopy()
			relabelled.Labels = map[string]string{"app": w.pick("a", "b")}
			w.pods[p.Name] = relabelled
			w.set(relabelled)
		}
	case 5, 6:
		w.settleBinding()
	default:
		p := w.randomPod()
		w.pods[p.Name] = p
		w.set(p)
	}
}

func (w *world) putNode(n *v1.Node) {
	w.nodes[n.Name] = n
	w.setNode(n)
}

func (w *world) drop(p *v1.Pod) {
	delete(w.pods, p.Name)
	delete(w.placed, p.Name)
	delete(w.reserving, p.Name)
	w.removePod(p.UID)
}

// settleBinding lets the API accept or refuse the binding of a placed pod.
func (w *world) settleBinding() {
	for range w.placed {
		p := w.anyPod()
		node := w.placed[p.Name]
		if node == "" {
			continue
		}
		delete(w.placed, p.Name)
		if w.chance(20) {
			w.notBound(p.UID, errors.New("refused"))
			return
		}
		bound := p.DeepCopy()
		bound.Spec.NodeName = node
		w.pods[p.Name] = bound
		w.set(bound)
		return
	}
}

// settle runs the machine until it has nothing to decide, and checks every decision.
func (w *world) settle() {
	for d, found := w.next(); found; d, found = w.next() {
		if d.node == "" {
			delete(w.reserving, d.pod.Name)
			continue
		}
		p, n := w.pods[d.pod.Name], w.nodes[d.node]
		switch {
		case p == nil || n == nil:
			w.t.Fatalf("%s -> %s: one of them does not exist", d.pod.Name, d.node)
		case w.reserving[p.Name] != nil && d.reservation == nil:
			w.checkBound(p, n)
			delete(w.reserving, p.Name)
			w.placed[p.Name] = n.Name
			continue
		case w.where(p) != "":
			w.t.Fatalf("%s -> %s: it is already on %s", p.Name, n.Name, w.where(p))
		case !w.fits(p, n):
			w.t.Fatalf("%s -> %s: it does not fit there\n%s", p.Name, n.Name, w.describe(p))
		}
		if d.reservation != nil {
			w.reserving[p.Name] = &d
			continue
		}
		w.checkBound(p, n)
		w.placed[p.Name] = n.Name
	}
}

// check fails the test if a pending pod would fit on a node.
func (w *world) check() {
	for _, p := range w.pods {
		if w.where(p) != "" {
			continue
		}
		for _, n := range w.nodes {
			if w.fits(p, n) {
				w.t.Fatalf("%s is pending, although it fits on %s\n%s", p.Name, n.Name, w.describe(p))
			}
		}
	}
}

// TestRandomWalk checks that no pod is placed where it does not fit, and that no pod stays pending
// that fits on a node. A wrong Wakes would break the second, so the clock moves far enough for
// backoff, but not until maxParked has passed.
func TestRandomWalk(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 150 {
				w.step()
				w.settle()
				w.waitOutBackoff()
				w.check()
			}
		})
	}
}

// waitOutBackoff moves the clock until no pod is in backoff.
func (w *world) waitOutBackoff() {
	for {
		next, found := w.queue.Next()
		if !found || next.Sub(w.clock.Now()) > 10*time.Second {
			return
		}
		w.clock.SetTime(next)
		w.settle()
	}
}

// TestOrder: pods that all fit are placed by priority, then in the order of arrival.
func TestOrder(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(t, seed)
		w.putNode(testNode("n", "64"))
		var want []*v1.Pod
		for i := range 40 {
			p := testPod(fmt.Sprint("p", i), "100m", priority(int32(w.random.IntN(4))))
			want = append(want, p)
			w.set(p)
		}
		slices.SortStableFunc(want, func(a, b *v1.Pod) int { return int(*b.Spec.Priority - *a.Spec.Priority) })
		for i, p := range want {
			if d, _ := w.next(); d.pod.Name != p.Name || d.node != "n" {
				t.Fatalf("seed %d, decision %d: %s -> %q, want %s", seed, i, d.pod.Name, d.node, p.Name)
			}
		}
	}
}
