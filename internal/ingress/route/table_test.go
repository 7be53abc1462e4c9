// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package route

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestPath(t *testing.T) {
	for _, c := range []struct {
		kind        PathType
		value, path string
		want        bool
	}{
		{Prefix, "/", "/anything", true},
		{Prefix, "/foo", "/foo", true},
		{Prefix, "/foo", "/foo/", true},
		{Prefix, "/foo/", "/foo", true},
		{Prefix, "/foo/", "/foo/", true},
		{Prefix, "/aaa/bb", "/aaa/bbb", false},
		{Prefix, "/aaa/bbb", "/aaa/bbb/ccc", true},
		{Prefix, "/", "*", false},
		{Exact, "/foo", "/foo", true},
		{Exact, "/foo", "/foo/", false},
		{Exact, "/foo/", "/foo", false},
	} {
		if got := (Path{Type: c.kind, Value: c.value}).matches(c.path); got != c.want {
			t.Errorf("%v %s, path %s: %v, want %v", c.kind, c.value, c.path, got, c.want)
		}
	}
}

func TestReplaced(t *testing.T) {
	for _, c := range []struct {
		change              PathRewrite
		matched, path, want string
	}{
		{PathRewrite{Prefix: true, Value: "/xyz"}, "/foo", "/foo/bar", "/xyz/bar"},
		{PathRewrite{Prefix: true, Value: "/xyz/"}, "/foo", "/foo/bar", "/xyz/bar"},
		{PathRewrite{Prefix: true, Value: "/xyz"}, "/foo/", "/foo/bar", "/xyz/bar"},
		{PathRewrite{Prefix: true, Value: "/xyz"}, "/foo", "/foo", "/xyz"},
		{PathRewrite{Prefix: true, Value: "/xyz"}, "/foo", "/foo/", "/xyz/"},
		{PathRewrite{Prefix: true, Value: ""}, "/foo", "/foo", "/"},
		{PathRewrite{Prefix: true, Value: "/"}, "/foo", "/foo/bar", "/bar"},
		{PathRewrite{Value: "/all"}, "/foo", "/foo/bar", "/all"},
	} {
		if got := c.change.Replaced(c.path, Path{Value: c.matched}); got != c.want {
			t.Errorf("%v of %s, matched by %s: %s, want %s", c.change, c.path, c.matched, got, c.want)
		}
	}
}

func TestListener(t *testing.T) {
	own := netip.MustParseAddr("127.0.0.5")
	table := New([]Listener{
		{Port: 80}, {Port: 80, Hostname: "*.example.com"}, {Port: 80, Hostname: "a.example.com"},
		{Port: 80, Address: own, Hostname: "b.example.com"}, {Port: 80, Protocol: HTTPS, Hostname: "conflict"},
	})
	for _, c := range []struct{ at, host, want string }{
		{"127.0.0.1:80", "a.example.com", "a.example.com"},
		{"127.0.0.1:80", "x.y.example.com", "*.example.com"},
		{"127.0.0.1:80", "example.com", ""},
		{"127.0.0.1:80", "conflict", ""},
		{"127.0.0.5:80", "b.example.com", "b.example.com"},
		{"127.0.0.5:80", "a.example.com", "none"},
		{"127.0.0.1:81", "a.example.com", "none"},
	} {
		got := "none"
		if l := table.Listener(netip.MustParseAddrPort(c.at), c.host); l != nil {
			got = l.Hostname
		}
		if got != c.want {
			t.Errorf("%s at %s: listener %q, want %q", c.host, c.at, got, c.want)
		}
	}
}

// TestFindAgainstOracle compares Find with a search of all rules for the best, on random rules and requests.
func TestFindAgainstOracle(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	found := 0
	for range 3000 {
		var rules []Rule
		for i := range 1 + random.IntN(8) {
			r := Rule{Host: pick("", "a.b.c", "*.b.c", "*.c", "b.c"), OneLabel: random.IntN(2) == 0}
			r.Match.Path = Path{Type: PathType(random.IntN(2)), Value: pick("/", "/x", "/x/", "/x/y", "/xy")}
			r.Match.Method = pick("", "", "GET", "POST")
			if random.IntN(3) == 0 {
				r.Match.Headers = []Value{{Name: "H", Value: pick("1", "2")}}
			}
			if random.IntN(3) == 0 {
				r.Match.Queries = []Value{{Name: "q", Value: pick("1", "2")}}
			}
			r.Order = Order{Rank: random.IntN(2), Created: time.Unix(int64(random.IntN(2)), 0), Name: pick("m", "n"), Index: i}
			rules = append(rules, r)
		}
		request := Request{
			Host: pick("a.b.c", "z.b.c", "b.c", "c", ""), Path: pick("/", "/x", "/x/", "/x/y", "/x/y/z", "/xy"), Method: pick("GET", "POST"),
			Header: http.Header{"H": {pick("1", "2")}}, Query: url.Values{"q": {pick("1", "2")}},
		}
		want := oracle(rules, request)
		got := New([]Listener{{Port: 80, Rules: rules}}).Listener(netip.MustParseAddrPort("127.0.0.1:80"), request.Host).Find(request)
		switch {
		case (got == nil) != (want == nil):
			t.Fatalf("rules %+v\nrequest %+v\ngot %+v, want %+v", rules, request, got, want)
		case got != nil && got.Order != want.Order:
			t.Fatalf("rules %+v\nrequest %+v\ngot %+v, want %+v", rules, request, got, want)
		case got != nil:
			found++
		}
	}
	if found < 500 {
		t.Errorf("only %d requests had a rule", found)
	}
}

// oracle returns the rule that beats all others which match.
func oracle(rules []Rule, r Request) *Rule {
	var best *Rule
	for i := range rules {
		if oracleMatches(rules[i], r) && (best == nil || beats(rules[i], *best)) {
			best = &rules[i]
		}
	}
	return best
}

func oracleMatches(rule Rule, r Request) bool {
	if suffix, wildcard := strings.CutPrefix(rule.Host, "*"); wildcard {
		covered, ok := strings.CutSuffix(r.Host, suffix)
		if !ok || covered == "" || rule.OneLabel && strings.Contains(covered, ".") {
			return false
		}
	} else if rule.Host != "" && rule.Host != r.Host {
		return false
	}
	m := rule.Match
	if m.Path.Type == Exact && m.Path.Value != r.Path {
		return false
	}
	if m.Path.Type == Prefix && !strings.HasPrefix(strings.TrimSuffix(r.Path, "/")+"/", strings.TrimSuffix(m.Path.Value, "/")+"/") {
		return false
	}
	for _, h := range m.Headers {
		if r.Header.Get(h.Name) != h.Value {
			return false
		}
	}
	for _, q := range m.Queries {
		if r.Query.Get(q.Name) != q.Value {
			return false
		}
	}
	return m.Method == "" || m.Method == r.Method
}

// beats compares what the Gateway API lists, one after the other.
func beats(a, b Rule) bool {
	specific := func(host string) int {
		switch {
		case host == "":
			return 0
		case host[0] == '*':
			return len(host)
		}
		return 1000 + len(host)
	}
	number := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	numbers := func(r Rule) []int {
		return []int{
			specific(r.Host), -r.Order.Rank, number(r.Match.Path.Type == Exact), len(strings.TrimSuffix(r.Match.Path.Value, "/")) * number(r.Match.Path.Type == Prefix),
			number(r.Match.Method != ""), len(r.Match.Headers), len(r.Match.Queries), -int(r.Order.Created.Unix()), -int(r.Order.Name[0]), -r.Order.Index,
		}
	}
	x, y := numbers(a), numbers(b)
	for i := range x {
		if x[i] != y[i] {
			return x[i] > y[i]
		}
	}
	return false
}
