// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// transports send requests to endpoints, one transport for each protocol.
type transports struct {
	options    Options
	byProtocol map[route.BackendProtocol]*http.Transport
}

const (
	dialTimeout = 3 * time.Second
	// maxDials is how many endpoints are tried when no connection can be made: pods may be gone before the API says
	// so.
	maxDials = 3
	// maxRepeated is how long the body of a request may be that is repeated after a response, in bytes.
	maxRepeated = 64 << 10
)

func newTransports(o Options) transports {
	protocols := func(set func(*http.Protocols)) *http.Transport {
		p := new(http.Protocols)
		set(p)
		return &http.Transport{
			Protocols: p, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
			ExpectContinueTimeout: time.Second, DisableCompression: true, // the response is the client's business
		}
	}
	encrypted := protocols(func(p *http.Protocols) { p.SetHTTP1(true); p.SetHTTP2(true) })
	encrypted.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	return transports{options: o, byProtocol: map[route.BackendProtocol]*http.Transport{
		route.HTTP1:         protocols(func(p *http.Protocols) { p.SetHTTP1(true) }),
		route.H2C:           protocols(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }),
		route.EncryptedHTTP: encrypted,
	}}
}

func (t *transports) close() {
	for _, transport := range t.byProtocol {
		transport.CloseIdleConnections()
	}
}

// RoundTrip sends a request to an endpoint of its backend: to another one if there is no connection to the first,
// and again as the rule's Retry wants it.
func (t *transports) RoundTrip(r *http.Request) (*http.Response, error) {
	x := exchangeOf(r.Context())
	endpoints := t.options.Endpoints(x.backend.Service, x.backend.Port)
	if len(endpoints) == 0 {
		return nil, unavailableError{x.backend.Service}
	}
	body, err := newRepeatable(r, x.rule.Action.Retry)
	if err != nil {
		return nil, err
	}
	next, dials, repeated := rand.IntN(len(endpoints)), 0, 0
	for {
		answer, err := t.attempt(r, x, endpoints[next%len(endpoints)].String(), body.attempt())
		next++
		switch {
		case isDial(err) && body.unread() && dials < min(maxDials, len(endpoints))-1:
			dials++
		case repeats(x.rule.Action.Retry, answer, err, repeated) && body.repeatable():
			repeated++
			if answer != nil {
				_ = answer.Body.Close()
			}
			if err := t.pause(r.Context(), x.rule.Action.Retry.Backoff); err != nil {
				return nil, err
			}
		default:
			return answer, err
		}
	}
}

// repeats reports whether a request is sent once more.
func repeats(retry *route.Retry, answer *http.Response, err error, repeated int) bool {
	switch {
	case retry == nil || repeated >= retry.Attempts:
		return false
	case err != nil:
		return !errors.Is(err, context.Canceled)
	}
	return slices.Contains(retry.Statuses, answer.StatusCode)
}

func (t *transports) pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := t.options.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// attempt sends a request to an endpoint, within the rule's BackendTimeout. That does not apply to upgraded
// connections.
func (t *transports) attempt(r *http.Request, x *exchange, endpoint string, body io.ReadCloser) (*http.Response, error) {
	limit := x.rule.Action.BackendTimeout
	if limit <= 0 || upgrades(r) {
		return t.send(r.Clone(r.Context()), x, endpoint, body)
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	answer, err := t.send(r.Clone(ctx), x, endpoint, body)
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = limited{answer.Body, cancel}
	return answer, nil
}

func (t *transports) send(out *http.Request, x *exchange, endpoint string, body io.ReadCloser) (*http.Response, error) {
	out.Body = body
	out.URL.Scheme, out.URL.Host = "http", endpoint
	if x.backend.Protocol == route.EncryptedHTTP {
		out.URL.Scheme = "https"
	}
	return t.byProtocol[x.backend.Protocol].RoundTrip(out)
}

// limited releases the timeout of a response when its body is closed.
type limited struct {
	io.ReadCloser
	cancel func()
}

func (l limited) Close() error {
	defer l.cancel()
	return l.ReadCloser.Close()
}

// isDial reports whether no connection could be made, so that the endpoint has not seen the request.
func isDial(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}

// repeatable is the body of a request that may be sent more than once.
type repeatable struct {
	body io.Reader
	// kept is the whole body if it is short enough to be repeated.
	kept  []byte
	whole bool
	read  atomic.Bool
}

// newRepeatable reads the beginning of the body if the request may be repeated.
func newRepeatable(r *http.Request, retry *route.Retry) (*repeatable, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return &repeatable{whole: true}, nil
	case retry == nil || r.ContentLength < 0 || r.ContentLength > maxRepeated: // the length of a stream is unknown
		return &repeatable{body: r.Body}, nil
	}
	kept, err := io.ReadAll(r.Body)
	return &repeatable{kept: kept, whole: true}, err
}

// attempt returns the body for an attempt; nil for none. The server closes the original after the response.
func (b *repeatable) attempt() io.ReadCloser {
	switch {
	case b.whole && len(b.kept) == 0:
		return nil
	case b.whole:
		return io.NopCloser(bytes.NewReader(b.kept))
	}
	return io.NopCloser(b)
}

func (b *repeatable) Read(into []byte) (int, error) {
	b.read.Store(true)
	return b.body.Read(into)
}

func (b *repeatable) unread() bool { return b.whole || !b.read.Load() }

func (b *repeatable) repeatable() bool { return b.whole }
