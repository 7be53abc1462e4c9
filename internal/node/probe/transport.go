// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// headSize is the size of the buffers for a request and for the head of a response.
	headSize = 1 << 10
	// maxResponse is how many bytes of a response are read at most, as many as http.Transport reads of its head.
	maxResponse = 10 << 20
)

// transport is the http.RoundTripper of probes. A probe uses a connection for one request. http.Transport keeps three
// goroutines for a connection, whose switches cost a third of the processor time of a probe; therefore transport serves
// plain HTTP itself, on the goroutine of the caller. Its errors have the texts of http.Transport, which are in events.
type transport struct{ http.Transport }

func newTransport() *transport {
	return &transport{http.Transport{
		// A probe checks that the server responds. It does not authenticate the server.
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		DialContext:         dialer().DialContext,
		DisableKeepAlives:   true,
		DisableCompression:  true, // no Accept-Encoding
		Proxy:               nil,  // the node's proxy cannot reach pods
	}}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.roundTrip(request)
	if err != nil && isTimeout(request.Context()) {
		return nil, errors.New("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
	}
	return response, err
}

// isTimeout reports whether ctx has ended because of its deadline.
func isTimeout(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }

func (t *transport) roundTrip(request *http.Request) (*http.Response, error) {
	address, ok := plainAddress(request)
	if !ok {
		return t.Transport.RoundTrip(request)
	}
	connection, err := t.DialContext(request.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	// An expired deadline ends what waits for the connection.
	stop := context.AfterFunc(request.Context(), func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
	response, err := exchange(connection, request)
	if err != nil {
		stop()
		_ = connection.Close()
		return nil, err
	}
	response.Body = &body{Reader: response.Body, connection: connection, stop: stop}
	return response, nil
}

// plainAddress returns the address to connect to, if the request is plain HTTP to an IP address and its headers say
// nothing about the connection.
func plainAddress(request *http.Request) (string, bool) {
	if request.URL.Scheme != "http" {
		return "", false
	}
	for _, name := range []string{"Connection", "Expect", "Upgrade"} {
		if _, has := request.Header[name]; has {
			return "", false
		}
	}
	host, port := request.URL.Hostname(), request.URL.Port()
	if _, err := netip.ParseAddr(host); err != nil {
		return "", false
	}
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(host, port), true
}

// writers are buffers for requests.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, headSize) }}

// exchange sends a request and returns the response, whose body is to be read from the connection.
func exchange(connection net.Conn, request *http.Request) (*http.Response, error) {
	sent := request.WithContext(request.Context())
	sent.Close = true
	out := writers.Get().(*bufio.Writer)
	out.Reset(connection)
	defer func() {
		out.Reset(nil) // a pooled writer does not keep the connection
		writers.Put(out)
	}()
	if err := sent.Write(out); err != nil {
		return nil, err
	}
	if err := out.Flush(); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(io.LimitReader(connection, maxResponse), headSize)
	if _, err := in.Peek(1); err != nil {
		return nil, err // for example EOF, which ReadResponse would call unexpected
	}
	for { // past responses of status 1xx
		response, err := http.ReadResponse(in, request)
		if err != nil {
			return nil, fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", err)
		}
		if response.StatusCode >= http.StatusOK || response.StatusCode == http.StatusSwitchingProtocols {
			return response, nil
		}
	}
}

// body is the body of a response, with its connection.
type body struct {
	io.Reader
	connection net.Conn
	stop       func() bool
}

// Close closes the connection. What is left of the body is not read.
func (b *body) Close() error {
	b.stop()
	return b.connection.Close()
}
