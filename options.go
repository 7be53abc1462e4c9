// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/audit"
	"github.com/kindred-project/kindred/internal/auth/authentication"
	"github.com/kindred-project/kindred/internal/auth/authorization"
	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/cluster"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/join"
	"github.com/kindred-project/kindred/internal/machine"
	kubeletconfig "github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/storage"
)

// ErrInvalid is wrapped by all errors about invalid options.
var ErrInvalid = errors.New("invalid option")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// quantity returns a number of bytes as Kubernetes writes it.
func quantity(bytes int64) *resource.Quantity { return resource.NewQuantity(bytes, resource.BinarySI) }

// Check returns what is wrong with the options, as Start would, and starts nothing.
func (o Options) Check(ctx context.Context) error {
	_, err := o.resolve(ctx)
	return err
}

// resolve applies defaults and validates the options.
func (o Options) resolve(ctx context.Context) (cluster.Config, error) {
	config := cluster.Config{
		Etcd:            storage.External{Servers: o.EtcdServers, CA: o.EtcdCAFile, Cert: o.EtcdCertFile, Key: o.EtcdKeyFile},
		Encryption:      storage.Encryption{File: o.EncryptionProviderConfig, Reload: o.EncryptionProviderConfigAutomaticReload},
		Port:            o.SecurePort,
		Node:            !o.NoNode,
		RuntimeEndpoint: o.ContainerRuntimeEndpoint,
		KubeletDir:      o.KubeletDir,
		SimulatedNodes:  o.SimulatedNodes,
		DNS:             !o.NoDNS,
		DNSHosts:        o.DNSHosts,
		TerminatedPods:  cmp.Or(o.TerminatedPodGCThreshold, DefaultTerminatedPodGCThreshold),
		RuntimeConfig:   o.RuntimeConfig,
		ReserveDisk:     o.ReserveDisk,
		Version:         o.Version,
		Flags:           o.Flags,
		Clock:           o.Clock,
		Progress:        o.Progress,
		Notice:          o.Notice,
	}
	if o.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if o.ReserveDisk == 0 {
		config.ReserveDisk = DefaultReserveDisk
	}
	config.History = storage.Retention{
		Age:       cmp.Or(o.HistoryRetention, DefaultHistoryRetention),
		Size:      cmp.Or(o.HistorySize, DefaultHistorySize),
		Deletions: cmp.Or(o.DeletionRecords, DefaultDeletionRecords),
	}
	if o.Memory != 0 && o.Memory < LeastMemory {
		return config, invalid("a memory limit of %s; it must be at least %s", quantity(o.Memory), quantity(LeastMemory))
	}
	if o.SimulatedNodes < 0 {
		return config, invalid("the number of simulated nodes is %d; it cannot be negative", o.SimulatedNodes)
	}
	if o.SecurePort < 0 || o.SecurePort > 65535 {
		return config, invalid("port %d; ports are from 0 to 65535", o.SecurePort)
	}
	if err := o.checkEndpoints(); err != nil {
		return config, err
	}
	if err := o.joins(&config); err != nil {
		return config, err
	}
	if err := cluster.CheckRuntimeConfig(o.RuntimeConfig); err != nil {
		return config, invalid("runtime-config: %v", err)
	}
	if err := config.History.Check(len(o.EtcdServers) == 0); err != nil {
		return config, invalid("%v", err)
	}
	var err error
	if config.Dir, err = datadir.New(o.DataDir); err != nil {
		return config, invalid("%v", err)
	}
	if config.BindAddress, err = o.bindAddress(); err != nil {
		return config, err
	}
	if config.Names, err = o.names(); err != nil {
		return config, err
	}
	if config.EtcdMember && config.BindAddress.IsUnspecified() {
		return config, invalid("an etcd member needs one address, and the bind address is %s", config.BindAddress)
	}
	if config.NodeIPs, err = o.nodeIPs(config.BindAddress); err != nil {
		return config, err
	}
	if config.PodNetwork, err = o.podNetwork(); err != nil {
		return config, err
	}
	if err := o.ranges(&config); err != nil {
		return config, err
	}
	config.ClusterNetworkPolicies = o.ClusterNetworkPolicies
	if config.Ingress, err = o.ingress(); err != nil {
		return config, err
	}
	if err := o.loadAccess(&config); err != nil {
		return config, invalid("%v", err)
	}
	if err := config.Encryption.Check(ctx); err != nil {
		return config, invalid("%v", err)
	}
	if config.Kubelet, err = o.kubelet(); err != nil {
		return config, err
	}
	config.NodeName, err = o.nodeName()
	return config, err
}

// loadAccess reads the configuration files of authentication, authorization and audit.
func (o Options) loadAccess(config *cluster.Config) (err error) {
	if config.Authentication, err = authentication.Load(authentication.Options(o.Authentication)); err != nil {
		return err
	}
	if config.Authorization, err = authorization.Load(authorization.Options(o.Authorization)); err != nil {
		return err
	}
	config.Audit, err = audit.Load(o.Audit)
	return err
}

// checkEndpoints refuses endpoints that would fail later, and options that would be ignored.
func (o Options) checkEndpoints() error {
	for _, server := range o.EtcdServers {
		if !isEtcdServer(server) {
			return invalid("etcd server %q is not a URL such as https://10.0.0.1:2379", server)
		}
	}
	switch {
	case len(o.EtcdServers) == 0 && (o.EtcdCAFile != "" || o.EtcdCertFile != "" || o.EtcdKeyFile != ""):
		return invalid("certificates for etcd are given, but no etcd servers")
	case (o.EtcdCertFile == "") != (o.EtcdKeyFile == ""):
		return invalid("a client certificate for etcd takes a certificate and its key, and only one of them is given")
	case o.KubeletDir != "" && o.NoNode:
		return invalid("a kubelet directory is given, but this machine is to be no node")
	case o.KubeletDir != "" && !filepath.IsAbs(o.KubeletDir):
		return invalid("kubelet directory %q is not an absolute path", o.KubeletDir)
	case o.KubeletConfig+o.KubeletConfigDir != "" && o.NoNode:
		return invalid("a kubelet configuration is given, but this machine is to be no node")
	case o.DNSHosts != "" && (o.NoDNS || o.NoNode):
		return invalid("a hosts file for DNS is given, but this machine is to serve no DNS")
	case o.ClusterNetworkPolicies && o.NoNode:
		return invalid("ClusterNetworkPolicies are to be applied, but this machine is to be no node")
	case o.ContainerRuntimeEndpoint != "" && o.NoNode:
		return invalid("a container runtime is given, but this machine is to be no node")
	case o.ContainerRuntimeEndpoint != "" && !strings.HasPrefix(o.ContainerRuntimeEndpoint, "unix:///"):
		return invalid("container runtime endpoint %q is not of the form unix:///run/containerd/containerd.sock", o.ContainerRuntimeEndpoint)
	}
	return nil
}

// isEtcdServer reports whether etcd's client accepts a server: as a URL, or as host and port.
func isEtcdServer(server string) bool {
	if host, port, err := net.SplitHostPort(server); err == nil && host != "" && port != "" && !strings.Contains(server, "/") {
		return true
	}
	u, err := url.Parse(server)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// bindAddress returns the address that the API listens on. Other machines must reach that of one of several servers.
func (o Options) bindAddress() (net.IP, error) {
	switch {
	case o.BindAddress != "":
		ip := net.ParseIP(o.BindAddress)
		if ip == nil {
			return nil, invalid("bind address %q is not an IP address", o.BindAddress)
		}
		return ip, nil
	case o.Join != "":
		address, err := join.AddressTowards(o.Join)
		return address.AsSlice(), err
	case o.Server, o.EtcdEmbedded:
		ip := machine.HostIP()
		if ip.IsLoopback() {
			return nil, invalid("this machine has no address in a network: give one that other machines reach as bind address")
		}
		return ip, nil
	}
	return net.ParseIP(DefaultBindAddress), nil
}

// names returns the further names of the API.
func (o Options) names() (pki.Names, error) {
	var names pki.Names
	for _, name := range o.TLSSANs {
		if ip := net.ParseIP(name); ip != nil {
			names.IPs = append(names.IPs, ip)
			continue
		}
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return names, invalid("name %q in the certificate of the API: it is neither an IP address nor a DNS name", name)
		}
		names.DNS = append(names.DNS, name)
	}
	return names, nil
}

// nodeIPs returns the addresses at which other machines reach this one as a node: those that are given, or else the address that the
// API listens on, so that machines that join reach the node as well. There are none if that is loopback, or all addresses.
func (o Options) nodeIPs(bind net.IP) ([]netip.Addr, error) {
	if o.NodeIP == "" {
		if bind.IsLoopback() || bind.IsUnspecified() {
			return nil, nil
		}
		address, _ := netip.AddrFromSlice(bind)
		return []netip.Addr{address.Unmap()}, nil
	}
	var all []netip.Addr
	for _, text := range strings.Split(o.NodeIP, ",") {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, invalid("node IP %q is not an IP address", text)
		}
		all = append(all, address)
	}
	if len(all) > 2 || len(all) == 2 && all[0].Is4() == all[1].Is4() {
		return nil, invalid("node IPs %s: at most one address of each IP family", o.NodeIP)
	}
	return all, nil
}

// Values of Options.PodNetwork.
const (
	// PodNetworkAuto sends packets for pods to their machine directly if that shares a link with this one, and else through a
	// VXLAN tunnel.
	PodNetworkAuto = machine.PodNetworkAuto
	// PodNetworkVXLAN always uses a tunnel between this machine and others, for links that carry packets of the machines' own addresses only.
	PodNetworkVXLAN = machine.PodNetworkVXLAN
	// PodNetworkWireGuard encrypts them with WireGuard. All machines of a cluster must have it: between one that has it and one that
	// has not, pods do not reach each other.
	PodNetworkWireGuard = machine.PodNetworkWireGuard
)

func (o Options) podNetwork() (string, error) {
	switch o.PodNetwork {
	case "":
		return PodNetworkAuto, nil
	case PodNetworkAuto, PodNetworkVXLAN, PodNetworkWireGuard:
		return o.PodNetwork, nil
	}
	return "", invalid("pod network %q: it is %s, %s or %s", o.PodNetwork, PodNetworkAuto, PodNetworkVXLAN, PodNetworkWireGuard)
}

// ingress returns the configuration of the proxy of Ingresses; nil for none.
func (o Options) ingress() (*cluster.Ingress, error) {
	http, https := cmp.Or(o.IngressHTTPPort, DefaultIngressHTTPPort), cmp.Or(o.IngressHTTPSPort, DefaultIngressHTTPSPort)
	if !o.Ingress {
		if o.IngressAddress != "" || http != DefaultIngressHTTPPort || https != DefaultIngressHTTPSPort {
			return nil, invalid("an address or port of Ingresses is given, but Ingresses are not to be served; add --ingress")
		}
		return nil, nil
	}
	for _, port := range []int{http, https} {
		if port < 1 || port > 65535 {
			return nil, invalid("port %d of Ingresses; ports are from 1 to 65535", port)
		}
	}
	if http == https {
		return nil, invalid("port %d is given for both HTTP and HTTPS of Ingresses", http)
	}
	config := &cluster.Ingress{HTTPPort: uint16(http), HTTPSPort: uint16(https)}
	if o.IngressAddress == "" {
		return config, nil
	}
	var err error
	if config.Address, err = netip.ParseAddr(o.IngressAddress); err != nil {
		return nil, invalid("address %q of Ingresses is not an IP address", o.IngressAddress)
	}
	return config, nil
}

// kubelet returns the configuration of the node's agent.
func (o Options) kubelet() (*kubeletconfig.Configuration, error) {
	config := kubeletconfig.Default()
	if o.KubeletConfig+o.KubeletConfigDir != "" {
		var err error
		if config, err = kubeletconfig.Load(o.KubeletConfig, o.KubeletConfigDir); err != nil {
			return nil, invalid("%v", err)
		}
	}
	config.Flags = o.Flags
	return config, nil
}

func (o Options) nodeName() (string, error) {
	name := o.NodeName
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", invalid("this machine does not tell its name, so give the node one: %v", err)
		}
		name = strings.ToLower(strings.TrimSpace(host))
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", invalid("node name %q: %s", name, strings.Join(problems, "; "))
	}
	return name, nil
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
