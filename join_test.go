// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestInvitation(t *testing.T) {
	for name, test := range map[string]struct {
		options JoinOptions
		fails   string
	}{
		"nothing":       {JoinOptions{}, ""},
		"all":           {JoinOptions{Server: "https://10.0.0.1:6443/", Token: "t", CAHash: "h"}, ""},
		"a new address": {JoinOptions{Server: "https://10.0.0.1:6443"}, ""},
		"waits":         {JoinOptions{Server: "https://10.0.0.1:6443", Token: "t", CAHash: "h", Wait: time.Minute}, ""},
		"waits below 0": {JoinOptions{Server: "https://10.0.0.1:6443", Token: "t", CAHash: "h", Wait: -time.Minute}, "is negative"},
		"no hash":       {JoinOptions{Server: "https://10.0.0.1:6443", Token: "t"}, "together"},
		"no token":      {JoinOptions{Server: "https://10.0.0.1:6443", CAHash: "h"}, "together"},
		"no server":     {JoinOptions{Token: "t", CAHash: "h"}, "no server"},
		"no scheme":     {JoinOptions{Server: "10.0.0.1:6443"}, "is not a URL"},
		"HTTP":          {JoinOptions{Server: "http://10.0.0.1:6443"}, "is not a URL"},
	} {
		i, err := test.options.invitation()
		if test.fails == "" {
			if err != nil || strings.HasSuffix(i.Server, "/") || i.Wait != test.options.Wait {
				t.Errorf("%s: %+v, %v", name, i, err)
			}
			continue
		}
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: %v, want %q", name, err, test.fails)
		}
	}
}

func TestNodeIPs(t *testing.T) {
	for _, test := range []struct {
		given, bind string
		want        []string
		fails       string
	}{
		{"", "127.0.0.1", nil, ""},
		{"", "0.0.0.0", nil, ""},
		{"", "::", nil, ""},
		{"", "10.0.0.1", []string{"10.0.0.1"}, ""},
		{"", "fd00::1", []string{"fd00::1"}, ""},
		{"10.0.0.2", "0.0.0.0", []string{"10.0.0.2"}, ""},
		{"10.0.0.2,fd00::2", "10.0.0.1", []string{"10.0.0.2", "fd00::2"}, ""},
		{"10.0.0.2,10.0.0.3", "10.0.0.1", nil, "at most one"},
		{"10.0.0.2,fd00::2,fd00::3", "10.0.0.1", nil, "at most one"},
		{"host", "10.0.0.1", nil, `"host" is not an IP address`},
	} {
		got, err := Options{NodeIP: test.given}.nodeIPs(net.ParseIP(test.bind))
		if test.fails != "" {
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), test.fails) {
				t.Errorf("%+v: %v", test, err)
			}
			continue
		}
		var want []netip.Addr
		for _, a := range test.want {
			want = append(want, netip.MustParseAddr(a))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v: %v, %v", test, got, err)
		}
	}
}
