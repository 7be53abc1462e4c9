// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command nameserver is a DNS server that is not Kindred's: it answers each question for an A record with one address,
// over UDP.
//
//	nameserver ADDRESS IP
package main

import (
	"log"
	"net"
	"os"

	"github.com/miekg/dns"
)

func main() {
	if len(os.Args) != 3 || net.ParseIP(os.Args[2]) == nil {
		log.Fatal("usage: nameserver ADDRESS IP")
	}
	answer := net.ParseIP(os.Args[2])
	log.Fatal(dns.ListenAndServe(os.Args[1], "udp", dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		response := new(dns.Msg)
		response.SetReply(query)
		response.Authoritative = true
		for _, q := range query.Question {
			if q.Qtype == dns.TypeA {
				header := dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}
				response.Answer = append(response.Answer, &dns.A{Hdr: header, A: answer})
			}
		}
		if err := w.WriteMsg(response); err != nil {
			log.Print(err)
		}
	})))
}
