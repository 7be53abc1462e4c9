// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/kindred-project/kindred/internal/links"
)

// linkInside is the name of a machine's link inside of it.
const linkInside = "eth0"

// rangeBits is the length of the prefix of the network, which has room for 65,533 machines and endpoints.
const rangeBits = 16

// network is that of all machines of a directory.
type network struct {
	// Range has the addresses. The first is the host's; those of machines follow, and those of endpoints are at its end.
	Range netip.Prefix `json:"range"`
}

func (n network) gateway() netip.Addr { return n.Range.Addr().Next() }

// bridge is the name of the bridge, and link that of a machine's link on it. A name has at most 15 bytes.
func (h *Host) bridge() string          { return "kdm" + h.id() }
func (h *Host) link(name string) string { return "kdv" + short(h.root+"/"+name) }

// ensureNetwork creates the network, or what of it is missing, as after the start of the host.
func (h *Host) ensureNetwork(ctx context.Context) (network, error) {
	n, err := h.chooseRange()
	if err != nil {
		return n, err
	}
	if err := h.ensureBridge(n); err != nil {
		return n, fmt.Errorf("bridge %s of machines: %w", h.bridge(), err)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return n, fmt.Errorf("let the host route packets of machines: %w", err)
	}
	return n, h.writeRules(ctx, n)
}

// chooseRange returns the range of the network. The first call chooses one that the host does not route.
func (h *Host) chooseRange() (network, error) {
	var n network
	if found, err := readJSON(h.path("network.json"), &n); found || err != nil {
		return n, err
	}
	taken, err := links.Routed("")
	if err != nil {
		return n, err
	}
	if n.Range, err = freeRange(taken); err != nil {
		return n, err
	}
	return n, writeJSON(h.path("network.json"), n)
}

// freeRange returns the first of the ranges 10.192.0.0/16 to 10.223.0.0/16 that overlaps none that is taken.
func freeRange(taken []netip.Prefix) (netip.Prefix, error) {
	for second := byte(192); second < 224; second++ {
		candidate := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, second, 0, 0}), rangeBits)
		if !overlaps(candidate, taken) {
			return candidate, nil
		}
	}
	return netip.Prefix{}, errors.New("no range of addresses is free for machines: each /16 from 10.192.0.0 to 10.223.0.0 overlaps a route of this host")
}

func overlaps(p netip.Prefix, others []netip.Prefix) bool {
	for _, other := range others {
		if p.Overlaps(other) {
			return true
		}
	}
	return false
}

func (h *Host) ensureBridge(n network) error {
	link, err := netlink.LinkByName(h.bridge())
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		link, err = links.AddBridge(h.bridge())
	}
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(link, links.Address(netip.PrefixFrom(n.gateway(), n.Range.Bits()))); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// connect gives a machine, whose first process has a PID, a link to the bridge.
func (h *Host) connect(n network, m Machine, pid int) error {
	if err := links.Remove(h.link(m.Name)); err != nil {
		return err
	}
	bridge, err := netlink.LinkByName(h.bridge())
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = h.link(m.Name), bridge.Attrs().Index
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: linkInside, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("link %s: %w", attrs.Name, err)
	}
	// A machine that reaches itself through an endpoint gets the packet back by the port from which it came.
	if err := netlink.LinkSetHairpin(veth, true); err != nil {
		return fmt.Errorf("hairpin mode of link %s: %w", attrs.Name, err)
	}
	return netlink.LinkSetUp(veth)
}

// freeAddress returns the first address that no machine has.
func (h *Host) freeAddress(n network) (netip.Addr, error) {
	used, err := h.addresses()
	if err != nil {
		return netip.Addr{}, err
	}
	for a := n.gateway().Next(); n.Range.Contains(a.Next()); a = a.Next() {
		if !used[a] {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no address is free in %s", n.Range)
}

// freeEndpoint returns the last address that no endpoint and no machine has, except for the address of broadcasts.
func (h *Host) freeEndpoint(n network) (netip.Addr, error) {
	used, err := h.addresses()
	if err != nil {
		return netip.Addr{}, err
	}
	for a := lastAddress(n.Range).Prev(); a != n.gateway(); a = a.Prev() {
		if !used[a] {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no address is free in %s", n.Range)
}

// addresses are those of machines and endpoints.
func (h *Host) addresses() (map[netip.Addr]bool, error) {
	machines, err := h.List()
	if err != nil {
		return nil, err
	}
	endpoints, err := h.Endpoints()
	if err != nil {
		return nil, err
	}
	used := map[netip.Addr]bool{}
	for _, m := range machines {
		used[m.Address.Addr()] = true
	}
	for _, e := range endpoints {
		used[e.Address] = true
	}
	return used, nil
}

// lastAddress returns the last address of an IPv4 range.
func lastAddress(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(bytes)
}
