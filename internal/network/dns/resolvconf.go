// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"net/netip"
	"os"
	"slices"

	"github.com/miekg/dns"
)

// ResolvConf returns the file with the resolvers of a machine: usual, or the one of systemd-resolved, if
// usual names only its address on loopback, which no pod can reach.
func ResolvConf(usual, systemd string) string {
	conf, err := dns.ClientConfigFromFile(usual)
	if err != nil || len(conf.Servers) == 0 || slices.ContainsFunc(conf.Servers, isElsewhere) {
		return usual
	}
	if _, err := os.Stat(systemd); err != nil {
		return usual
	}
	return systemd
}

func isElsewhere(server string) bool {
	address, err := netip.ParseAddr(server)
	return err != nil || !address.IsLoopback()
}
