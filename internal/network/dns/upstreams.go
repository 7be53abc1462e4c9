// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// When resolvers are asked.
const (
	// exchangeTimeout is the limit for one resolver.
	exchangeTimeout = 2 * time.Second
	// A resolver that has failed maxFailures times in a row is asked again after recheck, with one
	// question at a time. Meanwhile questions do not wait for it.
	maxFailures = 3
	recheck     = 500 * time.Millisecond
)

// upstreams are the resolvers of the node.
type upstreams struct {
	conf *file[[]*upstream]

	mu sync.Mutex
	// probes has the names of the questions with which loops are found.
	probes map[string]*upstream
	clock  clock.PassiveClock
}

// upstream is a resolver, which upstreams.mu guards.
type upstream struct {
	address  string
	failures int
	// retry is the time at which a failed resolver is asked again.
	retry  time.Time
	probed bool
	// loops is set if the resolver forwards to this server.
	loops bool
}

func newUpstreams(resolvConf string, own []netip.Addr, c clock.PassiveClock) *upstreams {
	return &upstreams{
		conf:   newFile(resolvConf, c, func(text []byte) []*upstream { return parseResolvConf(text, own) }),
		probes: map[string]*upstream{}, clock: c,
	}
}

// parseResolvConf returns the resolvers of a resolv.conf, except this server itself.
func parseResolvConf(text []byte, own []netip.Addr) (found []*upstream) {
	conf, err := dns.ClientConfigFromReader(bytes.NewReader(text))
	if err != nil {
		return nil
	}
	for _, server := range conf.Servers {
		address, err := netip.ParseAddr(server)
		if err != nil || slices.Contains(own, address.WithZone("")) {
			continue
		}
		found = append(found, &upstream{address: net.JoinHostPort(server, conf.Port)})
	}
	return found
}

// ask asks one resolver after the other, in the order of the file, until one has an answer. It returns
// nil if none can be reached, and the last failure if all report one.
func (u *upstreams) ask(ctx context.Context, q question) (failed *dns.Msg) {
	for _, server := range u.available() {
		u.probe(ctx, server)
		answer, err := exchange(ctx, server.address, q)
		u.note(ctx, server, err)
		switch {
		case ctx.Err() != nil:
			return failed
		case err != nil:
		case answer.Rcode == dns.RcodeSuccess || answer.Rcode == dns.RcodeNameError:
			return answer
		default:
			failed = answer
		}
	}
	return failed
}

// available returns the resolvers to ask.
func (u *upstreams) available() []*upstream {
	servers := u.conf.get()
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.clock.Now()
	var available []*upstream
	for _, server := range servers {
		if server.loops || server.failures >= maxFailures && now.Before(server.retry) {
			continue
		}
		if server.failures >= maxFailures {
			server.retry = now.Add(exchangeTimeout) // other questions do not wait for this one
		}
		available = append(available, server)
	}
	return available
}

// note records whether a resolver has answered.
func (u *upstreams) note(ctx context.Context, server *upstream, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		if server.failures >= maxFailures {
			klog.FromContext(ctx).Info("The DNS resolver of the node answers again", "resolver", server.address)
		}
		server.failures = 0
		return
	}
	if server.failures++; server.failures == maxFailures {
		klog.FromContext(ctx).Info("The DNS resolver of the node does not answer; names outside of the cluster fail without another one", "resolver", server.address, "err", err)
	}
	server.retry = u.clock.Now().Add(recheck)
}

// exchange asks one resolver, again over TCP if the answer is truncated.
func exchange(ctx context.Context, address string, q question) (*dns.Msg, error) {
	message := new(dns.Msg).SetQuestion(q.name, q.rrtype)
	message.CheckingDisabled = q.checkingDisabled
	message.SetEdns0(udpSize, q.dnssec)
	client := dns.Client{Net: "udp", UDPSize: udpSize, Timeout: exchangeTimeout}
	answer, _, err := client.ExchangeContext(ctx, message, address)
	if err == nil && answer.Truncated {
		client.Net = "tcp"
		answer, _, err = client.ExchangeContext(ctx, message, address)
	}
	if err != nil {
		return nil, err
	}
	if len(answer.Question) != 1 || dns.CanonicalName(answer.Question[0].Name) != q.name || answer.Question[0].Qtype != q.rrtype {
		return nil, errors.New("the answer is to another question")
	}
	answer.Extra = slices.DeleteFunc(answer.Extra, func(r dns.RR) bool { return r.Header().Rrtype == dns.TypeOPT })
	return answer, nil
}

// probe finds out in the background whether a resolver forwards to this server, before the first question
// to it: it asks for a random name that does not exist, as CoreDNS' plugin loop does.
func (u *upstreams) probe(ctx context.Context, server *upstream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if server.probed {
		return
	}
	server.probed = true
	name := fmt.Sprintf("%d.%d.", rand.Uint64(), rand.Uint64())
	u.probes[name] = server
	go func() {
		_, _ = exchange(context.WithoutCancel(ctx), server.address, question{name: name, rrtype: dns.TypeHINFO})
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.probes, name)
		if server.loops {
			klog.FromContext(ctx).Info("The DNS resolver of the node forwards to the cluster's DNS server, and is not used", "resolver", server.address)
		}
	}()
}

// isProbe reports whether a question is a probe that came back, and marks the resolver that forwarded it.
func (u *upstreams) isProbe(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	server := u.probes[name]
	if server != nil {
		server.loops = true
	}
	return server != nil
}
