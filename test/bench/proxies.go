// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kindred-project/kindred/test/servers"
)

const (
	// proxyNode is the name of the node whose rules both proxies write.
	proxyNode = "proxy"
	// loads is the number of starts of each proxy whose load is measured.
	loads = 3
	// probed is the number of Services whose endpoints answer, of those that exist.
	probed = 20
	// changePause is the time between two changes. kube-proxy delays a change that follows another within a second.
	changePause = 1500 * time.Millisecond
	// probeLimit is the time after which a connection has failed: without rules, nothing answers.
	probeLimit = 20 * time.Millisecond
)

// The addresses of the node, where the endpoints of the probed Services are: before and after a change.
var (
	nodeAddresses = []string{"10.99.0.1", "10.99.0.2", "10.99.0.3", "10.99.0.4"}
	endpointSets  = [][]string{nodeAddresses[:2], nodeAddresses[2:]}
)

// timer measures something of a proxy whose process has been started at a time.
type timer func(ctx context.Context, p *proxies, began time.Time) ([]time.Duration, error)

// besideKubeProxy returns the measurement of a figure by its name: how many times longer kube-proxy takes, in nftables
// mode. Both proxies are processes of their own with the same API server, which are started in turns.
func besideKubeProxy(name string, starts int, times timer) func(context.Context, *bench) (float64, error) {
	measure := isolated(name, func(ctx context.Context, b *bench) (float64, error) { return compareProxies(ctx, b, starts, times) })
	return func(ctx context.Context, b *bench) (float64, error) {
		// The build may download modules, which the namespace cannot.
		if _, err := buildKubeProxy(ctx); err != nil {
			return 0, err
		}
		return measure(ctx, b)
	}
}

func buildKubeProxy(ctx context.Context) (string, error) {
	return servers.BuildKubeProxy(ctx, "test/servers")
}

func compareProxies(ctx context.Context, b *bench, starts int, times timer) (float64, error) {
	p, err := newProxies(ctx, b)
	if err != nil {
		return 0, err
	}
	defer p.cluster.stop()
	var ours, theirs []time.Duration
	for range starts {
		took, err := p.measure(ctx, p.kindred, times)
		if err != nil {
			return 0, err
		}
		ours = append(ours, took...)
		if took, err = p.measure(ctx, p.kubeProxy, times); err != nil {
			return 0, fmt.Errorf("kube-proxy: %w", err)
		}
		theirs = append(theirs, took...)
	}
	fmt.Fprintf(os.Stderr, "  median of %d: %v, kube-proxy %v\n", len(ours), median(ours), median(theirs))
	return median(theirs).Seconds() / median(ours).Seconds(), nil
}

// loadTime returns the time from the start of the process until all probed Services work.
func loadTime(ctx context.Context, p *proxies, began time.Time) ([]time.Duration, error) {
	err := p.await(ctx)
	return []time.Duration{time.Since(began)}, err
}

// changeTimes returns the times from the change of a Service's endpoints until new connections go to the new ones.
func changeTimes(ctx context.Context, p *proxies, _ time.Time) ([]time.Duration, error) {
	if err := p.await(ctx); err != nil {
		return nil, err
	}
	var times []time.Duration
	for i := range p.services {
		pause(ctx, changePause)
		took, err := p.services[i].change(ctx, p.client)
		if err != nil {
			return nil, err
		}
		times = append(times, took)
	}
	return times, nil
}

// proxies has what the measurements of both proxies share.
type proxies struct {
	cluster *cluster
	client  *kubernetes.Clientset
	// services are the probed ones.
	services []probedService
	// kindred and kubeProxy are commands.
	kindred, kubeProxy []string
}

// probedService has an index of endpointSets, where its connections go.
type probedService struct {
	name, clusterIP string
	set             int
}

// newProxies starts a cluster without a node, with a Node object for this network namespace and many Services.
func newProxies(ctx context.Context, b *bench) (*proxies, error) {
	kubeProxy, err := buildKubeProxy(ctx)
	if err != nil {
		return nil, err
	}
	if err := addNodeAddresses(); err != nil {
		return nil, err
	}
	if err := answer(ctx); err != nil {
		return nil, err
	}
	c, client, err := b.startWithClient(ctx, simulatedNode...)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(c.dataDir, "kubeconfig")
	p := &proxies{cluster: c, client: client,
		kindred: []string{os.Args[0], "-proxy", kubeconfig},
		kubeProxy: []string{kubeProxy, "--kubeconfig=" + kubeconfig, "--proxy-mode=nftables", "--hostname-override=" + proxyNode,
			// What is not this namespace's, but the machine's.
			"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"},
	}
	if err := p.create(ctx); err != nil {
		c.stop()
		return nil, err
	}
	return p, nil
}

// create creates the Node and the Services.
func (p *proxies) create(ctx context.Context) error {
	_, err := p.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: proxyNode},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddresses[0]}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	const every = namedServices / probed
	err = createServices(ctx, p.client, func(name string, i int) *discoveryv1.EndpointSlice {
		slice := sliceOf(name, i)
		if i%every == 0 {
			setEndpoints(slice, endpointSets[0])
		}
		return slice
	})
	if err != nil {
		return err
	}
	for i := 0; i < namedServices; i += every {
		service, err := p.client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, serviceName(i), metav1.GetOptions{})
		if err != nil {
			return err
		}
		p.services = append(p.services, probedService{name: service.Name, clusterIP: service.Spec.ClusterIP})
	}
	return p.cluster.settle(ctx)
}

func setEndpoints(slice *discoveryv1.EndpointSlice, addresses []string) {
	slice.Endpoints = nil
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
}

// measure starts a proxy, measures, and removes what it wrote.
func (p *proxies) measure(ctx context.Context, command []string, times timer) ([]time.Duration, error) {
	log, err := os.Create(filepath.Join(p.cluster.bench.scratch, "proxy.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	took, err := times(ctx, p, began)
	cancel()
	_ = cmd.Wait()
	if err != nil {
		content, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%w; the process printed:\n%s", err, content)
	}
	if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("nft flush ruleset: %w: %s", err, out)
	}
	return took, nil
}

// await waits until connections to all probed Services go to their endpoints.
func (p *proxies) await(ctx context.Context) error {
	for i := range p.services {
		if err := p.services[i].await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// change changes the endpoints, and returns the time from the end of this request until connections go to them.
func (s *probedService) change(ctx context.Context, client *kubernetes.Clientset) (time.Duration, error) {
	endpointSlices := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	slice, err := endpointSlices.Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	s.set = 1 - s.set
	setEndpoints(slice, endpointSets[s.set])
	if _, err := endpointSlices.Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		return 0, err
	}
	began := time.Now()
	err = s.await(ctx)
	return time.Since(began), err
}

// await waits until a connection goes to the endpoints.
func (s *probedService) await(ctx context.Context) error {
	for ctx.Err() == nil {
		if slices.Contains(endpointSets[s.set], probe(ctx, s.clusterIP)) {
			return nil
		}
		pause(ctx, dialPause)
	}
	return fmt.Errorf("%s does not lead to %v: %w", s.name, endpointSets[s.set], ctx.Err())
}

// probe returns the address of the endpoint that a connection to a Service goes to, or "" if there is none.
func probe(ctx context.Context, clusterIP string) string {
	dialer := net.Dialer{Timeout: probeLimit}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(clusterIP, "80"))
	if err != nil {
		return ""
	}
	defer conn.Close()
	address, err := io.ReadAll(conn)
	if err != nil {
		return ""
	}
	return string(address)
}

// addNodeAddresses creates an interface with the node's addresses and the default route, by which packets to Services
// are sent before they are translated.
func addNodeAddresses() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "node"
	link := &netlink.Bridge{LinkAttrs: attrs} // not a Dummy: kernels may lack those
	if err := netlink.LinkAdd(link); err != nil {
		return err
	}
	for _, address := range nodeAddresses {
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(address))}); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	everywhere := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: everywhere})
}

// answer serves the endpoints until ctx is done. A connection gets the address that it came to.
func answer(ctx context.Context) error {
	listener, err := net.Listen("tcp4", ":8080")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			to := netip.MustParseAddrPort(conn.LocalAddr().String()).Addr()
			_, _ = io.WriteString(conn, to.String())
			_ = conn.Close()
		}
	}()
	return nil
}
