// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/binary"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// watched detects transactions of other programs by the generation of the kernel's rules, a number that each
// transaction increases. Asking for it is cheap, listing the rules is not.
type watched struct {
	// generation is the last one of which all rules are known to be intact; known is false if there is none.
	generation uint32
	known      bool
}

// during runs a function that makes transactions, and returns how many. Unless there were others, since the rules were last
// known to be intact or while it ran, the rules are known to be intact afterwards.
func (w *watched) during(write func() (transactions uint32)) {
	intact := !w.changedByOthers()
	own := write()
	if now, err := generation(); err == nil && intact && now-w.generation == own {
		w.generation = now
	}
}

// changedByOthers reports whether there may have been a transaction of another program since the rules were last known
// to be intact.
func (w *watched) changedByOthers() bool {
	now, err := generation()
	return err != nil || !w.known || now != w.generation
}

// check runs a function that examines the rules, and remembers that they are intact if it reports that.
func (w *watched) check(intact func() bool) {
	before, err := generation()
	w.known = intact() && err == nil
	w.generation = before
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

// legacyTables reports whether iptables-legacy has tables, whose changes are no transactions of nftables. The kernel creates
// a table when a program first lists or changes its rules.
func legacyTables() bool {
	for _, file := range []string{"/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"} {
		// Without the kernel module, there is no file.
		if names, err := os.ReadFile(file); err == nil && len(names) > 0 {
			return true
		}
	}
	return false
}
