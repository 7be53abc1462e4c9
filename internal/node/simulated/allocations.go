// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kindred-project/kindred/internal/node/admission"
	"github.com/kindred-project/kindred/internal/node/pod"
)

// The addresses of nodes and pods. 198.18.0.0/15 is reserved for benchmarks (RFC 2544, RFC 6890), and 240.0.0.0/4 for future use
// (RFC 1112), so that no reachable network uses them. Nodes have the lowest quarter of the first, and pods the rest: when more than 98,000 run, others
// have addresses of the second.
var (
	nodeAddresses = netip.MustParsePrefix("198.18.0.0/17")
	podAddresses  = []netip.Prefix{netip.MustParsePrefix("198.18.128.0/17"), netip.MustParsePrefix("198.19.0.0/16"), netip.MustParsePrefix("240.0.0.0/8")}
)

// allocations holds what each pod is allocated: an address, unique among all nodes, and a share of its
// node's resources.
type allocations struct {
	mu   sync.Mutex
	pods map[types.UID]*allocation
	// ranges are those of the addresses, of which the first ones are not used; last is the last one that was given.
	ranges []netip.Prefix
	taken  map[netip.Addr]types.UID
	last   netip.Addr
	loads  map[string]*admission.Load
}

// allocation is what one pod is allocated.
type allocation struct {
	address netip.Addr
	// node and share are set while the pod counts against the node's resources.
	node  string
	share admission.Share
	// written is the resource version of the last status that was written. settled is set if that
	// status does not change before something happens.
	written string
	settled bool
}

func newAllocations(ranges ...netip.Prefix) *allocations {
	return &allocations{
		pods: map[types.UID]*allocation{}, ranges: ranges, taken: map[netip.Addr]types.UID{}, last: ranges[0].Addr(),
		loads: map[string]*admission.Load{},
	}
}

func (l *allocations) of(uid types.UID) *allocation {
	a := l.pods[uid]
	if a == nil {
		a = &allocation{}
		l.pods[uid] = a
	}
	return a
}

// observe records what a pod has according to the API.
func (l *allocations) observe(p *v1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(p.UID)
	if ip, err := netip.ParseAddr(p.Status.PodIP); err == nil && usesAddress(p) && !a.address.IsValid() {
		if _, taken := l.taken[ip]; !taken {
			l.taken[ip] = p.UID
			a.address = ip
		}
	}
	switch {
	case pod.IsOver(p.Status.Phase):
		l.uncount(a)
	case p.Status.StartTime != nil && a.node == "":
		l.count(a, p)
	}
}

// release frees everything that a pod has.
func (l *allocations) release(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.pods[uid]
	if a == nil {
		return
	}
	l.uncount(a)
	delete(l.taken, a.address)
	delete(l.pods, uid)
}

// address returns the pod's address, which is allocated on first use.
func (l *allocations) address(uid types.UID) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(uid)
	if a.address.IsValid() {
		return a.address.String(), nil
	}
	if len(l.taken) >= l.size() {
		return "", fmt.Errorf("no IP address left for simulated pods: %d are in use", len(l.taken))
	}
	for {
		l.last = l.after(l.last)
		if _, taken := l.taken[l.last]; !taken {
			l.taken[l.last] = uid
			a.address = l.last
			return a.address.String(), nil
		}
	}
}

// after returns the address after a. It wraps around.
func (l *allocations) after(a netip.Addr) netip.Addr {
	in := slices.IndexFunc(l.ranges, func(p netip.Prefix) bool { return p.Contains(a) })
	if next := a.Next(); l.ranges[in].Contains(next) {
		return next
	}
	return l.ranges[(in+1)%len(l.ranges)].Addr().Next()
}

// size returns how many addresses there are.
func (l *allocations) size() (n int) {
	for _, p := range l.ranges {
		n += 1<<(32-p.Bits()) - 1
	}
	return n
}

// reserve counts a new pod against its node unless check, which gets the load of the node's other pods,
// refuses it.
func (l *allocations) reserve(p *v1.Pod, check func(*admission.Load) *pod.Refusal) *pod.Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(p.UID)
	if a.node != "" {
		return nil
	}
	if refusal := check(l.load(p.Spec.NodeName)); refusal != nil {
		return refusal
	}
	l.count(a, p)
	return nil
}

func (l *allocations) load(node string) *admission.Load {
	load := l.loads[node]
	if load == nil {
		load = &admission.Load{}
		l.loads[node] = load
	}
	return load
}

func (l *allocations) count(a *allocation, p *v1.Pod) {
	a.node, a.share = p.Spec.NodeName, admission.ShareOf(p)
	l.load(a.node).Add(a.share)
}

func (l *allocations) uncount(a *allocation) {
	if a.node == "" {
		return
	}
	l.load(a.node).Remove(a.share)
	a.node, a.share = "", admission.Share{}
}

// wrote records a status write.
func (l *allocations) wrote(p *v1.Pod, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.pods[p.UID]; a != nil {
		a.written, a.settled = p.ResourceVersion, settled
	}
}

// upToDate reports whether a version of a pod from the informer need not be simulated: it is older than the last
// status write, so that the informer will deliver a newer one, or it is that write and the pod is settled.
func (l *allocations) upToDate(p *v1.Pod) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.pods[p.UID]
	if a == nil || a.written == "" {
		return false
	}
	// Resource versions are comparable (KEP-5504). If they are not, simulate the pod.
	order, err := resourceversion.CompareResourceVersion(p.ResourceVersion, a.written)
	return err == nil && (order < 0 || order == 0 && a.settled)
}
