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
	// build is the program of the machines, if it is another one, and clocks a directory with the clock of each.
	build, clocks string
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
	m := l.unconnected(number)
	linked(l.t, m.namespace, -1, m.at, "", m.address+"/24")
	l.connect(m)
	return m
}

func (l *lan) unconnected(number int) *otherMachine {
	l.t.Helper()
	m := &otherMachine{t: l.t, dir: filepath.Join(l.t.TempDir(), "data"), namespace: port(number), host: l.host, address: l.address(number)}
	m.at = namespace(l.t, m.namespace)
	if m.build = l.build; l.clocks != "" {
		m.with = []string{"env", clockVariable + "=" + l.clock(number)}
	}
	return m
}

// address is that of a machine.
func (l *lan) address(number int) string { return fmt.Sprintf("10.247.8.%d", 10+number) }

// port is the bridge's link to a machine.
func port(number int) string { return fmt.Sprintf("kindred-lan-%d", number) }

// connect adds a machine's link to the bridge.
func (l *lan) connect(m *otherMachine) {
	l.t.Helper()
	link, err := netlink.LinkByName(m.namespace)
	if err := errors.Join(err, netlink.LinkSetMaster(link, l.bridge)); err != nil {
		l.t.Fatal(err)
	}
	route(l.t, m.at, "0.0.0.0/0", l.host)
}

// server starts "kindred up" on a machine of its own.
func (l *lan) server(number int, args ...string) *cluster {
	l.t.Helper()
	return l.machine(number).serve(stoppedCluster(l.t, ""), args...)
}

// serve starts "kindred up" on the machine.
func (m *otherMachine) serve(c *cluster, args ...string) *cluster {
	m.t.Helper()
	c.under, c.build = m.inside(), m.build
	c.mustStart(m.t, append([]string{"--secure-port", "6443"}, args...)...)
	return c
}

// serverWithNode starts "kindred up" on a machine of its own, which is a node too.
func (l *lan) serverWithNode(number int, args ...string) *cluster {
	l.t.Helper()
	m, c := l.machine(number), stoppedCluster(l.t, "")
	m.dir = c.dir
	return m.serveWithNode(c, args...)
}

// serveWithNode is serve for a machine that is a node too.
func (m *otherMachine) serveWithNode(c *cluster, args ...string) *cluster {
	m.t.Helper()
	m.serve(c, args...)
	m.t.Cleanup(func() { // what the node has in the network namespace is removed there
		if c.running() {
			_ = c.signal(syscall.SIGTERM)
		}
		if r := m.run("reset"); r.code != 0 {
			m.t.Errorf("reset: %s", r.err)
		}
	})
	if err := c.loadImages(); err != nil {
		m.t.Fatal(err)
	}
	return c
}
