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
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// Network is the pod network of one node: a bridge, whose address is the gateway of all pods and an address of the
// API server for pods.
type Network struct {
	Bridge  string
	PodCIDR netip.Prefix
	Gateway net.IP
}

// NetworkOptions configure the network that [EnsureNetwork] creates.
type NetworkOptions struct {
	Names Names
	// Dir has the CNI configuration and the allocated addresses.
	Dir string
	// PodCIDR is the node's pod range. If empty, it is the range that was used before, else a free
	// /24 of 10.244.0.0/16.
	PodCIDR string
}

// podRanges has the default pod ranges of nodes.
var podRanges = netip.MustParsePrefix("10.244.0.0/16")

// EnsureNetwork creates the bridge with its address, the firewall rules and the CNI configuration, and enables
// forwarding. It is idempotent and needs no container runtime.
func EnsureNetwork(ctx context.Context, o NetworkOptions) (Network, error) {
	podCIDR, err := o.podCIDR()
	if err != nil {
		return Network{}, err
	}
	n := Network{Bridge: o.Names.Bridge, PodCIDR: podCIDR, Gateway: net.IP(podCIDR.Addr().Next().AsSlice())}
	if _, err := EnsureBridge(n.Bridge, n.PodCIDR); err != nil {
		return Network{}, err
	}
	if err := enableForwarding(ctx); err != nil {
		return Network{}, err
	}
	if err := ensureFirewall(ctx, o.Names, n.PodCIDR); err != nil {
		return Network{}, err
	}
	return n, o.writeConflist(n)
}

// podCIDR returns the pod range. A range that was used before stays, because pods have addresses of it.
func (o NetworkOptions) podCIDR() (netip.Prefix, error) {
	if o.PodCIDR != "" {
		p, err := netip.ParsePrefix(o.PodCIDR)
		if err != nil || !p.Addr().Is4() || p.Bits() > 30 {
			return netip.Prefix{}, fmt.Errorf("pod range %q is not an IPv4 range of at least /30, such as 10.244.0.0/24", o.PodCIDR)
		}
		return p.Masked(), nil
	}
	if p, err := o.readPodRange(); err != nil || p.IsValid() {
		return p, err
	}
	taken, err := routedRanges(o.Names.Bridge)
	if err != nil {
		return netip.Prefix{}, err
	}
	return freeRange(o.Names.ID, taken)
}

// freeRange returns a /24 of podRanges that overlaps none of the taken ranges. The search starts at an offset
// derived from the ID, so that two data directories rarely choose the same range, even if neither has a
// bridge yet.
func freeRange(id string, taken []netip.Prefix) (netip.Prefix, error) {
	seed, err := strconv.ParseUint(id, 16, 32)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("data directory ID %q is not hexadecimal", id)
	}
	base := podRanges.Addr().As4()
	for i := range uint64(256) {
		base[2] = byte(seed + i)
		candidate := netip.PrefixFrom(netip.AddrFrom4(base), 24)
		if !overlapsAny(candidate, taken) {
			return candidate, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("no free /24 in %s: each one overlaps a route of this machine; name a range with --pod-cidr", podRanges)
}

func overlapsAny(p netip.Prefix, others []netip.Prefix) bool {
	for _, other := range others {
		if p.Overlaps(other) {
			return true
		}
	}
	return false
}

// routedRanges returns the destinations of the machine's IPv4 routes, without default routes and routes of
// the data directory's bridge.
func routedRanges(bridge string) ([]netip.Prefix, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("reading the machine's routes: %w", err)
	}
	own := -1
	if link, err := netlink.LinkByName(bridge); err == nil {
		own = link.Attrs().Index
	}
	var ranges []netip.Prefix
	for _, r := range routes {
		if r.Dst == nil || r.LinkIndex == own {
			continue
		}
		addr, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		bits, _ := r.Dst.Mask.Size()
		if ok && bits > 0 {
			ranges = append(ranges, netip.PrefixFrom(addr, bits))
		}
	}
	return ranges, nil
}

// EnsureBridge creates the bridge as the CNI bridge plugin would, up and with the range's first address, which it
// returns.
func EnsureBridge(name string, podCIDR netip.Prefix) (net.IP, error) {
	link, err := netlink.LinkByName(name)
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		link, err = addBridge(name)
	}
	if err != nil {
		return nil, fmt.Errorf("bridge %s: %w", name, err)
	}
	if link.Type() != "bridge" {
		return nil, fmt.Errorf("network interface %s is a %s, not a bridge; remove it with: ip link delete %[1]s", name, link.Type())
	}
	gateway := net.IP(podCIDR.Addr().Next().AsSlice())
	address := &net.IPNet{IP: gateway, Mask: net.CIDRMask(podCIDR.Bits(), 32)}
	if err := setAddress(link, address); err != nil {
		return nil, fmt.Errorf("bridge %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("bridge %s: %w", name, err)
	}
	return gateway, nil
}

// addBridge creates the bridge with a hardware address of its own. Otherwise the bridge would have the lowest
// address of its ports, which changes as pods start and stop: pods with the old address in their neighbour
// table would lose packets.
func addBridge(name string) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	attrs.HardwareAddr = hardwareAddress(name)
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return netlink.LinkByName(name)
}

// setAddress sets the link's only IPv4 address.
func setAddress(link netlink.Link, address *net.IPNet) error {
	present, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, a := range present {
		if a.IPNet.String() == address.String() {
			continue
		}
		if err := netlink.AddrDel(link, &a); err != nil {
			return err
		}
	}
	return netlink.AddrReplace(link, &netlink.Addr{IPNet: address})
}

// enableForwarding makes the host forward packets of pods. Packets between two pods on the bridge must traverse
// the firewall as well: otherwise the addresses in the responses of Services would not be translated back.
func enableForwarding(ctx context.Context) error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("switching IP forwarding on: %w", err)
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

// podRangeFile has the pod range of the configuration.
func (o NetworkOptions) podRangeFile() string { return filepath.Join(o.Dir, "pod-cidr") }

func (o NetworkOptions) readPodRange() (netip.Prefix, error) {
	b, err := os.ReadFile(o.podRangeFile())
	if errors.Is(err, fs.ErrNotExist) {
		return netip.Prefix{}, nil
	}
	if err != nil {
		return netip.Prefix{}, err
	}
	p, err := netip.ParsePrefix(string(b))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s has no valid pod range: %w", o.podRangeFile(), err)
	}
	return p, nil
}

// writeConflist writes the CNI configuration. The plugin does not masquerade, because it would add a chain for
// every pod. ensureFirewall has one rule for the whole range.
func (o NetworkOptions) writeConflist(n Network) error {
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
					"ranges":  [][]map[string]string{{{"subnet": n.PodCIDR.String()}}},
					"routes":  []map[string]string{{"dst": "0.0.0.0/0"}},
				},
			},
			{
				"type":         "portmap",
				"capabilities": map[string]bool{"portMappings": true},
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
	return writeIfChanged(o.podRangeFile(), []byte(n.PodCIDR.String()))
}
