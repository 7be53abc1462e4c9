// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/links"
)

const (
	// WireGuardAnnotation is the annotation of a Node with the public key of its machine. It counts only with PodsWireGuard.
	WireGuardAnnotation = "kindred.dev/wireguard-key"
	// wireguardPort is the UDP port of WireGuard, that of its documentation.
	wireguardPort = 51820
	// wireguardOverhead is what WireGuard adds to a packet over IPv6, which is more than over IPv4: outer IP, UDP, its own header
	// and the authentication tag.
	wireguardOverhead = 80
)

// WireGuardKey is the private key of a machine.
type WireGuardKey = wgtypes.Key

// LoadWireGuardKey reads the key of a machine from a file, which it creates if it is missing.
func LoadWireGuardKey(file string) (*WireGuardKey, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			return nil, err
		}
		return &key, os.WriteFile(file, []byte(key.String()+"\n"), 0o600)
	}
	if err != nil {
		return nil, err
	}
	key, err := wgtypes.ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("the key of WireGuard in %s: %w", file, err)
	}
	return &key, nil
}

// wireguard is an interface that encrypts packets for the pods of other nodes. Its peers follow from Node objects. Nodes that have it
// exchange packets with others that have it, and with no others: what is to be encrypted is never sent in clear.
//
// The interface is the kernel's. Where the kernel has none, it may be one of wireguard-go with the same name.
type wireguard struct {
	link string
	// key is nil on machines without WireGuard.
	key *WireGuardKey
	// own is the address of this machine, and ranges are those of its pods.
	own    netip.Addr
	ranges []netip.Prefix
}

// sealedEnd is the end of an encrypted path on the machine of a node.
type sealedEnd struct {
	machine netip.Addr
	// key is the public key; the zero Key if it is not known.
	key wgtypes.Key
}

// sealedEndOf returns the end on the machine of a node with some ranges.
func sealedEndOf(node *v1.Node, ranges []netip.Prefix) sealedEnd {
	key, err := wgtypes.ParseKey(node.Annotations[WireGuardAnnotation])
	if err != nil || !seals(node) {
		return sealedEnd{}
	}
	machine := machineAddress(node, ranges, true)
	if !machine.IsValid() {
		machine = machineAddress(node, ranges, false)
	}
	return sealedEnd{machine, key}
}

func (e sealedEnd) isKnown() bool { return e.machine.IsValid() && e.key != wgtypes.Key{} }

// wireguardLink returns the name of the interface of a bridge. Names have at most 15 bytes.
func wireguardLink(bridge string) string { return bridge + "-wg" }

// reaches reports whether packets can be encrypted for an end.
func (w wireguard) reaches(end sealedEnd) bool {
	return w.key != nil && w.own.IsValid() && end.isKnown()
}

// ensure restores the interface, and reports whether it had to. If the interface exists but something of it cannot be restored, it returns
// the interface and an error.
func (w wireguard) ensure() (link netlink.Link, restored bool, err error) {
	below, err := underlay(w.own)
	if err != nil {
		return nil, false, err
	}
	mtu := below.Attrs().MTU - wireguardOverhead
	link, err = netlink.LinkByName(w.link)
	if err == nil && link.Attrs().MTU == mtu && link.Attrs().Flags&net.FlagUp != 0 {
		return link, false, addEnds(link, w.ranges)
	}
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		link, err = w.add()
	}
	if err != nil {
		return nil, false, err
	}
	// The MTU is first, because an interface with an MTU below 1280 takes no IPv6 addresses.
	return link, true, errors.Join(netlink.LinkSetMTU(link, mtu), addEnds(link, w.ranges), netlink.LinkSetUp(link))
}

func (w wireguard) add() (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = w.link
	if err := netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs}); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = fmt.Errorf("%w; run \"modprobe wireguard\", or \"wireguard-go %s\" on a kernel without it", err, w.link)
		}
		return nil, fmt.Errorf("WireGuard interface %s: %w", w.link, err)
	}
	return netlink.LinkByName(w.link)
}

// connect makes the peers of the interface those of some nodes, by the ranges of their pods.
func (w wireguard) connect(nodes map[netip.Prefix]sealedEnd) error {
	client, err := wgctrl.New()
	if err != nil {
		return err
	}
	defer client.Close()
	device, err := client.Device(w.link)
	if err != nil {
		return fmt.Errorf("WireGuard interface %s: %w", w.link, err)
	}
	config := wgtypes.Config{Peers: changedPeers(device.Peers, peersOf(nodes))}
	if device.PrivateKey != *w.key || device.ListenPort != wireguardPort {
		config.PrivateKey, config.ListenPort = w.key, new(wireguardPort)
	}
	if config.PrivateKey == nil && len(config.Peers) == 0 {
		return nil
	}
	if err := client.ConfigureDevice(w.link, config); err != nil {
		return fmt.Errorf("WireGuard interface %s: %w", w.link, err)
	}
	return nil
}

// peersOf returns the peers of nodes, by the ranges of their pods.
func peersOf(nodes map[netip.Prefix]sealedEnd) map[wgtypes.Key]wgtypes.PeerConfig {
	peers := map[wgtypes.Key]wgtypes.PeerConfig{}
	for pods, end := range nodes {
		peer := peers[end.key]
		peer.PublicKey, peer.ReplaceAllowedIPs = end.key, true
		peer.Endpoint = net.UDPAddrFromAddrPort(netip.AddrPortFrom(end.machine, wireguardPort))
		peer.AllowedIPs = append(peer.AllowedIPs, *ipNet(pods))
		peers[end.key] = peer
	}
	return peers
}

// changedPeers returns the changes that make peers of an interface the wanted ones.
func changedPeers(present []wgtypes.Peer, wanted map[wgtypes.Key]wgtypes.PeerConfig) []wgtypes.PeerConfig {
	var changes []wgtypes.PeerConfig
	fit := map[wgtypes.Key]bool{}
	for _, peer := range present {
		want, ok := wanted[peer.PublicKey]
		if !ok {
			changes = append(changes, wgtypes.PeerConfig{PublicKey: peer.PublicKey, Remove: true})
			continue
		}
		fit[peer.PublicKey] = peer.Endpoint.String() == want.Endpoint.String() && slices.Equal(sortedNets(peer.AllowedIPs), sortedNets(want.AllowedIPs))
	}
	for key, want := range wanted {
		if !fit[key] {
			changes = append(changes, want)
		}
	}
	return changes
}

func sortedNets(nets []net.IPNet) []string {
	var all []string
	for i := range nets {
		all = append(all, nets[i].String())
	}
	slices.Sort(all)
	return all
}

// carries reports whether a route leads through the interface.
func (w wireguard) carries(route *netlink.Route) bool {
	if route.Gw != nil {
		return false
	}
	link, err := netlink.LinkByIndex(route.LinkIndex)
	return err == nil && link.Attrs().Name == w.link && link.Attrs().Flags&net.FlagUp != 0
}

func (w wireguard) exists() bool {
	_, err := netlink.LinkByName(w.link)
	return err == nil
}

// remove removes the interface, if there is one.
func (w wireguard) remove() error { return links.Remove(w.link) }
