// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// resolver is a resolver on loopback, and counts the questions to it without probes for loops.
type resolver struct {
	address string
	asked   atomic.Int32
	probes  atomic.Int32
}

// resolve starts a resolver on an address of loopback, on port 53.
func resolve(t testing.TB, address string, answer dns.HandlerFunc) *resolver {
	t.Helper()
	r := &resolver{address: address}
	ctx, stop := context.WithCancel(context.Background())
	sockets, err := listenOn(ctx, netip.MustParseAddr(address), Port)
	if err != nil {
		needed := fmt.Sprintf("needs root and a free port 53 on %s: %v", address, err)
		if os.Getenv("CI") != "" {
			t.Fatal(needed)
		}
		t.Skip(needed)
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, request *dns.Msg) {
		if request.Question[0].Qtype == dns.TypeHINFO {
			r.probes.Add(1)
		} else {
			r.asked.Add(1)
		}
		answer(w, request)
	})
	var running sync.WaitGroup
	for _, server := range []*dns.Server{{PacketConn: sockets.UDP, Handler: handler}, {Listener: sockets.TCP, Handler: handler}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		running.Go(func() { _ = server.ActivateAndServe() })
		<-started
		context.AfterFunc(ctx, func() { _ = server.Shutdown() })
	}
	t.Cleanup(func() { stop(); running.Wait() })
	return r
}

// book answers from records, and denies other names.
func book(records ...string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, request *dns.Msg) {
		reply := new(dns.Msg).SetReply(request)
		for _, text := range records {
			record, err := dns.NewRR(text)
			if err != nil {
				panic(err)
			}
			if record.Header().Name == request.Question[0].Name && record.Header().Rrtype == request.Question[0].Qtype {
				reply.Answer = append(reply.Answer, record)
			}
		}
		if len(reply.Answer) == 0 {
			reply.Rcode = dns.RcodeNameError
			start, _ := dns.NewRR("test. 10 SOA ns.test. host.test. 1 2 3 4 20")
			reply.Ns = []dns.RR{start}
		}
		if w.RemoteAddr().Network() == "udp" {
			reply.Truncate(dns.MinMsgSize)
		}
		_ = w.WriteMsg(reply)
	}
}

func TestForward(t *testing.T) {
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("many.test. 20 IN A 192.0.2.%d", i))
	}
	up := resolve(t, "127.0.3.1", book(append(many, "one.test. 20 IN A 192.0.2.1", "long.test. 9000 IN A 192.0.2.2", "short.test. 0 IN A 192.0.2.3")...))
	c := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	s := newServer(t, c, []string{up.address}, append(town(), external("shop", "out", "one.test"))...)
	ask := func(name string) []string {
		reply := s.reply(t.Context(), query(name, "A"))
		return append(printed(reply.Answer), dns.RcodeToString[reply.Rcode])
	}
	for _, step := range []struct {
		name  string
		after time.Duration
		want  []string
		asked int32
	}{
		{"one.test.", 0, []string{"one.test. 20 A 192.0.2.1", "NOERROR"}, 1},
		{"ONE.test.", 8 * time.Second, []string{"one.test. 12 A 192.0.2.1", "NOERROR"}, 0},
		{"out.shop.svc.cluster.local.", 0, []string{"one.test. 12 A 192.0.2.1", "out.shop.svc.cluster.local. 30 CNAME one.test.", "NOERROR"}, 0},
		{"one.test.", 13 * time.Second, []string{"one.test. 20 A 192.0.2.1", "NOERROR"}, 1},
		{"long.test.", 0, []string{"long.test. 30 A 192.0.2.2", "NOERROR"}, 1},
		{"long.test.", 29 * time.Second, []string{"long.test. 1 A 192.0.2.2", "NOERROR"}, 0},
		{"short.test.", 0, []string{"short.test. 0 A 192.0.2.3", "NOERROR"}, 1},
		{"short.test.", 4 * time.Second, []string{"short.test. 0 A 192.0.2.3", "NOERROR"}, 0},
		{"short.test.", 2 * time.Second, []string{"short.test. 0 A 192.0.2.3", "NOERROR"}, 1},
		{"none.test.", 0, []string{"NXDOMAIN"}, 1},
		{"none.test.", 9 * time.Second, []string{"NXDOMAIN"}, 0},
		{"none.test.", 2 * time.Second, []string{"NXDOMAIN"}, 1},
	} {
		c.Step(step.after)
		before := up.asked.Load()
		if got := ask(step.name); !slices.Equal(got, step.want) || up.asked.Load()-before != step.asked {
			t.Errorf("%s after %v: %v with %d questions, want %v with %d", step.name, step.after, got, up.asked.Load()-before, step.want, step.asked)
		}
	}
	if got := ask("many.test."); len(got) != 61 {
		t.Errorf("a truncated answer has %d of 60 records after TCP", len(got)-1)
	}
}

// TestResolverGone: a resolver that refuses, or does not answer, is passed over, and soon not waited for.
func TestResolverGone(t *testing.T) {
	up := resolve(t, "127.0.3.2", book("one.test. 20 IN A 192.0.2.1", "two.test. 20 IN A 192.0.2.2"))
	broken := resolve(t, "127.0.3.3", func(w dns.ResponseWriter, request *dns.Msg) {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(request, dns.RcodeServerFailure))
	})
	s := newServer(t, clock.RealClock{}, []string{"127.0.3.9", broken.address, up.address})
	if reply := s.reply(t.Context(), query("one.test.", "A")); len(reply.Answer) != 1 {
		t.Errorf("with a third resolver that answers: %v", reply)
	}
	c := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	s = newServer(t, c, []string{"127.0.3.9"}) // refuses
	began := clock.RealClock{}.Now()
	for i := range 100 {
		if reply := s.reply(t.Context(), query(fmt.Sprintf("n%d.test.", i), "A")); reply.Rcode != dns.RcodeServerFailure {
			t.Fatalf("without a resolver: %v", reply)
		}
	}
	if took := (clock.RealClock{}).Since(began); took > time.Second {
		t.Errorf("100 failures take %v", took)
	}
	if available := s.forward.upstreams.available(); len(available) != 0 {
		t.Error("a resolver that has failed often is still asked")
	}
	c.Step(recheck + time.Millisecond)
	if available := s.forward.upstreams.available(); len(available) != 1 {
		t.Error("a resolver that has failed is not asked again")
	}
	if available := s.forward.upstreams.available(); len(available) != 0 {
		t.Error("two questions check one failed resolver")
	}
}

// TestResolverReturns: the first question after the check finds a resolver that answers again.
func TestResolverReturns(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	s := newServer(t, c, []string{"127.0.3.4"})
	for i := range maxFailures {
		s.reply(t.Context(), query(fmt.Sprintf("n%d.test.", i), "A"))
	}
	up := resolve(t, "127.0.3.4", book("one.test. 20 IN A 192.0.2.1"))
	if reply := s.reply(t.Context(), query("one.test.", "A")); reply.Rcode != dns.RcodeServerFailure || up.asked.Load() > 0 {
		t.Errorf("before the check: %v", reply)
	}
	c.Step(recheck)
	if reply := s.reply(t.Context(), query("one.test.", "A")); len(reply.Answer) != 1 {
		t.Errorf("after the check: %v", reply)
	}
}

// TestLoop: a resolver that forwards to this server is found and no longer asked, and the question that
// comes back is not forwarded again.
func TestLoop(t *testing.T) {
	var looping atomic.Pointer[Server]
	loop := resolve(t, "127.0.3.5", func(w dns.ResponseWriter, request *dns.Msg) {
		reply := looping.Load().reply(context.Background(), request)
		_ = w.WriteMsg(reply)
	})
	s := newServer(t, clock.RealClock{}, []string{loop.address})
	looping.Store(s)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for i := 0; len(s.forward.upstreams.available()) > 0 && ctx.Err() == nil; i++ {
		s.reply(ctx, query(fmt.Sprintf("n%d.test.", i), "A"))
	}
	if ctx.Err() != nil {
		t.Fatal("the loop is not found")
	}
	if loop.probes.Load() != 1 || loop.asked.Load() > 2*maxFailures {
		t.Errorf("%d probes and %d questions in a loop", loop.probes.Load(), loop.asked.Load())
	}
	asked := loop.asked.Load()
	if reply := s.reply(t.Context(), query("after.test.", "A")); reply.Rcode != dns.RcodeServerFailure || loop.asked.Load() != asked {
		t.Errorf("after the loop is found: %v", reply)
	}
}

// TestShared: equal questions at the same time are one, and waiting ends with the client.
func TestShared(t *testing.T) {
	answer := make(chan struct{})
	up := resolve(t, "127.0.3.6", func(w dns.ResponseWriter, request *dns.Msg) {
		<-answer
		book("one.test. 20 IN A 192.0.2.1")(w, request)
	})
	s := newServer(t, clock.RealClock{}, []string{up.address})
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if reply := s.reply(stopped, query("one.test.", "A")); reply.Rcode != dns.RcodeServerFailure {
		t.Errorf("of a client that is gone: %v", reply)
	}
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			if reply := s.reply(t.Context(), query("one.test.", "A")); len(reply.Answer) != 1 {
				t.Error(reply)
			}
		})
	}
	close(answer)
	clients.Wait()
	if up.asked.Load() > 2 {
		t.Errorf("%d questions for one", up.asked.Load())
	}
}

// TestTooMany: questions beyond the limit are refused at once.
func TestTooMany(t *testing.T) {
	s := newServer(t, clock.RealClock{}, nil)
	for range maxForwarded {
		s.forward.slots <- struct{}{}
	}
	if reply := s.reply(t.Context(), query("one.test.", "A")); reply.Rcode != dns.RcodeRefused {
		t.Error(reply)
	}
}

func TestParseResolvConf(t *testing.T) {
	own := []netip.Addr{addr("10.244.1.1")}
	for text, want := range map[string][]string{
		"":                          nil,
		"nameserver 192.0.2.1\n":    {"192.0.2.1:53"},
		"nameserver 10.244.1.1\n":   nil,
		"# nameserver 192.0.2.1\n":  nil,
		"nameserver nonsense\n":     nil,
		"nameserver\nsearch a b\n":  nil,
		"nameserver fe80::1%eth0\n": {"[fe80::1%eth0]:53"},
		"search example.org\nnameserver 192.0.2.1\noptions ndots:2\nnameserver fd00::53\n": {"192.0.2.1:53", "[fd00::53]:53"},
	} {
		var got []string
		for _, server := range parseResolvConf([]byte(text), own) {
			got = append(got, server.address)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestFile: a file that changes is read again, at most once in the interval.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	c := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	parsed := 0
	f := newFile(path, c, func(text []byte) string { parsed++; return string(text) })
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string, times int) {
		t.Helper()
		if got := f.get(); got != want || parsed != times {
			t.Errorf("%q, parsed %d times; want %q, %d", got, parsed, want, times)
		}
	}
	expect("", 1)
	write("one")
	expect("", 1)
	c.Step(fileCheck)
	expect("one", 2)
	c.Step(fileCheck)
	expect("one", 2)
	write("three")
	c.Step(fileCheck)
	expect("three", 3)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	c.Step(fileCheck)
	expect("", 4)
}

func TestHosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	text := "# comment\n192.0.2.7 Printer printer.home # the old one\nfd00::7\tprinter.home\nnonsense a\n192.0.2.8\n::ffff:192.0.2.9 mapped\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, clock.RealClock{}, nil, append(town(), external("shop", "paper", "Printer.home"))...)
	s.hosts = newHosts(path, clock.RealClock{})
	for _, test := range []struct{ name, rrtype, want string }{
		{"printer.", "A", "printer. 3600 A 192.0.2.7"},
		{"printer.HOME.", "A", "printer.HOME. 3600 A 192.0.2.7"},
		{"printer.home.", "AAAA", "printer.home. 3600 AAAA fd00::7"},
		{"printer.", "AAAA", ""},
		{"paper.shop.svc.cluster.local.", "A", "paper.shop.svc.cluster.local. 30 CNAME printer.home. printer.home. 3600 A 192.0.2.7"},
		{"mapped.", "A", "mapped. 3600 A 192.0.2.9"},
		{"7.2.0.192.in-addr.arpa.", "PTR", "7.2.0.192.in-addr.arpa. 3600 PTR printer. 7.2.0.192.in-addr.arpa. 3600 PTR printer.home."},
	} {
		reply := s.reply(t.Context(), query(test.name, test.rrtype))
		if got := strings.Join(printed(reply.Answer), " "); reply.Rcode != dns.RcodeSuccess || got != test.want {
			t.Errorf("%s %s: %q, want %q", test.name, test.rrtype, got, test.want)
		}
	}
	if reply := s.reply(t.Context(), query("printer.home.", "MX")); reply.Rcode != dns.RcodeServerFailure {
		t.Errorf("a type that the file has not is not forwarded: %v", reply)
	}
}

func TestCacheTTL(t *testing.T) {
	record := func(text string) dns.RR {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		return rr
	}
	soa := record("test. 60 IN SOA ns.test. admin.test. 1 7200 1800 86400 10")
	for name, tt := range map[string]struct {
		answer dns.Msg
		want   time.Duration
	}{
		"its TTL":                   {dns.Msg{Answer: []dns.RR{record("a.test. 20 IN A 192.0.2.1")}}, 20 * time.Second},
		"at least":                  {dns.Msg{Answer: []dns.RR{record("a.test. 1 IN A 192.0.2.1")}}, minCached},
		"at most":                   {dns.Msg{Answer: []dns.RR{record("a.test. 900 IN A 192.0.2.1")}}, maxCached},
		"no such name":              {dns.Msg{MsgHdr: dns.MsgHdr{Rcode: dns.RcodeNameError}, Ns: []dns.RR{soa}}, 10 * time.Second},
		"no such name, without SOA": {dns.Msg{MsgHdr: dns.MsgHdr{Rcode: dns.RcodeNameError}}, 0},
		"no record of the type":     {dns.Msg{Ns: []dns.RR{soa}}, 10 * time.Second},
		"a referral":                {dns.Msg{Ns: []dns.RR{record("test. 60 IN NS ns.test.")}}, 0},
		"truncated":                 {dns.Msg{MsgHdr: dns.MsgHdr{Truncated: true}, Answer: []dns.RR{record("a.test. 20 IN A 192.0.2.1")}}, 0},
		"a failure of the resolver": {dns.Msg{MsgHdr: dns.MsgHdr{Rcode: dns.RcodeServerFailure}}, cachedFailure},
		"a refusal, which may end":  {dns.Msg{MsgHdr: dns.MsgHdr{Rcode: dns.RcodeRefused}}, 0},
	} {
		if got := cacheTTL(&tt.answer); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
