// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package route is the model of what the reverse proxy serves, and the lookup in it. It has no I/O.
//
// A Table has listeners, a listener has rules, a rule has an action. Ingresses and the routes of the Gateway API
// are compiled to it. The precedence of rules is that of the Gateway API, of which that of Ingress is a part: the
// most specific host, then the path (exact, regular expression, longest prefix), then a method, the number of
// headers and of query parameters, then the age and the name of the object, then the position in it.
package route

import (
	"crypto/tls"
	"net/netip"
	"regexp"
	"time"
)

// Protocol is the protocol that a listener expects.
type Protocol int

// The protocols of listeners. Passthrough is TLS that the backend terminates.
const (
	HTTP Protocol = iota
	HTTPS
	Passthrough
)

// Listener serves rules at a port. Listeners with the same address, port, protocol and hostname are one.
type Listener struct {
	// Address is the local address of the connections; the zero Addr is all addresses for which the port has no
	// other listener.
	Address  netip.Addr
	Port     uint16
	Protocol Protocol
	// Hostname is a name, a wildcard such as *.example.com, or "" for all names.
	Hostname string
	// Certificates are those of an HTTPS listener.
	Certificates []Certificate
	Rules        []Rule
}

// Certificate is a certificate for the hosts that match Host, which has the form of a Listener's Hostname.
type Certificate struct {
	Host string
	*tls.Certificate
}

// Rule maps requests to an action.
type Rule struct {
	// Host has the form of a Listener's Hostname. Its wildcard stands for one label if OneLabel is set, as in
	// Ingresses, and for one or more if not, as in the Gateway API.
	Host     string
	OneLabel bool
	Match    Match
	Order    Order
	Action   *Action
}

// Order decides between rules whose matches are equally specific: the first in the order of the fields wins.
type Order struct {
	// Rank is 1 for default backends, which come after all other rules, and 0 for those.
	Rank    int
	Created time.Time
	// Name has the kind, namespace and name of the object.
	Name string
	// Index is the position in the object.
	Index int
}

// Match has the conditions of a rule. All must be fulfilled.
type Match struct {
	Path   Path
	Method string // "" is any
	// Headers have canonical names.
	Headers, Queries []Value
}

// PathType is how a path is compared.
type PathType int

// The types of paths. A prefix consists of whole elements: /a is a prefix of /a and /a/b, but not of /ab. A
// regular expression matches the whole path.
const (
	Prefix PathType = iota
	Exact
	Regex
)

// Path is a condition on the path of a request.
type Path struct {
	Type  PathType
	Value string
	// Regex is set if Type is Regex.
	Regex *regexp.Regexp
}

// Value is a condition on a header or query parameter.
type Value struct {
	Name, Value string
	// Regex, if set, is compared instead of Value. It matches the whole value.
	Regex *regexp.Regexp
}

// Action is what happens to a request: a redirect, or forwarding to one of the backends.
type Action struct {
	// Object is the kind, namespace and name of the object with the rule, for messages.
	Object string
	// Refusal, if set, answers all requests.
	Refusal  *Refusal
	Redirect *Redirect
	Changes  Changes
	// Rewrite changes the URL of forwarded requests.
	Rewrite Rewrite
	Mirrors []Mirror
	// Backends get requests in proportion to their weights. Without any with a weight, the answer is 500.
	Backends []Backend
	// Timeout limits the whole request, and BackendTimeout each attempt; 0 is no limit.
	Timeout, BackendTimeout time.Duration
	Retry                   *Retry
}

// Refusal is an answer without a backend.
type Refusal struct {
	Status int
	Text   string
}

// Changes are changes of headers of requests and responses.
type Changes struct{ Request, Response Headers }

// Headers are changes of headers, in the order of the fields.
type Headers struct {
	Set, Add []Header
	Remove   []string
}

// Header is a header with its value.
type Header struct{ Name, Value string }

// Redirect is the answer to a request. Empty fields are those of the request.
type Redirect struct {
	Scheme, Host string
	// Port is 0 if none is given: then it is that of the scheme if one is given, else that of the listener.
	Port   int
	Path   *PathRewrite
	Status int
}

// Rewrite changes the host and path of a request. Empty fields change nothing.
type Rewrite struct {
	Host string
	Path *PathRewrite
}

// PathRewrite replaces the whole path, or if Prefix is set the prefix that the rule matched.
type PathRewrite struct {
	Prefix bool
	Value  string
}

// Mirror gets a copy of Numerator of Denominator requests. Its responses are ignored.
type Mirror struct {
	Backend                Backend
	Numerator, Denominator int
}

// Retry repeats requests after responses with some statuses, and after failed connections.
type Retry struct {
	// Attempts is the number of retries.
	Attempts int
	Statuses []int
	Backoff  time.Duration
}

// BackendProtocol is the protocol that a backend expects.
type BackendProtocol int

// The protocols of backends. H2C is HTTP/2 without TLS. EncryptedHTTP accepts any certificate, because pods
// have none that is valid for their address.
const (
	HTTP1 BackendProtocol = iota
	H2C
	EncryptedHTTP
)

// Backend is a port of a Service.
type Backend struct {
	// Service is a namespace and name, with a slash between.
	Service  string
	Port     int32
	Protocol BackendProtocol
	Weight   int
	// Changes apply to requests that this backend gets.
	Changes Changes
	// Refusal, if set, answers requests of this backend, for instance because there is no such Service.
	Refusal *Refusal
}
