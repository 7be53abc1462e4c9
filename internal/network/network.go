// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/network/hostport"
	"github.com/kindred-project/kindred/internal/network/nft"
	"github.com/kindred-project/kindred/internal/network/policy"
	"github.com/kindred-project/kindred/internal/network/service"
)

// Options configure the network of one node.
type Options struct {
	// Node is the node's name.
	Node  string
	Rules *Rules
	// PodNetwork is the network of the node's pods; nil if Rules has no bridge.
	PodNetwork PodNetwork
	// WireGuardKey is the key of this machine, if packets for pods of others are encrypted; else nil.
	WireGuardKey *WireGuardKey
	// Guarded are sockets of the machine that are reached by a Service only.
	Guarded []netip.AddrPort
	// Pools are the ranges of addresses of load balancers that nodes announce; Simulated is the label of nodes that
	// cannot.
	Pools     []netip.Prefix
	Simulated string
	// Informers are of Services, EndpointSlices, Nodes, ServiceCIDRs, NetworkPolicies, Pods and Namespaces. New
	// registers with them; the caller starts them.
	Informers informers.SharedInformerFactory
	// ClusterPolicies is an informer of ClusterNetworkPolicies, as unstructured objects, which the caller starts; nil if
	// they are not applied.
	ClusterPolicies cache.SharedIndexInformer
	Events          record.EventRecorder
	Clock           clock.WithTicker
}

// PodNetwork is the network of a node's pods.
type PodNetwork interface {
	// EnsureBridge restores the bridge, and reports whether it had to.
	EnsureBridge() (restored bool, err error)
	// EnsureFirewall restores the rules by which the host's firewall accepts packets of pods, and reports whether it
	// had to.
	EnsureFirewall(ctx context.Context) (restored bool, err error)
	// KeepSources makes the host's firewall not translate the source addresses of packets from pods to the ranges, which
	// replace earlier ones.
	KeepSources(ctx context.Context, ranges []netip.Prefix) error
}

// Network routes the traffic of one node to Services, and restricts that of its pods by NetworkPolicies.
type Network struct {
	options  Options
	rules    *Rules
	table    *nft.Table
	policies *policy.Compiler
	gate     *policy.Gate
	// hostPorts are those of the pods on Bridge.
	hostPorts hostPorts
	// datagrams are those of the Services whose rules are to be written.
	datagrams []service.Datagrams
	health    healthChecks
	routes    routes
	rejects   rejects
	inbox     inbox
	slices    cache.Indexer
	synced    []cache.DoneChecker
	ready     chan struct{}
	node      service.Node
	// balancers are the Services of the type LoadBalancer that have an address.
	balancers map[string]*v1.Service
	ranges    []netip.Prefix
	// announced are the addresses that this node announces; nil if it is not known whether the kernel has them.
	announced *[]netip.Addr
	// unrouted are the ranges whose routes the kernel refused last.
	unrouted  map[netip.Prefix]error
	peers     peers
	podRoutes podRoutes
	watching  watched
	unmended  unmended
	sctp      withoutSCTP
}

// checkInterval is the time between two checks whether the kernel still has the rules and routes.
const checkInterval = 2 * time.Second

// byService is the index of EndpointSlices by their Service.
const byService = "kindred.dev/service"

// New returns the network of a node.
func New(o Options) (*Network, error) {
	r := o.Rules
	n := &Network{
		options: o, rules: r, table: r.table, ready: make(chan struct{}),
		inbox: newInbox(), balancers: map[string]*v1.Service{}, unmended: unmended{},
		sctp: withoutSCTP{lacks: sync.OnceValue(lacksSCTP), told: map[string]bool{}},
		gate: policy.NewGate(), hostPorts: newHostPorts(),
		policies:  policy.New(policy.Options{Node: o.Node, PodRanges: r.PodRanges}),
		podRoutes: newPodRoutes(r.Bridge),
		routes:    routes{link: servicesLink(r.Bridge), bridge: r.Bridge, pods: r.PodRanges},
	}
	n.health = healthChecks{failed: n.reportHealth, open: map[string]*healthCheck{}, refused: map[string]string{}}
	n.putBase()
	return n, n.register()
}

// putBase updates the rules that those of all Services and policies need.
func (n *Network) putBase() { n.table.Put("", n.rules.base(n.ranges, n.options.Guarded)) }

// Ready returns a channel that is closed when the rules of all Services have been written once, or could not be.
func (n *Network) Ready() <-chan struct{} { return n.ready }

// Run keeps the kernel's rules until ctx is done. They stay when it returns.
func (n *Network) Run(ctx context.Context) error {
	if !cache.WaitFor(ctx, "", n.synced...) {
		return nil
	}
	defer n.health.close()
	n.inbox.surroundings()
	check := n.options.Clock.NewTicker(checkInterval)
	defer check.Stop()
	retry := n.options.Clock.NewTimer(time.Hour)
	defer retry.Stop()
	for first := true; ; {
		checking := false
		select {
		case <-ctx.Done():
			return nil
		case <-check.C():
			checking = true
			n.mend(ctx)
			for key := range n.health.refused {
				n.inbox.service(key)
			}
		case <-retry.C():
		case <-n.inbox.wake:
		}
		changed := n.inbox.take()
		n.compile(ctx, changed)
		n.announce(checking)
		n.connectPods(ctx, changed.nodes)
		err := n.write(ctx)
		if ctx.Err() != nil {
			return nil
		}
		n.letPodsStart(err == nil)
		if err == nil {
			n.hostPorts.written()
		}
		if err != nil {
			klog.ErrorS(err, "Writing the rules of Services; they are tried again in a second")
			retry.Reset(time.Second)
		}
		if first {
			first = false
			close(n.ready)
		}
	}
}

// compile updates the table's content for what changed.
func (n *Network) compile(ctx context.Context, changed changes) {
	services := n.options.Informers.Core().V1().Services().Lister()
	if changed.surroundings && n.readSurroundings() {
		all, _ := services.List(labels.Everything()) // from the cache, which has no errors
		for _, svc := range all {
			changed.services[svc.Namespace+"/"+svc.Name] = true
		}
	}
	for key := range changed.services {
		namespace, name, _ := strings.Cut(key, "/")
		svc, err := services.Services(namespace).Get(name)
		if err != nil {
			n.table.Put(key, nft.Fragment{})
			delete(n.balancers, key)
			delete(n.sctp.told, key)
			n.health.set(ctx, key, nil, nil, n.node)
			continue
		}
		delete(n.balancers, key)
		if len(svc.Status.LoadBalancer.Ingress) > 0 {
			n.balancers[key] = svc
		}
		n.checkSCTP(key, svc, usesSCTP(svc))
		endpointSlices := n.slicesOf(key)
		n.table.Put(key, service.Rules(svc, endpointSlices, n.node))
		n.health.set(ctx, key, svc, endpointSlices, n.node)
		n.datagrams = append(n.datagrams, service.DatagramsOf(svc, endpointSlices, n.node)...)
	}
	for _, change := range changed.policies {
		change(n.policies)
	}
	for key := range changed.hostPorts {
		n.compileHostPorts(key)
	}
	n.putPolicies()
}

// AwaitPod returns when the policies and the host ports of a pod of this node are in force for an address. It returns at
// once if the cluster has no policies and the pod no host ports. Its error is the cause with which the context ended.
func (n *Network) AwaitPod(ctx context.Context, pod *v1.Pod, address netip.Addr) error {
	member := policy.Member{Pod: pod.UID, Address: address}
	if n.rules.Bridge != "" && hostport.Wanted(pod) {
		if err := n.hostPorts.gate.Wait(ctx, member); err != nil {
			return err
		}
	}
	return n.gate.Wait(ctx, member)
}

// letPodsStart ends the wait of pods whose policies are in force, if the last write succeeded, and of all pods if
// there are no policies.
func (n *Network) letPodsStart(written bool) {
	if !written && n.policies.HasPolicies() {
		return
	}
	n.inbox.look(func(pending *changes) {
		var known []policy.Member
		if written {
			known = n.policies.Known()
		}
		n.gate.Set(known, !n.policies.HasPolicies() && !pending.newPolicies)
	})
}

func (n *Network) putPolicies() {
	for source, fragment := range n.policies.Changes() {
		n.table.Put(source, fragment)
	}
}

func (n *Network) slicesOf(key string) []*discoveryv1.EndpointSlice {
	found, _ := n.slices.ByIndex(byService, key) // the index exists
	all := make([]*discoveryv1.EndpointSlice, 0, len(found))
	for _, o := range found {
		all = append(all, o.(*discoveryv1.EndpointSlice))
	}
	return all
}

// readSurroundings reads what the rules of all Services depend on, and reports whether their endpoints may have
// changed.
func (n *Network) readSurroundings() bool {
	n.ranges = allRanges(n.options.Informers.Networking().V1().ServiceCIDRs().Lister())
	n.putBase()
	if _, err := n.ensureRoutes(); err != nil {
		klog.ErrorS(err, "Routing the ranges of Services")
	}
	now := service.Node{Name: n.options.Node}
	if node, err := n.options.Informers.Core().V1().Nodes().Lister().Get(n.options.Node); err == nil {
		now.Zone = node.Labels[v1.LabelTopologyZone]
	}
	changed := now != n.node
	n.node = now
	return changed
}

// allRanges returns the ranges of all ServiceCIDRs, sorted.
func allRanges(lister networkinglisters.ServiceCIDRLister) []netip.Prefix {
	var ranges []netip.Prefix
	cidrs, _ := lister.List(labels.Everything()) // from the cache, which has no errors
	for _, c := range cidrs {
		ranges = append(ranges, rangesOf(c)...)
	}
	slices.SortFunc(ranges, netip.Prefix.Compare)
	return slices.Compact(ranges)
}

// rangesOf returns the ranges of a ServiceCIDR.
func rangesOf(cidr *networkingv1.ServiceCIDR) []netip.Prefix {
	var ranges []netip.Prefix
	for _, s := range cidr.Spec.CIDRs {
		if p, err := netip.ParsePrefix(s); err == nil {
			ranges = append(ranges, p.Masked())
		}
	}
	return ranges
}

// write writes what changed. A Service whose rules the kernel refuses gets an event. Pods whose policies it refuses
// are cut off: rather less is allowed than more.
func (n *Network) write(ctx context.Context) error {
	var refused []nft.Refused
	var err error
	n.watching.during(func() uint32 {
		before := n.table.Transactions()
		refused, err = n.table.Write(ctx)
		return n.table.Transactions() - before
	})
	for _, r := range refused {
		klog.ErrorS(r.Err, "The kernel refuses rules", "source", r.Source)
		n.reportPolicies(r, n.policies.Refused(r.Source))
		n.refusedHostPorts(r.Source, r.Err)
		n.report(r)
	}
	n.putPolicies()
	if len(refused) > 0 && err == nil {
		_, err = n.table.Write(ctx)
	}
	if err != nil {
		return err
	}
	ofPods, err := n.hostPorts.datagrams()
	if err := errors.Join(err, forgetStale(append(n.datagrams, ofPods...))); err != nil {
		klog.ErrorS(err, "Clients of UDP ports may be sent to endpoints that are gone, until they pause")
	}
	n.datagrams = nil
	return nil
}
