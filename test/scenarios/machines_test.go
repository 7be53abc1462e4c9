// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"cmp"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/kindred-project/kindred/test/servers"
)

// otherMachine is a network namespace that is connected with this machine as another machine would be, and a data directory.
type otherMachine struct {
	t   *testing.T
	dir string
	// namespace is the name of its network namespace, address its address, and host that of this machine for it.
	namespace, address, host string
	at                       netns.NsHandle
	// build is the program, if it is another one, and with the beginning of its command line there; usually none.
	build string
	with  []string
}

// namespace creates a network namespace with its loopback up.
func namespace(t *testing.T, name string) netns.NsHandle {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := netns.NewNamed(name)
	if err := errors.Join(err, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644), netns.Set(here)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(there.Close(), netns.DeleteNamed(name)); err != nil {
			t.Error(err)
		}
	})
	return there
}

// linked connects two namespaces: it creates an interface with an address in each. -1 is this machine's own namespace.
func linked(t *testing.T, name string, one, other netns.NsHandle, address, otherAddress string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if one >= 0 {
		attrs.Namespace = netlink.NsFd(int(one))
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(other))}); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	// The kernel removes the links of a deleted namespace later. A link of the same name could not be made until then.
	t.Cleanup(func() {
		if err := removeLink(handleAt(t, one), name); err != nil {
			t.Error(err)
		}
	})
	for _, end := range []struct {
		in            netns.NsHandle
		name, address string
	}{{one, name, address}, {other, "eth0", otherAddress}, {other, "lo", ""}} {
		if err := bringUp(handleAt(t, end.in), end.name, end.address); err != nil {
			t.Fatalf("%s: %v", end.name, err)
		}
	}
}

// removeLink does nothing if the link has been removed.
func removeLink(in *netlink.Handle, name string) error {
	link, err := in.LinkByName(name)
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		return nil
	}
	if err != nil {
		return err
	}
	return in.LinkDel(link)
}

func handleAt(t *testing.T, in netns.NsHandle) *netlink.Handle {
	t.Helper()
	if in < 0 {
		return &netlink.Handle{}
	}
	handle, err := netlink.NewHandleAt(in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(handle.Close)
	return handle
}

// newSecondMachine creates a machine that shares a link with this one.
func newSecondMachine(t *testing.T) *otherMachine {
	t.Helper()
	m := &otherMachine{t: t, dir: filepath.Join(t.TempDir(), "data"), namespace: "kindred-join", host: "10.247.9.1", address: "10.247.9.2"}
	there := namespace(t, m.namespace)
	linked(t, m.namespace, -1, there, m.host+"/30", m.address+"/30")
	route(t, there, "0.0.0.0/0", m.host)
	return m
}

// newRoutedMachine creates a machine behind a router.
func newRoutedMachine(t *testing.T) *otherMachine {
	t.Helper()
	m := &otherMachine{t: t, dir: filepath.Join(t.TempDir(), "data"), namespace: "kindred-behind", host: "10.247.9.5", address: "10.247.9.10"}
	router, there := namespace(t, "kindred-router"), namespace(t, m.namespace)
	linked(t, "kindred-router", -1, router, m.host+"/30", "10.247.9.6/30")
	linked(t, "behind", router, there, "10.247.9.9/30", m.address+"/30")
	route(t, -1, "10.247.9.8/30", "10.247.9.6")
	route(t, there, "0.0.0.0/0", "10.247.9.9")
	return m
}

// route adds a route by way of an address.
func route(t *testing.T, in netns.NsHandle, to, gateway string) {
	t.Helper()
	_, prefix, err := net.ParseCIDR(to)
	if err != nil {
		t.Fatal(err)
	}
	if err := handleAt(t, in).RouteAdd(&netlink.Route{Dst: prefix, Gw: net.ParseIP(gateway)}); err != nil {
		t.Fatalf("route to %s: %v", to, err)
	}
}

func bringUp(at *netlink.Handle, name, address string) error {
	link, err := at.LinkByName(name)
	if err != nil {
		return err
	}
	if address != "" {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := at.AddrAdd(link, parsed); err != nil {
			return err
		}
	}
	return at.LinkSetUp(link)
}

// command returns a command line of kindred on the machine.
func (m *otherMachine) command(args ...string) *exec.Cmd {
	line := append(append(m.inside(), cmp.Or(m.build, binary), "--data-dir", m.dir), args...)
	return exec.Command(line[0], line[1:]...)
}

// inside returns the beginning of a command line on the machine.
func (m *otherMachine) inside() []string {
	return append([]string{"nsenter", "--net=/run/netns/" + m.namespace}, m.with...)
}

func (m *otherMachine) run(args ...string) result { return runCommand(m.command(args...), "") }

// join runs "kindred join" until it prints that the node is ready.
func (m *otherMachine) join(args ...string) *process {
	m.t.Helper()
	p := m.begin(args...)
	m.await(p, "ready in ")
	return p
}

// begin starts "kindred join".
func (m *otherMachine) begin(args ...string) *process {
	m.t.Helper()
	args, err := servers.OnAnyDisk(filepath.Join(filepath.Dir(m.dir), "kubelet-config.yaml"), append([]string{"join"}, args...))
	if err != nil {
		m.t.Fatal(err)
	}
	p, err := startProcess(m.command(args...))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if m.t.Failed() {
			m.t.Logf("kindred join:\n%s", p.out)
		}
		select {
		case <-p.done:
		default:
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			<-p.done
		}
	})
	return p
}

// await waits until a "kindred join" has printed something.
func (m *otherMachine) await(p *process, text string) {
	m.t.Helper()
	deadline := time.After(startLimit)
	for !strings.Contains(p.out.String(), text) {
		select {
		case <-p.done:
			m.t.Fatalf("kindred join ended: %v\n%s", p.cmd.ProcessState, p.out)
		case <-deadline:
			m.t.Fatalf("kindred join has not printed %q after %v:\n%s", text, startLimit, p.out)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
