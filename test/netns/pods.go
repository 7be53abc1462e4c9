// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Bridge is a bridge in the namespace of the test, with an address of each of its ranges.
type Bridge struct {
	Name     string
	Gateways []netip.Addr
	ranges   []netip.Prefix
	link     netlink.Link
	pods     int
}

// Pod is a network namespace that is attached to a bridge, or to a veth pair of its own.
type Pod struct {
	// Addresses has an address for each range.
	Addresses []netip.Addr
	ns        netns.NsHandle
}

// NewBridge creates a bridge with pods' ranges, and makes the namespace of the test forward packets, also between
// ports of the bridge through its filters.
func NewBridge(t *testing.T, name string, ranges ...netip.Prefix) *Bridge {
	t.Helper()
	Required(t)
	for file, value := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward":          "1",
		"/proc/sys/net/ipv6/conf/all/forwarding": "1",
		// A bridge resolves no IPv6 neighbour while its own address is tentative.
		"/proc/sys/net/ipv6/conf/default/dad_transmits": "0",
		"/proc/sys/net/bridge/bridge-nf-call-iptables":  "1",
		"/proc/sys/net/bridge/bridge-nf-call-ip6tables": "1",
	} {
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	b := &Bridge{Name: name, ranges: ranges}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	b.link = &netlink.Bridge{LinkAttrs: attrs}
	must(t, netlink.LinkAdd(b.link))
	t.Cleanup(func() { must(t, netlink.LinkDel(b.link)) })
	for _, r := range ranges {
		gateway := r.Addr().Next()
		addAddress(t, b.link, netip.PrefixFrom(gateway, r.Bits()))
		b.Gateways = append(b.Gateways, gateway)
	}
	must(t, netlink.LinkSetUp(b.link))
	return b
}

// Pod creates a pod on the bridge, with the next address of each range.
func (b *Bridge) Pod(t *testing.T) *Pod {
	t.Helper()
	b.pods++
	name := fmt.Sprintf("%s-%d", b.Name, b.pods)
	host, p := newPod(t, name)
	must(t, netlink.LinkSetMaster(host, b.link))
	must(t, netlink.LinkSetHairpin(host, true))
	for i, r := range b.ranges {
		address := b.Gateways[i]
		for range b.pods {
			address = address.Next()
		}
		p.configure(t, netip.PrefixFrom(address, r.Bits()), b.Gateways[i])
		p.Addresses = append(p.Addresses, address)
	}
	p.awaitUp(t, name)
	return p
}

// awaitUp waits until both ends of the pod's link are operational. Before that, they drop packets, and a bridge does
// not forward to the port.
func (p *Pod) awaitUp(t *testing.T, name string) {
	t.Helper()
	awaitUp(t, name)
	p.Do(t, func() { awaitUp(t, "eth0") })
}

func awaitUp(t *testing.T, name string) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		link, err := netlink.LinkByName(name)
		must(t, err)
		if link.Attrs().OperState == netlink.OperUp {
			return
		}
	}
	t.Fatalf("the link %s does not become operational", name)
}

// NewMachine creates a namespace that is not on the bridge: another machine on a network with this one, which has
// the address next to the prefix's.
func NewMachine(t *testing.T, name string, address netip.Prefix) *Pod {
	t.Helper()
	Required(t)
	host, p := newPod(t, name)
	gateway := address.Addr().Next()
	addAddress(t, host, netip.PrefixFrom(gateway, address.Bits()))
	p.configure(t, address, gateway)
	p.Addresses = []netip.Addr{address.Addr()}
	p.awaitUp(t, name)
	return p
}

// newPod creates a namespace with a veth pair: eth0 in it, and the other end with the given name.
func newPod(t *testing.T, name string) (netlink.Link, *Pod) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	must(t, err)
	defer here.Close()
	ns, err := netns.New()
	must(t, err)
	must(t, netns.Set(here))
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(ns))}))
	host, err := netlink.LinkByName(name)
	must(t, err)
	must(t, netlink.LinkSetUp(host))
	p := &Pod{ns: ns}
	p.Do(t, func() {
		for _, link := range []string{"lo", "eth0"} {
			l, err := netlink.LinkByName(link)
			must(t, err)
			must(t, netlink.LinkSetUp(l))
		}
	})
	t.Cleanup(func() {
		_ = netlink.LinkDel(host) // gone if the namespace is
		must(t, ns.Close())
	})
	return host, p
}

// configure gives eth0 an address and a default route.
func (p *Pod) configure(t *testing.T, address netip.Prefix, gateway netip.Addr) {
	t.Helper()
	p.Do(t, func() {
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		addAddress(t, link, address)
		must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IP(gateway.AsSlice())}))
	})
}

func addAddress(t *testing.T, link netlink.Link, address netip.Prefix) {
	t.Helper()
	ip := &net.IPNet{IP: net.IP(address.Addr().AsSlice()), Mask: net.CIDRMask(address.Bits(), address.Addr().BitLen())}
	a := &netlink.Addr{IPNet: ip}
	if address.Addr().Is6() {
		a.Flags = noDAD
	}
	must(t, netlink.AddrAdd(link, a))
}

// noDAD is IFA_F_NODAD: an IPv6 address is usable at once.
const noDAD = 0x02

// Do runs a function in the pod's namespace, or in the test's own if the pod is nil. Sockets that it opens stay there.
// The function must not start goroutines that open sockets.
func (p *Pod) Do(t *testing.T, do func()) {
	t.Helper()
	if p == nil {
		do()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	must(t, err)
	defer here.Close()
	must(t, netns.Set(p.ns))
	defer func() { must(t, netns.Set(here)) }()
	do()
}

// Serve answers each TCP connection and each UDP packet to a port with the name and the client's address,
// separated by a space, until the test ends.
func (p *Pod) Serve(t *testing.T, name string, port int) {
	t.Helper()
	p.ServeAt(t, name, fmt.Sprintf(":%d", port))
}

// ServeAt is Serve on one address. Answers of UDP have that address in any case.
func (p *Pod) ServeAt(t *testing.T, name, address string) {
	t.Helper()
	tcp, udp := p.listen(t, address)
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "%s %s", name, host(conn.RemoteAddr()))
			_ = conn.Close()
		}
	}()
	go func() {
		buffer := make([]byte, 16)
		for {
			_, from, err := udp.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(fmt.Appendf(nil, "%s %s", name, host(from)), from)
		}
	}()
}

// listen opens an address for TCP and UDP until the test ends.
func (p *Pod) listen(t *testing.T, address string) (tcp net.Listener, udp net.PacketConn) {
	t.Helper()
	p.Do(t, func() {
		var config net.ListenConfig
		var err error
		tcp, err = config.Listen(context.Background(), "tcp", address)
		must(t, err)
		udp, err = config.ListenPacket(context.Background(), "udp", address)
		must(t, err)
	})
	t.Cleanup(func() { _, _ = tcp.Close(), udp.Close() })
	return tcp, udp
}

// Echo sends back what it receives on ports, by TCP and UDP, until the test ends.
func (p *Pod) Echo(t *testing.T, ports ...int) {
	t.Helper()
	for _, port := range ports {
		tcp, udp := p.listen(t, fmt.Sprintf(":%d", port))
		go echoStreams(tcp)
		go echoPackets(udp)
	}
}

func echoStreams(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

func echoPackets(l net.PacketConn) {
	buffer := make([]byte, 128)
	for {
		n, from, err := l.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = l.WriteTo(buffer[:n], from)
	}
}

// Dial connects to an address from the pod, or from the test's own namespace if the pod is nil.
func (p *Pod) Dial(t *testing.T, network, address string, timeout time.Duration) (conn net.Conn, err error) {
	t.Helper()
	p.Do(t, func() { conn, err = (&net.Dialer{Timeout: timeout}).Dial(network, address) })
	return conn, err
}

// Ask connects to an address that Serve may answer, from the pod, or from the test's own namespace if the pod is
// nil, and returns the answer.
func (p *Pod) Ask(t *testing.T, network, address string, timeout time.Duration) (string, error) {
	t.Helper()
	conn, err := p.Dial(t, network, address, timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(timeout)))
	if network == "udp" {
		if _, err := conn.Write([]byte("x")); err != nil {
			return "", err
		}
	}
	buffer := make([]byte, 128)
	n, err := conn.Read(buffer)
	return string(buffer[:n]), err
}

// UDPErrors returns the kernel's counters of the pod's UDP packets: NoPorts are those that the pod refused, because it has no
// socket for them.
func (p *Pod) UDPErrors(t *testing.T) string {
	t.Helper()
	var all []byte
	p.Do(t, func() {
		var err error
		all, err = os.ReadFile("/proc/thread-self/net/snmp")
		must(t, err)
	})
	var lines []string
	for line := range strings.Lines(string(all)) {
		if strings.HasPrefix(line, "Udp: ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}

func host(address net.Addr) string {
	ip, _, _ := net.SplitHostPort(address.String())
	return ip
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Route sends packets to a prefix out through an interface of the current namespace.
func Route(prefix, link string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	_, dst, err := net.ParseCIDR(prefix)
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst})
}
