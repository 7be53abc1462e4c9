// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net"
	"slices"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/kindred-project/kindred/internal/links"
)

const (
	// checksumOffload is the feature of a VXLAN interface that leaves the checksums of the packets inside to the link below.
	checksumOffload = "tx-checksum-ip-generic"
	// tunnelSegmentation is the feature of links that divide large TCP packets inside of a tunnel themselves.
	tunnelSegmentation = "tx-udp_tnl-segmentation"
)

// wrongChecksums are drivers of network cards that compute wrong checksums of packets inside of tunnels, although they have
// tunnelSegmentation: the receiver drops TCP and UDP, while ping works.
var wrongChecksums = []string{"vmxnet3"}

// mendChecksums turns off the checksum offload of the interface if the link below cannot be trusted with it, and reports whether it was on.
// It never turns it on, so that an administrator can turn it off.
func (t tunnel) mendChecksums(below netlink.Link) (changed bool, err error) {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return false, err
	}
	defer tool.Close()
	features, err := tool.Features(t.link)
	if err != nil {
		return false, fmt.Errorf("features of %s: %w", t.link, err)
	}
	if !features[checksumOffload] {
		return false, nil
	}
	if trusted, err := computesChecksums(tool, below); trusted || err != nil {
		return false, err
	}
	if err := tool.Change(t.link, map[string]bool{checksumOffload: false}); err != nil {
		return false, fmt.Errorf("turning off the checksum offload of %s: %w", t.link, err)
	}
	return true, nil
}

// computesChecksums reports whether a link computes the checksums of packets inside of a tunnel right.
func computesChecksums(tool *ethtool.Ethtool, link netlink.Link) (bool, error) {
	features, err := tool.Features(link.Attrs().Name)
	if err != nil {
		return false, fmt.Errorf("features of %s: %w", link.Attrs().Name, err)
	}
	drivers, err := driversOfMachine(tool)
	return err == nil && mayOffload(features, drivers), err
}

// mayOffload reports whether a tunnel may leave checksums to a link with some features, on a machine whose links have some drivers. A link
// without tunnelSegmentation saves little by it, and most reports of wrong checksums are about such links.
func mayOffload(features map[string]bool, drivers []string) bool {
	return features[tunnelSegmentation] && !slices.ContainsFunc(wrongChecksums, func(driver string) bool { return slices.Contains(drivers, driver) })
}

// driversOfMachine returns the drivers of all links, because the link below may be a bridge, a bond or a VLAN on a network card.
func driversOfMachine(tool *ethtool.Ethtool) ([]string, error) {
	all, err := links.Whole(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	var drivers []string
	for _, link := range all {
		if link.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		// A link without a driver, or that is gone by now, is no network card.
		if driver, err := tool.DriverName(link.Attrs().Name); err == nil {
			drivers = append(drivers, driver)
		}
	}
	return drivers, nil
}
