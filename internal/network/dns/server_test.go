// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/clock"
)

// serve runs a server on a free port of loopback.
func serve(t testing.TB, s *Server) netip.AddrPort {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	sockets, err := listenOn(ctx, netip.MustParseAddr("127.0.0.1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Serve(ctx, sockets); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return sockets.Address()
}

// crowd has a headless Service whose answer does not fit into 512 bytes.
func crowd(t testing.TB) *Server {
	big := service("shop", "big", []string{"None"})
	var endpoints []discoveryv1.Endpoint
	for i := range 100 {
		endpoints = append(endpoints, endpoint(fmt.Sprintf("big-%d", i), nil, fmt.Sprintf("10.244.1.%d", i)))
	}
	return newServer(t, clock.RealClock{}, nil, append(town(), big, slice(big, "big-1", []discoveryv1.EndpointPort{endpointPort("http", 80)}, endpoints...))...)
}

func TestServe(t *testing.T) {
	address := serve(t, crowd(t)).String()
	for _, test := range []struct {
		name, network string
		size          uint16
		request       *dns.Msg
		answers       int
		truncated     bool
	}{
		{"UDP", "udp", 0, query("web.shop.svc.cluster.local.", "A"), 1, false},
		{"UDP, too large", "udp", 0, query("big.shop.svc.cluster.local.", "A"), 0, true},
		{"UDP with EDNS", "udp", 4096, query("big.shop.svc.cluster.local.", "A"), 100, false},
		{"UDP with EDNS, too large", "udp", 1232, query("big.shop.svc.cluster.local.", "A"), 0, true},
		{"TCP", "tcp", 0, query("big.shop.svc.cluster.local.", "A"), 100, false},
		{"TCP, SRV", "tcp", 0, query("big.shop.svc.cluster.local.", "SRV"), 100, false},
		{"nonsense", "udp", 0, new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", 65280), 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.size > 0 {
				test.request.SetEdns0(test.size, true)
			}
			client := dns.Client{Net: test.network, UDPSize: 4096, Timeout: 5 * time.Second}
			reply, _, err := client.Exchange(test.request, address)
			if err != nil {
				t.Fatal(err)
			}
			if reply.Truncated != test.truncated || !test.truncated && len(reply.Answer) != test.answers || test.truncated && len(reply.Answer) == 0 {
				t.Errorf("%d answers, truncated %v", len(reply.Answer), reply.Truncated)
			}
			reply.Compress = true
			if limit := max(int(test.size), dns.MinMsgSize); test.network == "udp" && reply.Len() > limit {
				t.Errorf("%d bytes", reply.Len())
			}
			options := reply.IsEdns0()
			if (options != nil) != (test.size > 0) || options != nil && (options.UDPSize() != udpSize || !options.Do()) {
				t.Errorf("EDNS options %v", options)
			}
		})
	}
}

// TestExtraGoesFirst: addresses that do not fit beside SRV records are left out, which is no truncation.
func TestExtraGoesFirst(t *testing.T) {
	s := crowd(t)
	request := query("_http._tcp.big.shop.svc.cluster.local.", "SRV").SetEdns0(6000, false)
	reply := s.reply(t.Context(), request)
	if len(reply.Extra) != 100 {
		t.Fatalf("%d addresses", len(reply.Extra))
	}
	fit(reply, request, true)
	if reply.Truncated || len(reply.Answer) != 100 || len(reply.Extra) != 1 || reply.IsEdns0() == nil || reply.Len() > 6000 {
		t.Errorf("truncated %v, %d answers, %d more, %d bytes", reply.Truncated, len(reply.Answer), len(reply.Extra), reply.Len())
	}
}

func TestRefused(t *testing.T) {
	s := crowd(t)
	chaos := query("version.bind.", "TXT")
	chaos.Question[0].Qclass = dns.ClassCHAOS
	version := query("web.shop.svc.cluster.local.", "A").SetEdns0(1232, false)
	version.IsEdns0().SetVersion(1)
	notify := query("cluster.local.", "SOA")
	notify.Opcode = dns.OpcodeNotify
	for name, test := range map[string]struct {
		request *dns.Msg
		want    int
	}{
		"another class":        {chaos, dns.RcodeRefused},
		"zone transfer":        {query("cluster.local.", "AXFR"), dns.RcodeRefused},
		"version of EDNS":      {version, dns.RcodeBadVers},
		"another opcode":       {notify, dns.RcodeNotImplemented},
		"without any question": {new(dns.Msg), dns.RcodeNotImplemented},
	} {
		reply := s.reply(t.Context(), test.request)
		fit(reply, test.request, true)
		if _, err := reply.Pack(); reply.Rcode != test.want || err != nil {
			t.Errorf("%s: %s, %v", name, dns.RcodeToString[reply.Rcode], err)
		}
	}
}

// TestBadPackets: the server answers after packets that it cannot read, on both sockets.
func TestBadPackets(t *testing.T) {
	address := serve(t, crowd(t)).String()
	good, err := query("web.shop.svc.cluster.local.", "A").Pack()
	if err != nil {
		t.Fatal(err)
	}
	oversized := append(slices.Clone(good), make([]byte, 60000)...)
	cut := good[:len(good)-5]
	loop := append(slices.Clone(good[:12]), 0xc0, 12, 0, 1, 0, 1) // a name that points to itself
	response := slices.Clone(good)
	response[2] |= 0x80
	for _, network := range []string{"udp", "tcp"} {
		for _, packet := range [][]byte{{}, {1}, good[:11], cut, loop, response, oversized, make([]byte, 12)} {
			conn, err := net.Dial(network, address)
			if err != nil {
				t.Fatal(err)
			}
			if network == "tcp" {
				packet = append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
			}
			if _, err := conn.Write(packet); err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
		}
		client := dns.Client{Net: network, Timeout: 5 * time.Second}
		if reply, _, err := client.Exchange(query("web.shop.svc.cluster.local.", "A"), address); err != nil || len(reply.Answer) != 1 {
			t.Errorf("%s: %v, %v", network, reply, err)
		}
	}
}

// TestListen: if port 53 is taken, the sockets are on another one, both on the same.
func TestListen(t *testing.T) {
	address := netip.MustParseAddr("127.0.3.8")
	usual := netip.AddrPortFrom(address, Port)
	first, err := Listen(t.Context(), usual)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Listen(t.Context(), usual)
	if err != nil {
		t.Fatal(err)
	}
	for _, sockets := range []Sockets{first, second} {
		if port := sockets.TCP.Addr().(*net.TCPAddr).Port; port != int(sockets.Address().Port()) || sockets.Address().Addr() != address {
			t.Errorf("UDP on %v, TCP on port %d", sockets.Address(), port)
		}
		sockets.Close()
	}
	if second.Address().Port() == Port || first.Address() == second.Address() {
		t.Errorf("%v and %v", first.Address(), second.Address())
	}
	if _, err := Listen(t.Context(), netip.MustParseAddrPort("192.0.2.1:53")); err == nil {
		t.Error("listens on an address that this machine does not have")
	}
}

// TestServeStops: open connections do not delay the end.
func TestServeStops(t *testing.T) {
	s := crowd(t)
	ctx, stop := context.WithCancel(t.Context())
	sockets, err := listenOn(ctx, netip.MustParseAddr("127.0.0.1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, sockets) }()
	conn, err := net.Dial("tcp", sockets.Address().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := dns.Client{Timeout: 5 * time.Second}
	if _, _, err := client.Exchange(query("web.shop.svc.cluster.local.", "A"), sockets.Address().String()); err != nil {
		t.Fatal(err)
	}
	stop()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-clock.RealClock{}.After(5 * time.Second):
		t.Error("still runs")
	}
}

// packetWriter keeps what is written to a client.
type packetWriter struct {
	dns.ResponseWriter
	udp   bool
	reply *dns.Msg
}

func (w *packetWriter) RemoteAddr() net.Addr {
	if w.udp {
		return &net.UDPAddr{}
	}
	return &net.TCPAddr{}
}

func (w *packetWriter) WriteMsg(m *dns.Msg) error { w.reply = m; return nil }

// FuzzRespond: each packet that can be read gets one answer that can be written, of a size that the client
// takes.
func FuzzRespond(f *testing.F) {
	s := crowd(f)
	for _, m := range []*dns.Msg{
		query("web.shop.svc.cluster.local.", "A"), query("big.shop.svc.cluster.local.", "SRV"), query("5.0.244.10.in-addr.arpa.", "PTR"),
		query("self.shop.svc.cluster.local.", "A"), query("one.test.", "AAAA").SetEdns0(512, true), query(".", "NS"),
		query(`a\.b.shop.svc.cluster.local.`, "A"), query("fd00--5.shop.pod.cluster.local.", "AAAA"),
	} {
		packet, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packet, true)
		f.Add(packet, false)
	}
	f.Fuzz(func(t *testing.T, packet []byte, udp bool) {
		request := new(dns.Msg)
		if request.Unpack(packet) != nil || request.Response {
			return
		}
		w := &packetWriter{udp: udp}
		s.respond(t.Context(), w, request)
		if w.reply == nil || !w.reply.Response || w.reply.Id != request.Id {
			t.Fatalf("answer %v to %v", w.reply, request)
		}
		out, err := w.reply.Pack()
		if err != nil {
			t.Fatalf("answer to %v: %v", request, err)
		}
		limit := dns.MaxMsgSize
		if options := request.IsEdns0(); udp {
			limit = dns.MinMsgSize
			if options != nil {
				limit = max(limit, int(options.UDPSize()))
			}
		}
		if len(out) > limit {
			t.Fatalf("%d bytes to %v", len(out), request)
		}
	})
}

// market has many Services, of two endpoints each.
func market(b *testing.B, count int) *Server {
	s := newServer(b, clock.RealClock{}, nil, namespace("shop"))
	for i := range count {
		ip := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String()
		stall := service("shop", fmt.Sprintf("stall-%d", i), []string{ip}, port("http", corev1.ProtocolTCP, 80))
		add(b, s, stall)
		add(b, s, slice(stall, stall.Name+"-1", []discoveryv1.EndpointPort{endpointPort("http", 8080)},
			endpoint("", nil, netip.AddrFrom4([4]byte{10, 100, byte(i >> 8), byte(i)}).String()),
			endpoint("", nil, netip.AddrFrom4([4]byte{10, 101, byte(i >> 8), byte(i)}).String())))
	}
	return s
}

// BenchmarkReply answers names of a cluster with 10,000 Services, without sockets.
func BenchmarkReply(b *testing.B) {
	s := market(b, 10000)
	for _, kind := range []struct{ name, rrtype string }{{"stall-7000.shop.svc.cluster.local.", "A"}, {"_http._tcp.stall-70.shop.svc.cluster.local.", "SRV"}, {"none.shop.svc.cluster.local.", "A"}, {"7.0.100.10.in-addr.arpa.", "PTR"}} {
		b.Run(kind.rrtype+"/"+kind.name, func(b *testing.B) {
			request := query(kind.name, kind.rrtype)
			b.ReportAllocs()
			for b.Loop() {
				if reply := s.reply(b.Context(), request); reply.Rcode == dns.RcodeServerFailure {
					b.Fatal(reply)
				}
			}
		})
	}
}

// BenchmarkServe answers names of a cluster with 10,000 Services over UDP on loopback, to 8 clients.
func BenchmarkServe(b *testing.B) {
	address := serve(b, market(b, 10000)).String()
	const clients = 8
	var all sync.WaitGroup
	took := make([][]time.Duration, clients)
	b.ResetTimer()
	for client := range clients {
		all.Go(func() {
			conn, err := net.Dial("udp", address)
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			packet, _ := query("stall-7000.shop.svc.cluster.local.", "A").Pack()
			answer := make([]byte, udpSize)
			for range b.N / clients {
				began := time.Now()
				if _, err := conn.Write(packet); err != nil {
					b.Error(err)
					return
				}
				if _, err := conn.Read(answer); err != nil {
					b.Error(err)
					return
				}
				took[client] = append(took[client], time.Since(began))
			}
		})
	}
	all.Wait()
	times := slices.Sorted(slices.Values(slices.Concat(took...)))
	if len(times) > 0 {
		b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
		b.ReportMetric(float64(len(times))/b.Elapsed().Seconds(), "answers/s")
	}
}
