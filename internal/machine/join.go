// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/localvolumes"
	"github.com/kindred-project/kindred/internal/manifest"
	"github.com/kindred-project/kindred/internal/network"
	"github.com/kindred-project/kindred/internal/node"
	"github.com/kindred-project/kindred/internal/node/metrics"
	"github.com/kindred-project/kindred/internal/node/rootdir"
	"github.com/kindred-project/kindred/internal/node/serve"
	"github.com/kindred-project/kindred/internal/part"
)

// Join starts the node's agent and its network in the group, and returns when the Node is ready and the rules of all
// Services are in force.
func (m *Machine) Join(ctx context.Context, api API, parts *part.Group) error {
	m.api, m.parts = api, parts
	if err := m.awaitRuntime(ctx); err != nil {
		return err
	}
	if err := m.loadWireGuardKey(); err != nil {
		return err
	}
	sockets, dnsErr := m.openDNS(ctx)
	services, err := m.startNetwork(ctx, sockets.toGuard())
	if err != nil {
		return err
	}
	clusterDNS, err := m.startDNS(ctx, sockets, services != nil)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// Other parts do not need DNS.
	if err := errors.Join(dnsErr, err); err != nil {
		m.notice(fmt.Sprintf("no cluster DNS: %v", err))
		clusterDNS = nil
	}
	m.superviseRuntime()
	if err := m.startAgent(ctx, services, clusterDNS); err != nil {
		return err
	}
	if services != nil {
		if err := part.Await(ctx, services.Ready()); err != nil {
			return err
		}
	}
	m.options.Step("node " + m.options.Name)
	return nil
}

// awaitRuntime waits for the pod network and the container runtime.
func (m *Machine) awaitRuntime(ctx context.Context) error {
	if err := part.Await(ctx, m.runtimeDone); err != nil {
		return err
	}
	if m.networkErr != nil {
		return m.networkErr
	}
	if m.runtimeErr != nil {
		return m.runtimeErr
	}
	m.options.Step("container runtime " + m.version)
	return nil
}

// superviseRuntime keeps the private containerd running.
func (m *Machine) superviseRuntime() {
	if m.supervise == nil {
		return
	}
	m.parts.Start("container runtime", func(ctx context.Context) error {
		m.supervise(ctx)
		return nil
	})
}

// startAgent starts the agent and the server for the API server, and waits until the Node is ready.
func (m *Machine) startAgent(ctx context.Context, services *network.Network, clusterDNS []string) error {
	requests, config := metrics.NewRequests(m.options.Clock), m.api.ConfigFor(agentUser(m.options.Name))
	config.Wrap(requests.Wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	serving, err := m.servingCertificate()
	if err != nil {
		return err
	}
	ports, err := m.openPorts(ctx, client)
	if err != nil {
		return err
	}
	agent, err := m.newAgent(client, requests, services, clusterDNS, ports.number(), expiry(serving))
	if err == nil {
		err = m.serveAgent(agent, client, ports, serving)
	}
	if err != nil {
		ports.close()
		return err
	}
	m.parts.Start("node", agent.Run)
	return m.awaitNode(ctx, client, agent.Ready())
}

// servingCertificate returns the certificate of the agent's port.
func (m *Machine) servingCertificate() (func() *tls.Certificate, error) {
	names := pki.Names{DNS: []string{m.options.Name}}
	for _, address := range m.addresses() {
		names.IPs = append(names.IPs, net.ParseIP(address))
	}
	return m.api.Serving(names)
}

// Issued returns a function for API.Serving: the keys issue certificates of a node and renew them.
func Issued(keys *pki.PKI, node string) func(pki.Names) (func() *tls.Certificate, error) {
	return func(names pki.Names) (func() *tls.Certificate, error) {
		kept, err := keys.Keep(func() (*pki.Pair, error) { return keys.NodeServing(node, names) }, nil)
		if err != nil {
			return nil, err
		}
		return kept.TLS, nil
	}
}

func (m *Machine) newAgent(client kubernetes.Interface, requests *metrics.Requests, services *network.Network, clusterDNS []string, port int32, expires func() time.Time) (*node.Agent, error) {
	root, err := m.root()
	if err != nil {
		return nil, err
	}
	apiForPods, err := m.apiForPods(services)
	if err != nil {
		return nil, err
	}
	var awaitPod func(context.Context, *v1.Pod, netip.Addr) error
	if services != nil {
		awaitPod = services.AwaitPod
	}
	var limitBandwidth func(sandbox string, ingress, egress int64) error
	var announcePod func(sandbox string) error
	if m.bridge.Bridge != "" {
		limitBandwidth, announcePod = m.bridge.LimitBandwidth, m.bridge.AnnouncePod
	}
	options := node.Options{
		Name:              m.options.Name,
		Client:            client,
		Requests:          requests,
		Decode:            manifest.Pods,
		Endpoint:          m.endpoint,
		DeleteTask:        m.deleteTask,
		RootDir:           root,
		LoopFiles:         m.options.Dir.Volumes(),
		Owner:             m.names.ID,
		CgroupParent:      m.names.PodCgroup,
		IPs:               m.addresses(),
		ExternalIPs:       m.externalIPs,
		ServePort:         port,
		ServerCertificate: expires,
		API:               apiForPods,
		ClusterDNS:        clusterDNS,
		ResolvConf:        m.resolvConf(),
		Config:            m.options.Kubelet,
		PodCIDRs:          m.bridge.Ranges(),
		Version:           part.KubernetesVersion(),
		AwaitPod:          awaitPod,
		LimitBandwidth:    limitBandwidth,
		AnnouncePod:       announcePod,
		PinnedImages:      m.pinnedImages,
		Kernel:            sysctl.New(),
		Clock:             m.options.Clock,
		Notice:            m.notice,
	}
	options.Annotations = map[string]string{
		network.PodsAnnotation: m.options.PodNetwork, network.PoolsAnnotation: network.PoolsText(m.options.LoadBalancerPools),
	}
	if m.wireguardKey != nil {
		options.Annotations[network.WireGuardAnnotation] = m.wireguardKey.PublicKey().String()
	}
	if port != 0 {
		options.Annotations[localvolumes.Annotation] = "true"
	}
	if m.shown != nil {
		options.ShowStatic = m.shown
	}
	return node.New(options)
}

// expiry returns when a certificate expires; the zero time as long as there is none.
func expiry(serving func() *tls.Certificate) func() time.Time {
	return func() time.Time {
		if current := serving(); current != nil {
			return current.Leaf.NotAfter
		}
		return time.Time{}
	}
}

// present returns the callback by which a server presents a certificate.
func present(serving func() *tls.Certificate) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if current := serving(); current != nil {
			return current, nil
		}
		return nil, errors.New("the cluster has not signed the certificate of this node's server yet")
	}
}

// pinnedImages returns the names of images that the agent never removes.
func (m *Machine) pinnedImages(ctx context.Context) ([]string, error) {
	return containerd.PinnedImages(ctx, m.endpoint)
}

// root returns the root directory of the agent.
func (m *Machine) root() (string, error) {
	if m.options.KubeletDir == "" {
		return m.options.Dir.Node(), nil
	}
	return m.options.KubeletDir, m.options.Dir.LinkNode(m.options.KubeletDir)
}

// serveAgent serves the agent's ports: for the API server, and for clients that the API authorizes.
// client is nil if the node has no API: administrators are recognized by their certificates then.
func (m *Machine) serveAgent(agent *node.Agent, client kubernetes.Interface, ports agentPorts, serving func() *tls.Certificate) error {
	var groups []string
	if client == nil {
		groups = append(groups, user.SystemPrivilegedGroup)
	}
	access, err := serve.NewAccess(serve.AccessOptions{
		Config: &m.options.Kubelet.KubeletConfiguration, ClusterCA: m.api.ClusterCA,
		Users: []string{kubeletClientUser}, Groups: groups, Reviews: client,
	})
	if err != nil {
		return err
	}
	server := serve.New(serve.Options{
		Node: m.options.Name, Config: m.options.Kubelet, Lookup: agent.Lookup(), Runtime: agent.Runtime(), Clock: m.options.Clock,
		CheckpointDir: agent.CheckpointDir(),
		Access:        access, Health: agent.Health(), RunningPods: agent.RunningPods, Observe: agent.Metrics().Observe,
		Resources: agent.Sampler().Resources, Summary: agent.Sampler().Summary,
		Metrics: agent.Metrics().Handler(), Containers: agent.ContainerMetrics(), Probes: agent.Metrics().ProbesHandler(),
		Others: map[string]http.Handler{localvolumes.Path: localvolumes.Handler(localvolumes.Directories{Root: m.options.Dir.Volumes()})},
	})
	if ports.main != nil {
		config, err := serve.TLSConfig(&m.options.Kubelet.KubeletConfiguration, present(serving))
		if err != nil {
			return err
		}
		m.parts.Start("node server", func(ctx context.Context) error {
			go access.Run(ctx)
			return server.Serve(ctx, ports.main, config)
		})
	}
	m.servePlain("read-only node server", ports.readOnly, server.ReadOnly())
	m.servePlain("node health server", ports.health, server.Health())
	return nil
}

// awaitNode waits until the Node object is ready. After a while it notifies the user of the
// reason: a runtime without network, for example, does not recover by itself.
func (m *Machine) awaitNode(ctx context.Context, client kubernetes.Interface, ready <-chan struct{}) error {
	const patience = 10 * time.Second
	ticker := m.options.Clock.NewTicker(patience)
	defer ticker.Stop()
	for {
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
			m.notice(whyNotReady(ctx, client, m.options.Name))
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

// RemoveLogs removes the logs of the pods of an agent that has ended. They are not in the data directory.
func RemoveLogs(dir datadir.Layout) error { return rootdir.RemoveLogs(dir.Node()) }
