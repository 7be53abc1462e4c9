// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/controllers/localpath"
	"github.com/kindred-project/kindred/internal/node"
	"github.com/kindred-project/kindred/internal/node/serve"
	"github.com/kindred-project/kindred/internal/node/simulated"
)

// machine has the pod network and the container runtime with which this machine serves as a node.
// They start in the background, while the API server starts.
type machine struct {
	names   containerd.Names
	options containerd.Options
	// endpoint is the runtime's CRI endpoint.
	endpoint string

	// networkDone is closed when bridge or networkErr is set. An external runtime has its own pod
	// network, and sets neither.
	networkDone chan struct{}
	bridge      containerd.Network
	networkErr  error
	// runtimeDone is closed when endpoint and version, or runtimeErr, are set.
	runtimeDone chan struct{}
	version     string
	runtimeErr  error
	// supervise keeps the private containerd running.
	supervise func(context.Context)
}

// decideNode falls back to a simulated node if this machine cannot be a node, and notifies the
// user of the reason.
func (config *Config) decideNode() {
	if !config.Node || config.RuntimeEndpoint != "" {
		return
	}
	missing := containerd.Missing()
	if len(missing) == 0 {
		return
	}
	config.Node = false
	config.SimulatedNodes = max(config.SimulatedNodes, 1)
	if config.Notice != nil {
		config.Notice(fmt.Sprintf("no real node, a simulated one instead: %s; %s",
			"missing "+strings.Join(missing, ", "), containerd.HowToGet(missing)))
	}
}

// volumeNodes returns the nodes on which volumes of the default StorageClass are provisioned.
func (config *Config) volumeNodes() localpath.Nodes {
	nodes := localpath.Nodes{Simulated: simulated.Key}
	if config.Node {
		nodes.Real, nodes.Root = config.NodeName, config.Dir.Volumes()
	}
	return nodes
}

// startMachine starts the pod network and the container runtime in the background. It returns nil if
// this machine is not to be a node.
func startMachine(ctx context.Context, config Config) *machine {
	if !config.Node {
		return nil
	}
	m := &machine{endpoint: config.RuntimeEndpoint, networkDone: make(chan struct{}), runtimeDone: make(chan struct{})}
	m.names, m.networkErr = containerd.NamesFor(config.Dir.ID())
	if m.networkErr != nil || m.endpoint != "" {
		// The user's runtime has its own pod network.
		close(m.networkDone)
		close(m.runtimeDone)
		return m
	}
	m.options = RuntimeOptions(config.Dir, m.names)
	m.options.PodCIDRs, m.options.IPv6 = config.PodCIDRs, hasIPv6(config.PodCIDRs) || hasIPv6(config.ServiceCIDRs)
	m.options.Clock = config.Clock
	go func() {
		defer close(m.runtimeDone)
		m.bridge, m.networkErr = containerd.EnsureNetwork(ctx, m.options.NetworkOptions())
		close(m.networkDone)
		if m.networkErr != nil {
			return
		}
		runtime, err := containerd.Start(ctx, m.options)
		if err != nil {
			m.runtimeErr = err
			return
		}
		m.endpoint, m.version, m.supervise = runtime.Endpoint, runtime.Version, runtime.Supervise
	}()
	return m
}

// bridgeAddress returns the address at which pods reach this machine; nil if the pod network is
// not Kindred's.
func (m *machine) bridgeAddress(ctx context.Context) (net.IP, error) {
	if m == nil {
		return nil, nil
	}
	if err := await(ctx, m.networkDone); err != nil {
		return nil, err
	}
	if m.networkErr != nil {
		return nil, m.networkErr
	}
	return m.bridge.Gateway, nil
}

// startNodes starts the simulated nodes and the real one, and waits until all are ready.
func (c *Cluster) startNodes(ctx context.Context, steps *steps) error {
	if c.config.SimulatedNodes > 0 {
		registered, err := c.startSimulated()
		if err != nil {
			return err
		}
		if err := await(ctx, registered); err != nil {
			return err
		}
		steps.done(fmt.Sprintf("%d simulated nodes", c.config.SimulatedNodes))
	}
	if c.machine != nil {
		if err := c.startAgent(ctx, steps); err != nil {
			return err
		}
	}
	c.checks.pass("node")
	return nil
}

// startSimulated starts the simulated nodes. The channel is closed once all are registered and Ready.
func (c *Cluster) startSimulated() (<-chan struct{}, error) {
	client, err := kubernetes.NewForConfig(configFor(c.server, simulatorUser))
	if err != nil {
		return nil, err
	}
	nodes, err := simulated.New(simulated.Options{
		Client: client, Informers: c.server.Informers(),
		Count: c.config.SimulatedNodes, Clock: c.config.Clock, Version: kubernetesVersion(),
		// With a real node, pods must not be scheduled to a simulated one by accident.
		Taint: c.config.Node,
	})
	if err != nil {
		return nil, err
	}
	c.server.StartInformers()
	c.simulated.Store(nodes)
	c.parts.start("simulated nodes", c.fail, nodes.Run)
	return nodes.Registered(), nil
}

// simulatedStats returns the handler of a simulated node's metrics; nil if the node is not simulated.
func (c *Cluster) simulatedStats(node string) http.Handler {
	if nodes := c.simulated.Load(); nodes != nil {
		return nodes.Stats(node)
	}
	return nil
}

// startAgent starts the real node's agent on the runtime.
func (c *Cluster) startAgent(ctx context.Context, steps *steps) error {
	m := c.machine
	if err := await(ctx, m.runtimeDone); err != nil {
		return err
	}
	if m.runtimeErr != nil {
		return m.runtimeErr
	}
	steps.done("container runtime " + m.version)
	client, err := kubernetes.NewForConfig(configFor(c.server, nodeUser(c.config.NodeName)))
	if err != nil {
		return err
	}
	address := m.address()
	listener, err := listenOn(ctx, address, 0)
	if err != nil {
		return err
	}
	root, err := c.nodeRoot()
	if err != nil {
		return err
	}
	services, err := c.startNetwork(ctx, m)
	if err != nil {
		return err
	}
	api, err := c.apiForPods(services)
	if err != nil {
		return err
	}
	clusterDNS, err := c.startDNS(ctx, services != nil)
	if err != nil {
		return err
	}
	var awaitPolicies func(context.Context, types.UID, netip.Addr) error
	if services != nil {
		awaitPolicies = services.AwaitPolicies
	}
	agent, err := node.New(node.Options{
		Name:          c.config.NodeName,
		Client:        client,
		Endpoint:      m.endpoint,
		RootDir:       root,
		LoopFiles:     c.config.Dir.Volumes(),
		Owner:         m.names.ID,
		CgroupParent:  m.names.PodCgroup,
		IPs:           m.addresses(),
		ExternalIPs:   m.externalIPs,
		ServePort:     int32(listener.Addr().(*net.TCPAddr).Port),
		API:           api,
		ClusterDNS:    clusterDNS,
		ResolvConf:    resolvConf(),
		PodCIDRs:      m.bridge.Ranges(),
		Version:       kubernetesVersion(),
		AwaitPolicies: awaitPolicies,
		Clock:         c.config.Clock,
	})
	if err != nil {
		return err
	}
	if err := c.serveAgent(agent, client, listener, address); err != nil {
		return err
	}
	if m.supervise != nil {
		c.parts.start("container runtime", c.fail, func(ctx context.Context) error {
			m.supervise(ctx)
			return nil
		})
	}
	c.parts.start("node", c.fail, agent.Run)
	if err := c.awaitNode(ctx, client, agent.Ready()); err != nil {
		return err
	}
	if services != nil {
		if err := await(ctx, services.Ready()); err != nil {
			return err
		}
	}
	steps.done("node " + c.config.NodeName)
	return nil
}

// nodeRoot returns the root directory of the node's agent.
func (c *Cluster) nodeRoot() (string, error) {
	if c.config.KubeletDir == "" {
		return c.config.Dir.Node(), nil
	}
	return c.config.KubeletDir, c.config.Dir.LinkNode(c.config.KubeletDir)
}

// awaitNode waits until the Node object is ready. After a while it notifies the user of the
// reason: a runtime without network, for example, does not recover by itself.
func (c *Cluster) awaitNode(ctx context.Context, client kubernetes.Interface, ready <-chan struct{}) error {
	const patience = 10 * time.Second
	ticker := c.config.Clock.NewTicker(patience)
	defer ticker.Stop()
	for {
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
			if c.config.Notice != nil {
				c.config.Notice(whyNotReady(ctx, client, c.config.NodeName))
			}
		}
	}
}

// whyNotReady returns a message about what a node waits for.
func whyNotReady(ctx context.Context, client kubernetes.Interface, name string) string {
	waiting := fmt.Sprintf("waiting for node %s: ", name)
	n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return waiting + err.Error()
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == v1.NodeReady {
			return waiting + condition.Message
		}
	}
	return waiting + "it has not reported yet"
}

// kubernetesVersion returns the Kubernetes version that nodes report, which is stamped into the
// binary.
func kubernetesVersion() string { return version.Get().GitVersion }

// address returns the node's address: the gateway of the pod network, or the host's address if the
// runtime has its own network.
func (m *machine) address() net.IP {
	if m.bridge.Gateway != nil {
		return m.bridge.Gateway
	}
	return hostIP()
}

// addresses returns the node's addresses, one for each IP family of its pods.
func (m *machine) addresses() []string {
	if m.bridge.Gateway != nil {
		return m.bridge.Gateways()
	}
	return []string{hostIP().String()}
}

func hasIPv6(ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// serveAgent serves the agent's port for the API server, and for clients that the API authorizes.
func (c *Cluster) serveAgent(agent *node.Agent, client kubernetes.Interface, listener net.Listener, address net.IP) error {
	names := pki.Names{DNS: []string{c.config.NodeName}, IPs: []net.IP{address}}
	serving, err := c.keys.Keep(func() (*pki.Pair, error) { return c.keys.NodeServing(c.config.NodeName, names) }, nil)
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	clients.AddCert(c.keys.Cluster.Certificate)
	server := serve.New(serve.Options{
		Node: c.config.NodeName, Lookup: agent.Lookup(), Runtime: agent.Runtime(), Stats: agent.Stats, Clock: c.config.Clock,
		ClientCAs: clients, Users: []string{kubeletClientUser}, Reviews: client,
	})
	config := serve.TLSConfig(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return serving.TLS(), nil })
	c.parts.start("node server", c.fail, func(ctx context.Context) error {
		return server.Serve(ctx, listener, config)
	})
	return nil
}
