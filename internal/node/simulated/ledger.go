// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"fmt"
	"net/netip"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kindred-project/kindred/internal/node/admission"
	"github.com/kindred-project/kindred/internal/node/pod"
)

// addresses are what pods and nodes get: 198.18.0.0/15 is set aside for benchmarks
// (RFC 2544, RFC 6890), so that no network a machine can reach uses it. The lower quarter
// is the nodes'.
var (
	nodeAddresses = netip.MustParsePrefix("198.18.0.0/17")
	podAddresses  = []netip.Prefix{netip.MustParsePrefix("198.18.128.0/17"), netip.MustParsePrefix("198.19.0.0/16")}
)

// ledger knows what pods hold: addresses, which are unique among all nodes, and
// their share of a node.
type ledger struct {
	mu    sync.Mutex
	pods  map[types.UID]*holding
	taken map[netip.Addr]types.UID
	next  netip.Addr
	loads map[string]*admission.Load
}

// holding is what one pod has.
type holding struct {
	address netip.Addr
	// node and share are set while the pod counts against a node.
	node  string
	share admission.Share
	// written is the resource version of our last word about the pod; settled says
	// that there is nothing to add to it.
	written string
	settled bool
}

func newLedger() *ledger {
	return &ledger{
		pods: map[types.UID]*holding{}, taken: map[netip.Addr]types.UID{},
		loads: map[string]*admission.Load{}, next: podAddresses[0].Addr(),
	}
}

func (l *ledger) holding(uid types.UID) *holding {
	h := l.pods[uid]
	if h == nil {
		h = &holding{}
		l.pods[uid] = h
	}
	return h
}

// observe enters what the API shows that a pod has.
func (l *ledger) observe(p *v1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.holding(p.UID)
	if ip, err := netip.ParseAddr(p.Status.PodIP); err == nil && usesAddress(p) && !h.address.IsValid() {
		if _, taken := l.taken[ip]; !taken {
			l.taken[ip] = p.UID
			h.address = ip
		}
	}
	switch {
	case pod.IsOver(p.Status.Phase):
		l.uncount(h)
	case p.Status.StartTime != nil && h.node == "":
		l.count(h, p)
	}
}

// release gives back all that a pod had.
func (l *ledger) release(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.pods[uid]
	if h == nil {
		return
	}
	l.uncount(h)
	delete(l.taken, h.address)
	delete(l.pods, uid)
}

// address is the pod's, chosen when it's asked for first.
func (l *ledger) address(uid types.UID) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.holding(uid)
	if h.address.IsValid() {
		return h.address.String(), nil
	}
	for range addressCount() {
		l.next = following(l.next)
		if _, taken := l.taken[l.next]; !taken {
			l.taken[l.next] = uid
			h.address = l.next
			return h.address.String(), nil
		}
	}
	return "", fmt.Errorf("no IP address is left for simulated pods: %d have one", len(l.taken))
}

// following is the next pod address, from the last to the first.
func following(a netip.Addr) netip.Addr {
	a = a.Next()
	for i, p := range podAddresses {
		if p.Contains(a) {
			return a
		}
		if i+1 < len(podAddresses) && podAddresses[i+1].Contains(a) {
			return a
		}
	}
	return podAddresses[0].Addr().Next()
}

func addressCount() int {
	n := 0
	for _, p := range podAddresses {
		n += 1 << (32 - p.Bits())
	}
	return n
}

// reserve counts a new pod against its node unless check, which gets what the node's
// other pods hold, refuses it.
func (l *ledger) reserve(p *v1.Pod, check func(*admission.Load) *pod.Refusal) *pod.Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.holding(p.UID)
	if h.node != "" {
		return nil
	}
	if refusal := check(l.load(p.Spec.NodeName)); refusal != nil {
		return refusal
	}
	l.count(h, p)
	return nil
}

func (l *ledger) load(node string) *admission.Load {
	load := l.loads[node]
	if load == nil {
		load = &admission.Load{}
		l.loads[node] = load
	}
	return load
}

func (l *ledger) count(h *holding, p *v1.Pod) {
	h.node, h.share = p.Spec.NodeName, admission.ShareOf(p)
	l.load(h.node).Add(h.share)
}

func (l *ledger) uncount(h *holding) {
	if h.node == "" {
		return
	}
	l.load(h.node).Remove(h.share)
	h.node, h.share = "", admission.Share{}
}

// wrote notes our last word about a pod, and whether there's nothing to add to it.
func (l *ledger) wrote(p *v1.Pod, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.pods[p.UID]; h != nil {
		h.written, h.settled = p.ResourceVersion, settled
	}
}

// upToDate says whether a sighting of a pod asks for nothing: it is older than our last
// word, so that a newer one is on its way, or that word was the last.
func (l *ledger) upToDate(p *v1.Pod) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.pods[p.UID]
	if h == nil || h.written == "" {
		return false
	}
	// Versions of one resource compare as numbers (KEP-5504); those that don't are news.
	order, err := resourceversion.CompareResourceVersion(p.ResourceVersion, h.written)
	return err == nil && (order < 0 || order == 0 && h.settled)
}
