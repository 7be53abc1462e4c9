// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/miekg/dns"
	"k8s.io/client-go/informers"
	"k8s.io/utils/clock"
)

// Options configure a Server.
type Options struct {
	// Informers has the objects. It is started after New.
	Informers informers.SharedInformerFactory
	// Domain is the cluster's domain, such as cluster.local.
	Domain string
	// ResolvConf is the file that names the resolvers for all other names.
	ResolvConf string
	// Hosts is a file in the format of /etc/hosts, whose names are answered before they are forwarded. If
	// empty, there is none.
	Hosts string
	// Own are addresses of this server, which are not asked although ResolvConf may name them.
	Own []netip.Addr
	// Clock defaults to the real clock.
	Clock clock.PassiveClock
}

// Server is the DNS server of a node.
type Server struct {
	zone    zone
	hosts   *hosts
	forward *forwarder
}

// New returns a server. The caller starts the informers, and then runs the server.
func New(o Options) (*Server, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	records, err := newRecords(o.Informers)
	if err != nil {
		return nil, fmt.Errorf("index Services for DNS: %w", err)
	}
	return &Server{
		zone:    zone{origin: dns.CanonicalName(o.Domain), records: records},
		hosts:   newHosts(o.Hosts, o.Clock),
		forward: newForwarder(newUpstreams(o.ResolvConf, o.Own, o.Clock), o.Clock),
	}, nil
}

// udpSize is the size of UDP messages that this server announces, which avoids fragments
// (https://www.dnsflagday.net/2020/).
const udpSize = 1232

// respond writes the answer to a request.
func (s *Server) respond(ctx context.Context, w dns.ResponseWriter, request *dns.Msg) {
	reply := s.reply(ctx, request)
	fit(reply, request, w.RemoteAddr().Network() == "udp")
	_ = w.WriteMsg(reply) // the client asks again
}

// reply returns the answer to a request, of any size.
func (s *Server) reply(ctx context.Context, request *dns.Msg) *dns.Msg {
	reply := new(dns.Msg)
	if request.Opcode != dns.OpcodeQuery || len(request.Question) != 1 {
		return reply.SetRcode(request, dns.RcodeNotImplemented)
	}
	options := request.IsEdns0()
	if options != nil && options.Version() != 0 {
		return reply.SetRcode(request, dns.RcodeBadVers)
	}
	asked := request.Question[0]
	if asked.Qclass != dns.ClassINET || asked.Qtype == dns.TypeAXFR || asked.Qtype == dns.TypeIXFR {
		return reply.SetRcode(request, dns.RcodeRefused)
	}
	q := question{name: dns.CanonicalName(asked.Name), rrtype: asked.Qtype, checkingDisabled: request.CheckingDisabled, dnssec: options != nil && options.Do()}
	reply.SetReply(request)
	reply.RecursionAvailable = true
	s.fill(ctx, reply, q)
	return reply
}

// fill adds the records to a reply.
func (s *Server) fill(ctx context.Context, reply *dns.Msg, q question) {
	owner := reply.Question[0].Name
	if labels, ok := below(q.name, s.zone.origin); ok {
		s.fillFromZone(ctx, reply, q, labels)
		return
	}
	if ip, ok := reverseAddress(q.name); ok && q.rrtype == dns.TypePTR {
		if !s.zone.records.hasSynced() {
			reply.Rcode = dns.RcodeServerFailure // the address may be the cluster's
			return
		}
		if names := s.zone.hosts(ip); len(names) > 0 {
			reply.Authoritative = true
			reply.Answer = pointers(owner, names, recordTTL)
			return
		}
	}
	s.fillFromOutside(ctx, reply, owner, q)
}

// maxAliases is the number of ExternalNames that may follow one another, as in CoreDNS.
const maxAliases = 10

// fillFromZone answers a name of the cluster. An ExternalName is followed, because the resolvers in pods do
// not.
func (s *Server) fillFromZone(ctx context.Context, reply *dns.Msg, q question, labels []string) {
	if !s.zone.records.hasSynced() {
		reply.Rcode = dns.RcodeServerFailure
		return
	}
	reply.Authoritative = true
	owner := reply.Question[0].Name
	for range maxAliases {
		f := s.zone.find(labels)
		if !f.exists {
			reply.Rcode = dns.RcodeNameError
		}
		if f.alias == "" {
			answer, extra := s.zone.answer(owner, q.rrtype, f)
			if len(answer) == 0 {
				reply.Ns = []dns.RR{s.zone.soa()}
			}
			reply.Answer, reply.Extra = append(reply.Answer, answer...), append(reply.Extra, extra...)
			return
		}
		reply.Answer = append(reply.Answer, &dns.CNAME{Hdr: header(owner, dns.TypeCNAME, recordTTL), Target: f.alias})
		if q.rrtype == dns.TypeCNAME {
			return
		}
		q.name, owner = f.alias, f.alias
		var inside bool
		if labels, inside = below(q.name, s.zone.origin); !inside {
			s.fillFromOutside(ctx, reply, owner, q)
			return
		}
	}
	reply.Rcode, reply.Answer = dns.RcodeServerFailure, nil
}

// fillFromOutside adds the records of a name that is not the cluster's: those of the hosts file, or the
// answer of the node's resolvers.
func (s *Server) fillFromOutside(ctx context.Context, reply *dns.Msg, owner string, q question) {
	if answer, ok := s.hosts.answer(owner, q); ok {
		reply.Authoritative = true
		reply.Answer = append(reply.Answer, answer...)
		return
	}
	answer := s.forward.resolve(ctx, q)
	reply.Rcode = answer.Rcode
	reply.AuthenticatedData = answer.AuthenticatedData && len(reply.Answer) == 0
	reply.Answer = append(reply.Answer, answer.Answer...)
	reply.Ns, reply.Extra = answer.Ns, answer.Extra
}

// fit makes a reply fit into what its client takes. Records that the client did not ask for go first, and
// their absence is no truncation (RFC 2181, section 9).
func fit(reply, request *dns.Msg, udp bool) {
	size := dns.MaxMsgSize
	options := request.IsEdns0()
	if udp {
		size = dns.MinMsgSize
		if options != nil {
			size = max(size, int(options.UDPSize()))
		}
	}
	if options != nil {
		reply.SetEdns0(udpSize, options.Do())
	}
	if reply.Compress = reply.Len() > size; reply.Compress && reply.Len() > size {
		reply.Extra = slices.DeleteFunc(reply.Extra, func(r dns.RR) bool { return r.Header().Rrtype != dns.TypeOPT })
	}
	reply.Truncate(size)
}
