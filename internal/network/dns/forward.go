// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// Limits of forwarding. Those of time and number are CoreDNS' with the configuration of kubeadm.
const (
	// maxForwarded is the number of questions that are forwarded at the same time.
	maxForwarded = 1000
	// An answer is cached for its TTL, at least minCached and at most maxCached.
	minCached = 5 * time.Second
	maxCached = 30 * time.Second
	// cachedFailure is the time for which a failure that a resolver reports is cached.
	cachedFailure = 5 * time.Second
	// The cache has up to cacheEntries answers of up to cacheable bytes, the least recently used go first.
	cacheEntries = 4096
	cacheable    = 2048
	// forwardTimeout is the limit for a question, with all resolvers.
	forwardTimeout = 5 * time.Second
)

// question is the forwarded part of a request: answers to equal questions are shared.
type question struct {
	name             string
	rrtype           uint16
	dnssec           bool
	checkingDisabled bool
}

// forwarder asks the node's resolvers, and caches their answers.
type forwarder struct {
	upstreams *upstreams
	cache     *utilcache.LRUExpireCache
	// flights combines equal questions. A question that comes back through a loop waits for itself, and
	// is not forwarded again.
	flights singleflight.Group
	slots   chan struct{}
	clock   clock.PassiveClock
}

func newForwarder(to *upstreams, c clock.PassiveClock) *forwarder {
	return &forwarder{
		upstreams: to, clock: c, slots: make(chan struct{}, maxForwarded),
		cache: utilcache.NewLRUExpireCacheWithClock(cacheEntries, c),
	}
}

// cached is an answer in the cache.
type cached struct {
	answer *dns.Msg
	since  time.Time
}

// resolve returns the answer to a question. It is the caller's to change.
func (f *forwarder) resolve(ctx context.Context, q question) *dns.Msg {
	if f.upstreams.isProbe(q.name) {
		return failure(dns.RcodeRefused)
	}
	if hit, ok := f.cache.Get(q); ok {
		c := hit.(cached)
		return aged(c.answer, f.clock.Since(c.since))
	}
	flight := f.flights.DoChan(fmt.Sprint(q), func() (any, error) { return f.fetch(q), nil })
	select {
	case result := <-flight:
		return aged(result.Val.(*dns.Msg), 0)
	case <-ctx.Done():
		return failure(dns.RcodeServerFailure)
	}
}

// fetch asks the resolvers and caches the answer.
func (f *forwarder) fetch(q question) *dns.Msg {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		return failure(dns.RcodeRefused)
	}
	ctx, cancel := context.WithTimeout(context.Background(), forwardTimeout)
	defer cancel()
	answer := f.upstreams.ask(ctx, q)
	if answer == nil {
		return failure(dns.RcodeServerFailure)
	}
	if ttl := cacheTTL(answer); ttl > 0 && answer.Len() <= cacheable {
		f.cache.Add(q, cached{answer, f.clock.Now()}, ttl)
	}
	return answer
}

func failure(rcode int) *dns.Msg {
	return &dns.Msg{MsgHdr: dns.MsgHdr{Rcode: rcode}}
}

// cacheTTL returns how long an answer is cached; 0 if it is not.
func cacheTTL(answer *dns.Msg) time.Duration {
	switch {
	case answer.Truncated:
		return 0
	case answer.Rcode == dns.RcodeServerFailure:
		return cachedFailure
	case answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError:
		return 0
	}
	if len(answer.Answer) == 0 && !slices.ContainsFunc(answer.Ns, isSOA) {
		return 0 // without an SOA record, a negative answer is not cached (RFC 2308, section 5)
	}
	lowest := maxCached
	for _, record := range append(answer.Answer[:len(answer.Answer):len(answer.Answer)], answer.Ns...) {
		ttl := record.Header().Ttl
		if soa, ok := record.(*dns.SOA); ok {
			ttl = min(ttl, soa.Minttl) // RFC 2308, section 5
		}
		lowest = min(lowest, time.Duration(ttl)*time.Second)
	}
	return max(lowest, minCached)
}

func isSOA(record dns.RR) bool { return record.Header().Rrtype == dns.TypeSOA }

// aged returns a copy of an answer, with TTLs that are lower by its age, and not longer than answers are
// cached.
func aged(answer *dns.Msg, age time.Duration) *dns.Msg {
	out := answer.Copy()
	for _, section := range [][]dns.RR{out.Answer, out.Ns, out.Extra} {
		for _, record := range section {
			ttl := min(time.Duration(record.Header().Ttl)*time.Second, maxCached)
			record.Header().Ttl = uint32(max(0, ttl-age) / time.Second)
		}
	}
	return out
}
