// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/binary"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// watched detects transactions of other programs by the generation of the kernel's rules, a number that each
// transaction increases. Asking for it is cheap, listing the rules is not.
type watched struct {
	generation uint32
	known      bool
}

// wrote remembers the current generation as ours.
func (w *watched) wrote() {
	generation, err := generation()
	w.generation, w.known = generation, err == nil
}

// changedByOthers reports whether there may have been a transaction since wrote was called.
func (w *watched) changedByOthers() bool {
	now, err := generation()
	return err != nil || !w.known || now != w.generation
}

// generation returns the generation of the rules of all tables.
func generation() (uint32, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	answers, err := request.Execute(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN)
	if err != nil {
		return 0, err
	}
	for _, answer := range answers {
		attributes, err := nl.ParseRouteAttr(answer[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, err
		}
		for _, a := range attributes {
			if a.Attr.Type == unix.NFTA_GEN_ID {
				return binary.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, unix.ENODATA
}
