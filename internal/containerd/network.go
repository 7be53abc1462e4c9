// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kindred-project/kindred/internal/links"
)

// Network is the pod network of one node: a bridge, whose address is the gateway of all pods and an address of the
// API server for pods.
type Network struct {
	Bridge string
	// PodCIDRs are the ranges of the pods: IPv4, and IPv6 if the pods have both.
	PodCIDRs []netip.Prefix
	// Gateway is the IPv4 address of the bridge.
	Gateway net.IP

	names Names
}

// Ranges returns PodCIDRs as a Node has them.
func (n Network) Ranges() []string {
	var all []string
	for _, p := range n.PodCIDRs {
		all = append(all, p.String())
	}
	return all
}

// Gateways returns the addresses of the bridge, one for each of PodCIDRs.
func (n Network) Gateways() []string {
	var all []string
	for _, p := range n.PodCIDRs {
		all = append(all, p.Addr().Next().String())
	}
	return all
}

// NetworkOptions configure the network that [EnsureNetwork] creates.
type NetworkOptions struct {
	Names Names
	// Dir has the CNI configuration and the allocated addresses.
	Dir string
	// ClusterCIDRs are the ranges that free ones are chosen from: by default 10.244.0.0/16, and fd00:10:244::/48.
	ClusterCIDRs []netip.Prefix
	// PodCIDRs are the node's pod ranges, at most one of each IP family. Without an IPv4 range it is the one that
	// was used before, else a free /24.
	PodCIDRs []netip.Prefix
	// IPv6 gives pods an IPv6 address as well. Without a range for them it is the one that was used before, else
	// a free /64.
	IPv6 bool
}

// EnsureNetwork creates the bridge with its address, the firewall rules and the CNI configuration, and enables
// forwarding. It is idempotent and needs no container runtime.
func EnsureNetwork(ctx context.Context, o NetworkOptions) (Network, error) {
	podCIDRs, err := o.podCIDRs()
	if err != nil {
		return Network{}, err
	}
	n := Network{Bridge: o.Names.Bridge, PodCIDRs: podCIDRs, Gateway: net.IP(podCIDRs[0].Addr().Next().AsSlice()), names: o.Names}
	if err := n.ensureBridge(); err != nil {
		return Network{}, err
	}
	if err := enableForwarding(ctx, len(podCIDRs) > 1); err != nil {
		return Network{}, err
	}
	if err := ensureFirewall(ctx, o.Names, n.PodCIDRs); err != nil {
		return Network{}, err
	}
	return n, o.writeConflist(n)
}

// ensureBridge creates the bridge as the CNI bridge plugin would, up and with the first address of each range. Pods
// that run are connected to a new bridge.
func (n Network) ensureBridge() error {
	link, err := netlink.LinkByName(n.Bridge)
	var absent netlink.LinkNotFoundError
	created := errors.As(err, &absent)
	if created {
		link, err = links.AddBridge(n.Bridge)
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", n.Bridge, err)
	}
	if link.Type() != "bridge" {
		return fmt.Errorf("network interface %s is a %s, not a bridge; remove it with: ip link delete %[1]s", n.Bridge, link.Type())
	}
	// IPv6 addresses can be set on an interface that is up only.
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bridge %s: %w", n.Bridge, err)
	}
	for _, p := range n.PodCIDRs {
		if err := setAddress(link, netip.PrefixFrom(p.Masked().Addr().Next(), p.Bits())); err != nil {
			return fmt.Errorf("bridge %s: %w", n.Bridge, err)
		}
	}
	if created {
		return n.connectPods()
	}
	return nil
}

// setAddress sets the link's only address of its IP family, apart from link-local ones.
func setAddress(link netlink.Link, address netip.Prefix) error {
	family, flags := netlink.FAMILY_V4, 0
	if address.Addr().Is6() {
		// It is used at once. The check for duplicates would delay it, and hear its own packets from hairpin ports.
		family, flags = netlink.FAMILY_V6, unix.IFA_F_NODAD
	}
	present, err := links.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
	if err != nil {
		return err
	}
	for _, a := range present {
		if a.IPNet.String() == address.String() || a.IP.IsLinkLocalUnicast() {
			continue
		}
		if err := netlink.AddrDel(link, &a); err != nil {
			return err
		}
	}
	wanted := links.Address(address)
	wanted.Flags = flags
	return netlink.AddrReplace(link, wanted)
}

// enableForwarding makes the host forward packets of pods. Packets between two pods on the bridge must traverse
// the firewall as well: otherwise the addresses in the responses of Services would not be translated back.
func enableForwarding(ctx context.Context, ipv6 bool) error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("switching IP forwarding on: %w", err)
	}
	if ipv6 {
		if err := enableIPv6Forwarding(); err != nil {
			return fmt.Errorf("switching IPv6 forwarding on: %w", err)
		}
	}
	if _, err := os.Stat(filterBridged[0]); errors.Is(err, fs.ErrNotExist) {
		if modprobe, err := lookPath("modprobe"); err == nil {
			// If it fails, so does the write below.
			_ = exec.CommandContext(ctx, modprobe, "br_netfilter").Run()
		}
	}
	for _, file := range filterBridged {
		if err := os.WriteFile(file, []byte("1"), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ipv6Conf has the settings of IPv6 for each interface.
const ipv6Conf = "/proc/sys/net/ipv6/conf"

// enableIPv6Forwarding makes the host forward IPv6. A host that forwards ignores router advertisements, by which it may
// have its address and its default route, unless accept_ra is 2 (Linux, ip-sysctl): interfaces that accept them go on
// with that.
func enableIPv6Forwarding() error {
	if value, err := os.ReadFile(filepath.Join(ipv6Conf, "all", "forwarding")); err != nil || strings.TrimSpace(string(value)) == "1" {
		return err
	}
	accepting, err := filepath.Glob(filepath.Join(ipv6Conf, "*", "accept_ra"))
	if err != nil {
		return err
	}
	for _, file := range accepting {
		if value, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(value)) != "1" {
			continue // the interface is gone, or ignores them
		}
		if err := os.WriteFile(file, []byte("2"), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.WriteFile(filepath.Join(ipv6Conf, "all", "forwarding"), []byte("1"), 0o644)
}

// filterBridged are the switches for filters on bridges. The kernel has them with the module br_netfilter.
var filterBridged = []string{"/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables"}

// FiltersBridged reports whether packets between two pods of the node traverse the firewall. If not, they cannot
// reach Services whose endpoint is on their own node, and NetworkPolicies do not apply to them.
func FiltersBridged() bool {
	on, err := os.ReadFile(filterBridged[0])
	return err == nil && strings.TrimSpace(string(on)) == "1"
}

// conflist is the used part of a CNI network configuration list.
type conflist struct {
	CNIVersion string           `json:"cniVersion"`
	Name       string           `json:"name"`
	Plugins    []map[string]any `json:"plugins"`
}

func confDir(dir string) string { return filepath.Join(dir, "net.d") }
func (o NetworkOptions) conflist() string {
	return filepath.Join(confDir(o.Dir), "10-kindred.conflist")
}

// writeConflist writes the CNI configuration. There is no plugin for host ports, which are in the table of Services. The plugin bridge does not masquerade, because it would add a chain for
// every pod. ensureFirewall has one rule for the whole range.
func (o NetworkOptions) writeConflist(n Network) error {
	var subnets [][]map[string]string
	var routes []map[string]string
	for _, p := range n.PodCIDRs {
		subnets = append(subnets, []map[string]string{{"subnet": p.String()}})
		routes = append(routes, map[string]string{"dst": netip.PrefixFrom(unspecified(p), 0).String()})
	}
	list := conflist{
		CNIVersion: "0.4.0", // supported by the oldest containerd and plugins
		Name:       o.Names.Network,
		Plugins: []map[string]any{
			{
				"type":        "bridge",
				"bridge":      n.Bridge,
				"isGateway":   true,
				"hairpinMode": true,
				"ipam": map[string]any{
					"type":    "host-local",
					"dataDir": filepath.Join(o.Dir, "addresses"),
					"ranges":  subnets,
					"routes":  routes,
				},
			},
		},
	}
	b, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(confDir(o.Dir), 0o755); err != nil {
		return err
	}
	if err := writeIfChanged(o.conflist(), append(b, '\n')); err != nil {
		return err
	}
	return o.writePodRanges(n)
}

// unspecified returns the address 0.0.0.0 or :: of a range's IP family.
func unspecified(p netip.Prefix) netip.Addr {
	if p.Addr().Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
