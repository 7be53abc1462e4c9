// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"testing"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
)

// set turns a feature of a link of the machine on or off.
func (m *tunnelled) set(t *testing.T, link, feature string, on bool) {
	t.Helper()
	m.ethtool(t, func(tool *ethtool.Ethtool) error { return tool.Change(link, map[string]bool{feature: on}) })
}

// ethtool runs a function in the namespace of the machine.
func (m *tunnelled) ethtool(t *testing.T, do func(*ethtool.Ethtool) error) {
	t.Helper()
	m.Do(t, func() {
		tool, err := ethtool.NewEthtool()
		if err != nil {
			t.Fatal(err)
		}
		defer tool.Close()
		if err := do(tool); err != nil {
			t.Fatal(err)
		}
	})
}

// offloads checks whether the tunnel of the machine leaves checksums to the link below.
func (m *tunnelled) offloads(t *testing.T, when string, want bool) {
	t.Helper()
	m.ethtool(t, func(tool *ethtool.Ethtool) error {
		features, err := tool.Features(m.routes.tunnel.link)
		if got, known := features[checksumOffload]; err == nil && (!known || got != want) {
			t.Errorf("%s: checksum offload %v, known %v; want %v", when, got, known, want)
		}
		return err
	})
}

// TestTunnelChecksums: the tunnel leaves checksums only to a link that divides packets inside of tunnels, also after somebody has
// turned that on.
func TestTunnelChecksums(t *testing.T) {
	left, right := twoTunnelled(t)
	left.offloads(t, "the link divides packets", true) // a veth does
	left.set(t, "eth0", tunnelSegmentation, false)
	left.ensure(t, true, right)
	left.offloads(t, "the link no longer divides packets", false)
	left.reaches(t, "without offload", right)
	left.ensure(t, false, right)

	left.set(t, left.routes.tunnel.link, checksumOffload, true)
	left.offloads(t, "somebody has turned it on", true)
	left.ensure(t, true, right)
	left.offloads(t, "it was on", false)

	left.link(t, netlink.LinkDel)
	left.ensure(t, true, right)
	left.offloads(t, "a new interface", false)

	left.set(t, "eth0", tunnelSegmentation, true)
	left.ensure(t, false, right)
	left.offloads(t, "somebody has turned it off", false)
}

func TestMayOffload(t *testing.T) {
	segments, none := map[string]bool{tunnelSegmentation: true}, map[string]bool{tunnelSegmentation: false}
	for name, test := range map[string]struct {
		features map[string]bool
		drivers  []string
		want     bool
	}{
		"a card with tunnels":            {segments, []string{"mlx5_core", "veth"}, true},
		"a link of pods":                 {segments, []string{"veth"}, true},
		"a card without tunnels":         {none, []string{"virtio_net"}, false},
		"an unknown feature":             {nil, []string{"virtio_net"}, false},
		"VMware's":                       {segments, []string{"vmxnet3"}, false},
		"a bridge or VLAN on VMware's":   {segments, []string{"bridge", "802.1Q VLAN Support", "vmxnet3"}, false},
		"VMware's, which has it no more": {none, []string{"vmxnet3"}, false},
	} {
		if got := mayOffload(test.features, test.drivers); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestDriversOfMachine: all links count but the loopback.
func TestDriversOfMachine(t *testing.T) {
	left, _ := twoTunnelled(t)
	left.ethtool(t, func(tool *ethtool.Ethtool) error {
		drivers, err := driversOfMachine(tool)
		slices.Sort(drivers)
		if want := []string{"bridge", "veth", "vxlan"}; !slices.Equal(slices.Compact(drivers), want) {
			t.Errorf("got %v, want %v", drivers, want)
		}
		return err
	})
}
