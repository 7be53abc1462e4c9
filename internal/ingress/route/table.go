// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package route

import (
	"cmp"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Table has listeners, ready for lookups. It does not change.
type Table struct{ ports map[uint16][]*Merged }

// Merged is a listener of a Table: the rules of all Listeners that are one.
type Merged struct {
	Listener
	// hosts has the rules of each Host, in the order of their precedence.
	hosts map[string][]*Rule
}

// Request is what rules are compared with.
type Request struct {
	// Host is in lower case and without a port.
	Host, Path, Method string
	Header             http.Header
	Query              url.Values
}

// New returns a table. Of listeners at the same port and address that differ in that one expects HTTP and the other
// TLS, the first decides.
func New(listeners []Listener) *Table {
	t := &Table{ports: map[uint16][]*Merged{}}
	for _, l := range listeners {
		t.add(l)
	}
	for _, all := range t.ports {
		for _, l := range all {
			l.sort()
		}
	}
	return t
}

func (t *Table) add(l Listener) {
	for _, other := range t.ports[l.Port] {
		if (other.Protocol == HTTP) != (l.Protocol == HTTP) {
			return
		}
		if other.Address == l.Address && other.Hostname == l.Hostname && other.Protocol == l.Protocol {
			other.Certificates = slices.Concat(other.Certificates, l.Certificates)
			other.Rules = slices.Concat(other.Rules, l.Rules)
			return
		}
	}
	t.ports[l.Port] = append(t.ports[l.Port], &Merged{Listener: l})
}

// sort orders rules by their precedence.
func (l *Merged) sort() {
	l.hosts = map[string][]*Rule{}
	for i := range l.Rules {
		rule := &l.Rules[i]
		l.hosts[rule.Host] = append(l.hosts[rule.Host], rule)
	}
	for _, rules := range l.hosts {
		slices.SortStableFunc(rules, precedence)
	}
}

// precedence compares rules of one host: the one to try first is less.
func precedence(a, b *Rule) int {
	return cmp.Or(
		cmp.Compare(a.Order.Rank, b.Order.Rank),
		comparePaths(a.Match.Path, b.Match.Path),
		-cmp.Compare(min(len(a.Match.Method), 1), min(len(b.Match.Method), 1)),
		-cmp.Compare(len(a.Match.Headers), len(b.Match.Headers)),
		-cmp.Compare(len(a.Match.Queries), len(b.Match.Queries)),
		a.Order.Created.Compare(b.Order.Created),
		cmp.Compare(a.Order.Name, b.Order.Name),
		cmp.Compare(a.Order.Index, b.Order.Index),
	)
}

func comparePaths(a, b Path) int {
	order := [...]int{Exact: 0, Regex: 1, Prefix: 2}
	return cmp.Or(cmp.Compare(order[a.Type], order[b.Type]), -cmp.Compare(len(a.text()), len(b.text())))
}

// text returns the value without the slash at the end of a prefix, which means nothing.
func (p Path) text() string {
	if p.Type == Prefix {
		return strings.TrimSuffix(p.Value, "/")
	}
	return p.Value
}

// Ports returns the ports of all listeners, and whether each expects TLS.
func (t *Table) Ports() map[uint16]bool {
	ports := map[uint16]bool{}
	for port, all := range t.ports {
		ports[port] = all[0].Protocol != HTTP
	}
	return ports
}

// Passes reports whether a port has Passthrough listeners.
func (t *Table) Passes(port uint16) bool {
	return slices.ContainsFunc(t.ports[port], func(l *Merged) bool { return l.Protocol == Passthrough })
}

// Listener returns the listener for a host at a local address: the one with the most specific hostname; nil if there
// is none.
func (t *Table) Listener(at netip.AddrPort, host string) *Merged {
	all := t.ports[at.Port()]
	address := at.Addr().Unmap()
	if !slices.ContainsFunc(all, func(l *Merged) bool { return l.Address == address }) {
		address = netip.Addr{}
	}
	for name := range Candidates(host) {
		for _, l := range all {
			if l.Address == address && l.Hostname == name {
				return l
			}
		}
	}
	return nil
}

// Candidates yields the hostnames that match a host, the most specific first: itself, the wildcards of its parents,
// and "".
func Candidates(host string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if host == "" || !yield(host) {
			if host == "" {
				yield("")
			}
			return
		}
		for rest := host; ; {
			_, parent, ok := strings.Cut(rest, ".")
			if !ok {
				break
			}
			if !yield("*." + parent) {
				return
			}
			rest = parent
		}
		yield("")
	}
}

// Find returns the rule for a request; nil if none matches.
func (l *Merged) Find(r Request) *Rule {
	for name := range Candidates(r.Host) {
		for _, rule := range l.hosts[name] {
			if rule.Match.matches(r) && !(rule.OneLabel && longer(r.Host, name)) {
				return rule
			}
		}
	}
	return nil
}

// longer reports whether the wildcard of a name that matches a host stands for more than one label.
func longer(host, name string) bool {
	_, parent, _ := strings.Cut(host, ".")
	return strings.HasPrefix(name, "*.") && name[2:] != parent
}

// CertificatesFor returns the certificates for a host, those of the most specific name.
func (l *Merged) CertificatesFor(host string) []Certificate {
	for name := range Candidates(host) {
		var found []Certificate
		for _, c := range l.Certificates {
			if c.Host == name {
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

func (m Match) matches(r Request) bool {
	return m.Path.matches(r.Path) && (m.Method == "" || m.Method == r.Method) &&
		!slices.ContainsFunc(m.Headers, func(v Value) bool { return !v.in(headerOf(r, v.Name)) }) &&
		!slices.ContainsFunc(m.Queries, func(v Value) bool { return !v.in(first(r.Query[v.Name])) })
}

// headerOf returns a header's values as one, as if they had been sent in one line (RFC 9110, 5.3).
func headerOf(r Request, name string) (string, bool) {
	values, ok := r.Header[name]
	return strings.Join(values, ","), ok
}

func first(values []string) (string, bool) {
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

func (v Value) in(got string, ok bool) bool {
	if !ok {
		return false
	}
	if v.Regex != nil {
		return v.Regex.MatchString(got)
	}
	return v.Value == got
}

func (p Path) matches(path string) bool {
	switch p.Type {
	case Exact:
		return path == p.Value
	case Regex:
		return p.Regex.MatchString(path)
	}
	rest, ok := strings.CutPrefix(path, p.text())
	return ok && (rest == "" || rest[0] == '/')
}

// Replaced returns the path of a request after a rewrite, given the path of the rule that matched it.
func (w PathRewrite) Replaced(path string, matched Path) string {
	if !w.Prefix {
		return w.Value
	}
	rest := strings.TrimPrefix(path, matched.text())
	replaced := strings.TrimSuffix(w.Value, "/") + rest
	if replaced == "" {
		return "/"
	}
	if replaced[0] != '/' {
		return "/" + replaced
	}
	return replaced
}
