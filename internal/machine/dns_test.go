// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"net/netip"
	"testing"
)

func TestServiceIP(t *testing.T) {
	for cidr, want := range map[string]string{
		"10.96.0.0/16": "10.96.0.10", "10.96.0.0/28": "10.96.0.10", "10.96.0.0/29": "invalid IP", "fd00::/112": "fd00::a",
	} {
		if got := serviceIP(netip.MustParsePrefix(cidr), dnsIndex); got.String() != want {
			t.Errorf("%s: %v, want %s", cidr, got, want)
		}
	}
}
