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

// The addresses of nodes and pods. 198.18.0.0/15 is reserved for benchmarks (RFC 2544, RFC 6890), so that
// no reachable network uses it. Nodes have the lower quarter.
var (
	nodeAddresses = netip.MustParsePrefix("198.18.0.0/17")
	podAddresses  = []netip.Prefix{netip.MustParsePrefix("198.18.128.0/17"), netip.MustParsePrefix("198.19.0.0/16")}
)

// ledger accounts for what each pod has: an address, unique among all nodes, and its share of a node.
type ledger struct {
	mu    sync.Mutex
	pods  map[types.UID]*entry
	taken map[netip.Addr]types.UID
	next  netip.Addr
	loads map[string]*admission.Load
}

// entry is what one pod has.
type entry struct {
	address netip.Addr
	// node and share are set while the pod counts against the node's resources.
	node  string
	share admission.Share
	// written is the resource version of the last status that was written. settled is set if that
	// status does not change before something happens.
	written string
	settled bool
}

func newLedger() *ledger {
	return &ledger{
		pods: map[types.UID]*entry{}, taken: map[netip.Addr]types.UID{},
		loads: map[string]*admission.Load{}, next: podAddresses[0].Addr(),
	}
}

func (l *ledger) entry(uid types.UID) *entry {
	h := l.pods[uid]
	if h == nil {
		h = &entry{}
		l.pods[uid] = h
	}
	return h
}

// observe records what a pod has according to the API.
func (l *ledger) observe(p *v1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.entry(p.UID)
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

// release frees everything that a pod has.
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

// address returns the pod's address, which is allocated on first use.
func (l *ledger) address(uid types.UID) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.entry(uid)
	if h.address.IsValid() {
		return h.address.String(), nil
	}
	for range addressCount() {
		l.next = nextAddress(l.next)
		if _, taken := l.taken[l.next]; !taken {
			l.taken[l.next] = uid
			h.address = l.next
			return h.address.String(), nil
		}
	}
	return "", fmt.Errorf("no IP address left for simulated pods: %d are in use", len(l.taken))
}

// nextAddress returns the pod address after a. It wraps around.
func nextAddress(a netip.Addr) netip.Addr {
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

// reserve counts a new pod against its node unless check, which gets the load of the node's other pods,
// refuses it.
func (l *ledger) reserve(p *v1.Pod, check func(*admission.Load) *pod.Refusal) *pod.Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.entry(p.UID)
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

func (l *ledger) count(h *entry, p *v1.Pod) {
	h.node, h.share = p.Spec.NodeName, admission.ShareOf(p)
	l.load(h.node).Add(h.share)
}

func (l *ledger) uncount(h *entry) {
	if h.node == "" {
		return
	}
	l.load(h.node).Remove(h.share)
	h.node, h.share = "", admission.Share{}
}

// wrote records a status write.
func (l *ledger) wrote(p *v1.Pod, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.pods[p.UID]; h != nil {
		h.written, h.settled = p.ResourceVersion, settled
	}
}

// upToDate reports whether a version of a pod from the informer needs no walk: it is older than the last
// status write, so that the informer will deliver a newer one, or it is that write and the pod is settled.
func (l *ledger) upToDate(p *v1.Pod) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.pods[p.UID]
	if h == nil || h.written == "" {
		return false
	}
	// Resource versions are comparable (KEP-5504). If they are not, walk the pod.
	order, err := resourceversion.CompareResourceVersion(p.ResourceVersion, h.written)
	return err == nil && (order < 0 || order == 0 && h.settled)
}
