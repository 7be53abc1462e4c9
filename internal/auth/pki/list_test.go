// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"net"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// TestDiscard: all certificates are listed; those that were issued are discarded, and what uses them has new ones after a renewal.
// Authorities and the key of service accounts stay.
func TestDiscard(t *testing.T) {
	dir, now := t.TempDir(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	keys, err := Open(dir, clocktesting.NewFakeClock(now))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := keys.Keep(keys.Admin, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.APIServer(Names{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}); err != nil {
		t.Fatal(err)
	}
	all, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
		if c.Authority != (c.Subject == c.Issuer) || !c.Expires.After(now.Add(300*24*time.Hour)) {
			t.Errorf("listed %+v", c)
		}
	}
	if !slices.Equal(names, []string{"ca", "front-proxy-ca", "admin", "apiserver"}) {
		t.Errorf("listed %v", names)
	}
	before, authority := admin.Pair().CertPEM, keys.Cluster.CertPEM
	discarded, err := Discard(dir)
	if err != nil || !slices.Equal(discarded, []string{"admin", "apiserver"}) {
		t.Errorf("discarded %v, %v", discarded, err)
	}
	if err := keys.Renew(); err != nil {
		t.Fatal(err)
	}
	if slices.Equal(before, admin.Pair().CertPEM) {
		t.Error("the certificate in use is the same after it was discarded and renewed")
	}
	again, err := Open(dir, clocktesting.NewFakeClock(now))
	if err != nil || !slices.Equal(again.Cluster.CertPEM, authority) || !again.ServiceAccountKey.Equal(keys.ServiceAccountKey) {
		t.Errorf("an authority or a key has changed: %v", err)
	}
}
