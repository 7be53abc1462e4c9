// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/kindred-project/kindred/internal/links"
	"github.com/kindred-project/kindred/test/netns"
)

// newSealed is a machine with WireGuard, which wireguard-go provides on a kernel without it.
func newSealed(t *testing.T, program, name string, network, pods, pods6 netip.Prefix) *tunnelled {
	t.Helper()
	m := newTunnelled(t, name, network, pods, pods6)
	m.stopWireguardGo = func() {}
	t.Cleanup(func() { m.stopWireguardGo() })
	key, err := LoadWireGuardKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	m.routes.wireguard.key, m.routes.wireguard.own = key, m.address
	m.routes.wireguard.ranges = []netip.Prefix{pods, pods6}
	m.wireguardGo(t, program)
	return m
}

// wireguardGo creates the interface of a machine as a process, in place of the one before.
func (m *tunnelled) wireguardGo(t *testing.T, program string) {
	t.Helper()
	m.stopWireguardGo()
	socket := filepath.Join("/var/run/wireguard", m.routes.wireguard.link+".sock")
	_ = os.Remove(socket) // that of the process before
	cmd := exec.Command(program, "--foreground", m.routes.wireguard.link)
	m.Do(t, func() {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	})
	m.stopWireguardGo = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for range 200 {
		if _, err := os.Stat(socket); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s does not serve %s", program, socket)
}

func (m *tunnelled) sealedEnd() sealedEnd {
	return sealedEnd{m.address, m.routes.wireguard.key.PublicKey()}
}

// seal restores the encrypted routes to other machines.
func (m *tunnelled) seal(t *testing.T, wantRestored bool, others ...*tunnelled) {
	t.Helper()
	wanted := map[netip.Prefix]hop{}
	for _, other := range others {
		for _, p := range []netip.Prefix{other.pods, other.pods6} {
			wanted[p] = hop{address: other.address, end: other.end(), sealed: true, sealedEnd: other.sealedEnd()}
		}
	}
	m.routes.set(wanted)
	m.Do(t, func() {
		if restored, err := m.routes.ensure(); err != nil || restored != wantRestored {
			t.Errorf("%s: restored %v, %v", m.pods, restored, err)
		}
	})
}

// restoreSealed restores the encrypted routes after the interface was deleted. On a kernel without WireGuard, an error asks for
// wireguard-go, whose next interface is used.
func (m *tunnelled) restoreSealed(t *testing.T, program string, other *tunnelled) {
	t.Helper()
	var restored bool
	var err error
	m.Do(t, func() { restored, err = m.routes.ensure() })
	if errors.Is(err, unix.EOPNOTSUPP) {
		if want := "wireguard-go " + m.routes.wireguard.link; !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
		m.wireguardGo(t, program)
		m.seal(t, true, other)
		return
	}
	if err != nil || !restored {
		t.Errorf("restored %v, %v", restored, err)
	}
}

// TestWireGuard: pods reach each other encrypted, also after somebody has deleted a part of the way, and not with another key.
func TestWireGuard(t *testing.T) {
	program := filepath.Join(t.TempDir(), "wireguard-go")
	if out, err := netns.Outside("go", "build", "-o", program, "golang.zx2c4.com/wireguard").CombinedOutput(); err != nil {
		t.Fatalf("building wireguard-go: %v\n%s", err, out)
	}
	netns.NewBridge(t, "kin-router", netip.MustParsePrefix("10.99.0.0/24"))
	left := newSealed(t, program, "wl", netip.MustParsePrefix("192.0.2.7/24"), netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:1::/64"))
	right := newSealed(t, program, "wr", netip.MustParsePrefix("198.51.100.7/24"), netip.MustParsePrefix("10.244.2.0/24"), netip.MustParsePrefix("fd00:10:244:2::/64"))
	right.Serve(t, "right", 80)
	ask := func(p netip.Prefix) error {
		_, err := left.Ask(t, "tcp", netip.AddrPortFrom(p.Addr().Next(), 80).String(), time.Second)
		return err
	}
	reaches := func(when string) {
		t.Helper()
		for _, p := range []netip.Prefix{right.pods, right.pods6} {
			var err error
			for range 10 {
				if err = ask(p); err == nil {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if err != nil {
				t.Errorf("%s: %s: %v", when, p, err)
			}
		}
	}
	left.seal(t, true, right)
	right.seal(t, true, left)
	reaches("at first")
	left.seal(t, false, right)
	for what, remove := range map[string]func(netlink.Link) error{
		"down":          netlink.LinkSetDown,
		"the addresses": left.deleteEnds,
		"another MTU":   func(link netlink.Link) error { return netlink.LinkSetMTU(link, 1200) },
		"the route": func(netlink.Link) error {
			return netlink.RouteDel(&netlink.Route{Dst: ipNet(right.pods), Scope: netlink.SCOPE_LINK})
		},
	} {
		left.Do(t, func() {
			link, err := netlink.LinkByName(left.routes.wireguard.link)
			if err == nil {
				err = remove(link)
			}
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		})
		left.seal(t, true, right)
		reaches(what + " is restored")
		left.hasEnds(t, what, left.routes.wireguard.link)
	}
	left.Do(t, func() {
		link, err := netlink.LinkByName(left.routes.wireguard.link)
		if err != nil || link.Attrs().MTU != 1500-wireguardOverhead {
			t.Errorf("the interface: %+v, %v", link, err)
		}
	})

	left.Do(t, func() {
		if err := links.Remove(left.routes.wireguard.link); err != nil {
			t.Fatal(err)
		}
	})
	left.restoreSealed(t, program, right)
	reaches("the interface is restored")

	left.setUnderlayMTU(t, 1300) // which leaves too little for IPv6
	for range 2 {
		left.Do(t, func() {
			if _, err := left.routes.ensure(); err == nil {
				t.Error("no error without IPv6")
			}
		})
		if err := ask(right.pods); err != nil {
			t.Errorf("without IPv6: %v", err)
		}
	}
	left.setUnderlayMTU(t, 1500)
	left.seal(t, true, right)
	reaches("there is enough for IPv6")

	stranger, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	known := right.routes.wireguard.key
	right.routes.wireguard.key = &stranger
	right.seal(t, false, left)
	if err := ask(right.pods); err == nil {
		t.Error("a machine with another key answers")
	}
	right.routes.wireguard.key = known
	right.seal(t, false, left)
	reaches("the key is back")

	left.seal(t, false)
	if err := ask(right.pods); err == nil {
		t.Error("a machine that is no peer answers")
	}
	left.seal(t, true, right)
	reaches("it is a peer again")
	left.routes.wireguard.key = nil
	left.seal(t, false)
	left.Do(t, func() {
		if link, err := netlink.LinkByName(left.routes.wireguard.link); err == nil {
			t.Errorf("%v is left on a machine that does not encrypt", link)
		}
	})
}

// TestSealedPodsAreNotReachedInClear: without a key there is no route, and an error says why.
func TestSealedPodsAreNotReachedInClear(t *testing.T) {
	netns.NewMachine(t, "outside", netip.MustParsePrefix("192.0.2.1/24"))
	r := newPodRoutes("kin-this")
	pods, other := netip.MustParsePrefix("10.244.2.0/24"), netip.MustParseAddr("192.0.2.1")
	r.set(map[netip.Prefix]hop{pods: {address: other, sealed: true, end: tunnelEnd{other, pods}}})
	if _, err := r.ensure(); err == nil || !strings.Contains(err.Error(), "--pod-network wireguard") {
		t.Errorf("got the error %v", err)
	}
	if present, err := r.present(); err != nil || len(present) > 0 {
		t.Errorf("there are routes %v, %v", present, err)
	}
}

func TestLoadWireGuardKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	first, err := LoadWireGuardKey(file)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := LoadWireGuardKey(file); err != nil || *again != *first {
		t.Errorf("the key changes: %v", err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	if err := os.WriteFile(file, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := LoadWireGuardKey(file); err == nil {
		t.Errorf("a damaged file gives %v", key)
	}
}

func TestChangedPeers(t *testing.T) {
	keys := make([]wgtypes.Key, 3)
	for i := range keys {
		keys[i][0] = byte(i + 1)
	}
	range4, range6 := netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:1::/64")
	machine, moved := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	present := func(nodes map[netip.Prefix]sealedEnd) []wgtypes.Peer {
		var all []wgtypes.Peer
		for _, p := range peersOf(nodes) {
			all = append(all, wgtypes.Peer{PublicKey: p.PublicKey, Endpoint: p.Endpoint, AllowedIPs: p.AllowedIPs})
		}
		return all
	}
	both := map[netip.Prefix]sealedEnd{range4: {machine, keys[0]}, range6: {machine, keys[0]}}
	for _, test := range []struct {
		name            string
		present, wanted map[netip.Prefix]sealedEnd
		set, removed    []wgtypes.Key
	}{
		{name: "none"},
		{name: "new", wanted: both, set: keys[:1]},
		{name: "as before", present: both, wanted: both},
		{name: "gone", present: both, removed: keys[:1]},
		{name: "another range", present: both, wanted: map[netip.Prefix]sealedEnd{range4: {machine, keys[0]}}, set: keys[:1]},
		{name: "another address", present: both, wanted: map[netip.Prefix]sealedEnd{range4: {moved, keys[0]}, range6: {moved, keys[0]}}, set: keys[:1]},
		{name: "another key", present: both, wanted: map[netip.Prefix]sealedEnd{range4: {machine, keys[1]}, range6: {machine, keys[1]}}, set: keys[1:2], removed: keys[:1]},
	} {
		var set, removed []wgtypes.Key
		for _, change := range changedPeers(present(test.present), peersOf(test.wanted)) {
			if change.Remove {
				removed = append(removed, change.PublicKey)
			} else {
				set = append(set, change.PublicKey)
			}
		}
		if diff := cmp.Diff([][]wgtypes.Key{test.set, test.removed}, [][]wgtypes.Key{set, removed}); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", test.name, diff)
		}
	}
}
