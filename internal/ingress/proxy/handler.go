// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// silent drops messages about clients, such as failed handshakes: any client can cause any number of them.
var silent = log.New(io.Discard, "", 0)

func portName(number uint16) string { return strconv.Itoa(int(number)) }

// ServeHTTP answers a request from the table.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		refuse(w, http.StatusMethodNotAllowed, "CONNECT is not supported")
		return
	}
	at, table := localAddress(r), s.table.Load()
	host := hostname(r.Host)
	l := table.Listener(at, host)
	if r.TLS != nil && table.Listener(at, hostname(r.TLS.ServerName)) != l {
		refuse(w, http.StatusMisdirectedRequest, "the TLS connection is for "+strconv.Quote(r.TLS.ServerName)+", the request for "+strconv.Quote(host))
		return
	}
	if l == nil || l.Protocol == route.Passthrough {
		refuse(w, http.StatusNotFound, "no Ingress or Gateway serves the host "+strconv.Quote(host))
		return
	}
	r = withoutDots(r)
	rule := l.Find(route.Request{Host: host, Path: r.URL.Path, Method: r.Method, Header: r.Header, Query: r.URL.Query()})
	if rule == nil {
		refuse(w, http.StatusNotFound, "no rule for the host "+strconv.Quote(host)+" and the path "+strconv.Quote(r.URL.Path))
		return
	}
	s.act(w, r, rule, at)
}

// act carries out a rule's action.
func (s *Server) act(w http.ResponseWriter, r *http.Request, rule *route.Rule, at netip.AddrPort) {
	a := rule.Action
	switch {
	case a.Refusal != nil:
		refuse(w, a.Refusal.Status, a.Refusal.Text)
	case a.Redirect != nil:
		edit(w.Header(), a.Changes.Response)
		w.Header().Set("Location", location(r, rule, at.Port()))
		w.WriteHeader(a.Redirect.Status)
	default:
		s.forward(w, r, rule)
	}
}

// refuse answers with a line of text.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, "kindred: "+text, status)
}

// localAddress returns the address of this machine that the client has connected to.
func localAddress(r *http.Request) netip.AddrPort {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return addressOf(local)
}

func addressOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(tcp.AddrPort().Addr().Unmap(), tcp.AddrPort().Port())
}

// hostname returns the name of a Host header, in lower case, without the port and a dot at the end.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// withoutDots returns a request whose path has no segments "." and "..": the path that the backend gets must be the
// one that the rules were compared with.
func withoutDots(r *http.Request) *http.Request {
	if !strings.Contains(r.URL.Path, "/.") {
		return r
	}
	clean := removeDots(r.URL.Path)
	if clean == r.URL.Path {
		return r
	}
	u := *r.URL
	u.Path, u.RawPath = clean, ""
	changed := *r
	changed.URL = &u
	return &changed
}

// removeDots removes the segments "." and ".." of a path, as RFC 3986, 5.2.4.
func removeDots(path string) string {
	var kept []string
	segments := strings.Split(path, "/")[1:]
	for i, segment := range segments {
		dots := segment == "." || segment == ".."
		if segment == ".." && len(kept) > 0 {
			kept = kept[:len(kept)-1]
		}
		switch {
		case !dots:
			kept = append(kept, segment)
		case i == len(segments)-1:
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

// location returns the URL of a redirect. The port is that of the scheme that the rule gives, or else the listener's.
func location(r *http.Request, rule *route.Rule, listening uint16) string {
	to := rule.Action.Redirect
	u := *r.URL
	u.Scheme = "http"
	if r.TLS != nil {
		u.Scheme = "https"
	}
	number := int(listening)
	if to.Scheme != "" {
		u.Scheme = to.Scheme
		number = standardPort(to.Scheme, number)
	}
	if to.Port != 0 {
		number = to.Port
	}
	host := hostname(r.Host)
	if to.Host != "" {
		host = to.Host
	}
	u.Host = host
	switch {
	case number != standardPort(u.Scheme, 0):
		u.Host = net.JoinHostPort(host, strconv.Itoa(number))
	case strings.Contains(host, ":"):
		u.Host = "[" + host + "]"
	}
	if to.Path != nil {
		rewritePath(&u, *to.Path, rule.Match.Path)
	}
	return u.String()
}

func standardPort(scheme string, otherwise int) int {
	switch scheme {
	case "http":
		return 80
	case "https":
		return 443
	}
	return otherwise
}

// edit changes headers.
func edit(h http.Header, changes route.Headers) {
	for _, c := range changes.Set {
		h.Set(c.Name, c.Value)
	}
	for _, c := range changes.Add {
		h.Add(c.Name, c.Value)
	}
	for _, name := range changes.Remove {
		h.Del(name)
	}
}
