// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// machinesBridge is the link that machines share, on this machine.
const machinesBridge = "kindred-hosts"

// machinesLink is the network of the machines. This machine has its first address.
var machinesLink = netip.MustParsePrefix("10.247.0.0/24")

// hostAddress is the address of this machine that the others reach.
func hostAddress() netip.Addr { return machinesLink.Addr().Next() }

// connectMachines creates the link.
func connectMachines() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = machinesBridge
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("bridge %s: %w", machinesBridge, err)
	}
	return addressed(machinesBridge, hostAddress())
}

// disconnectMachines removes the link, if there is one.
func disconnectMachines() error {
	link, err := netlink.LinkByName(machinesBridge)
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		return nil
	}
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}

// machine is a network namespace on the link, as another machine would be.
type machine struct {
	// link is the name of its interface on this machine.
	link string
	ns   netns.NsHandle
}

// machineAddress returns the address of a machine, by its number, which is at least 2.
func machineAddress(number int) netip.Addr {
	address := machinesLink.Addr().As4()
	address[3] = byte(number)
	return netip.AddrFrom4(address)
}

// newMachine creates a machine. Each has a number of its own.
func newMachine(link string, number int) (_ *machine, err error) {
	m := &machine{link: link, ns: netns.None()}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("the network namespace of %s: %w", link, err), m.remove())
		}
	}()
	bridge, err := netlink.LinkByName(machinesBridge)
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return nil, err
	}
	defer here.Close()
	if m.ns, err = netns.New(); err != nil {
		return nil, err
	}
	if err := netns.Set(here); err != nil {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = link, bridge.Attrs().Index
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(m.ns))}); err != nil {
		return nil, fmt.Errorf("link %s: %w", link, err)
	}
	if err := linkUp(link); err != nil {
		return nil, err
	}
	return m, m.within(func() error {
		return errors.Join(linkUp("lo"), addressed("eth0", machineAddress(number)), defaultRoute(hostAddress()))
	})
}

// remove removes the namespace and the link, if there is a machine.
func (m *machine) remove() error {
	if m == nil {
		return nil
	}
	var failed []error
	if link, err := netlink.LinkByName(m.link); err == nil {
		failed = append(failed, netlink.LinkDel(link))
	}
	if m.ns.IsOpen() {
		failed = append(failed, m.ns.Close())
	}
	return errors.Join(failed...)
}

// within runs a function in the namespace. Processes that it starts stay there.
func (m *machine) within(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return err
	}
	defer here.Close()
	if err := netns.Set(m.ns); err != nil {
		return err
	}
	return errors.Join(do(), netns.Set(here))
}

func linkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// addressed gives a link an address and sets it up.
func addressed(name string, address netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	network := &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(machinesLink.Bits(), 32)}}
	return errors.Join(netlink.AddrAdd(link, network), netlink.LinkSetUp(link))
}

// defaultRoute adds a route to everything by way of an address.
func defaultRoute(gateway netip.Addr) error {
	return netlink.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()})
}
