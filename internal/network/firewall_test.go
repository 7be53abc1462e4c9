// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kindred-project/kindred/test/netns"
)

// The commands of the remedy let packets of pods pass a firewall that drops them.
func TestFirewallsAreNamed(t *testing.T) {
	outside := netns.NewMachine(t, "outside", netip.MustParsePrefix("192.0.2.1/24"))
	outside.Serve(t, "outside", 80)
	bridge := netns.NewBridge(t, "kin-test", netip.MustParsePrefix("10.244.0.0/24"))
	pod := bridge.Pod(t)
	outside.Do(t, func() { command(t, "ip", "route", "replace", "10.244.0.0/24", "via", "192.0.2.2") })
	command(t, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
	reaches := func() error {
		_, err := pod.Ask(t, "tcp", "192.0.2.1:80", 500*time.Millisecond)
		return err
	}
	if err := reaches(); err != nil {
		t.Fatalf("without a firewall: %v", err)
	}
	harmless := `
table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; meta mark 0 accept; }; }
table inet accepts { chain forward { type filter hook forward priority 0; policy accept; }; chain forwards { }; }
table inet input { chain input { type filter hook input priority 0; policy drop; meta mark 0 accept; }; }
table bridge filter { chain forward { type filter hook forward priority 0; policy drop; meta mark 0 accept; }; }
`
	loadRules(t, harmless)
	if found, err := Firewalls(t.Context(), "kin-test"); err != nil || len(found) > 0 {
		t.Errorf("found %v, %v; want none", found, err)
	}
	loadRules(t, "table inet strict { chain transit { type filter hook forward priority 10; policy drop; }; }")
	if err := reaches(); err == nil {
		t.Fatal("the firewall drops nothing")
	}
	found, err := Firewalls(t.Context(), "kin-test")
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v; want one", found, err)
	}
	_, remedy, _ := strings.Cut(found[0].Remedy(), "to accept them: ")
	command(t, "sh", "-c", remedy)
	if err := reaches(); err != nil {
		t.Errorf("after %q: %v", remedy, err)
	}
}

func loadRules(t *testing.T, rules string) {
	t.Helper()
	load := exec.Command("nft", "-f", "-")
	load.Stdin = strings.NewReader(rules)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { command(t, "nft", "flush", "ruleset") })
}

func TestFirewallsOfBadOutput(t *testing.T) {
	if _, err := firewallsIn([]byte("Error: no rights"), "kd0"); err == nil {
		t.Error("no error")
	}
}
