// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// lan is a network of machines: a bridge on this machine, and a network namespace on it for each of them.
type lan struct {
	t      *testing.T
	bridge netlink.Link
	// host is the address of this machine in the network.
	host string
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "kindred-lan"
	l := &lan{t: t, bridge: &netlink.Bridge{LinkAttrs: attrs}, host: "10.247.8.1"}
	if err := netlink.LinkAdd(l.bridge); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(l.bridge); err != nil {
			t.Error(err)
		}
	})
	if err := bringUp(handleAt(t, -1), attrs.Name, l.host+"/24"); err != nil {
		t.Fatal(err)
	}
	return l
}

// machine adds a machine to the network; each has another number.
func (l *lan) machine(number int) *otherMachine {
	l.t.Helper()
	name := fmt.Sprintf("kindred-lan-%d", number)
	m := &otherMachine{t: l.t, dir: filepath.Join(l.t.TempDir(), "data"), namespace: name, host: l.host, address: fmt.Sprintf("10.247.8.%d", 10+number)}
	there := namespace(l.t, name)
	linked(l.t, name, -1, there, "", m.address+"/24")
	link, err := netlink.LinkByName(name)
	if err := errors.Join(err, netlink.LinkSetMaster(link, l.bridge)); err != nil {
		l.t.Fatal(err)
	}
	route(l.t, there, "0.0.0.0/0", l.host)
	return m
}

// server starts "kindred up" on a machine of its own.
func (l *lan) server(number int, args ...string) *cluster {
	l.t.Helper()
	m := l.machine(number)
	return ownClusterUnder(l.t, []string{"nsenter", "--net=/run/netns/" + m.namespace}, append([]string{"--secure-port", "6443"}, args...)...)
}

// serverWithNode starts "kindred up" on a machine of its own, which is a node too.
func (l *lan) serverWithNode(number int, args ...string) *cluster {
	l.t.Helper()
	m := l.machine(number)
	c := ownClusterUnder(l.t, []string{"nsenter", "--net=/run/netns/" + m.namespace}, append([]string{"--secure-port", "6443"}, args...)...)
	m.dir = c.dir
	l.t.Cleanup(func() { // what the node has in the network namespace is removed there
		if c.running() {
			_ = c.signal(syscall.SIGTERM)
		}
		if r := m.run("reset"); r.code != 0 {
			l.t.Errorf("reset: %s", r.err)
		}
	})
	if err := c.loadImages(); err != nil {
		l.t.Fatal(err)
	}
	return c
}
