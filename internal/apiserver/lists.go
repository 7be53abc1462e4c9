// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bufio"
	"net"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// sendLists sends the responses of lists in large pieces, and without compression to clients on this machine.
//
// k8s.io/apiserver encodes a list item by item. net/http sends 4 kB in each frame then, and waits for each: three quarters of
// the time of a list of 10,000 ConfigMaps, if it is not compressed. To compress it takes as long, and only saves a client on
// another machine time.
func sendLists(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.Verb != "list" {
			next.ServeHTTP(w, r)
			return
		}
		if isSameMachine(r) {
			r.Header.Del("Accept-Encoding")
		}
		pieces := newPieces(w)
		defer pieces.release()
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(pieces), r)
		// An error means that the client is gone. A handler that panics has not written its whole response.
		_ = pieces.buffer.Flush()
	})
}

// isSameMachine reports whether a request comes from an address that is also the server's.
func isSameMachine(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && hostOf(local.String()) == hostOf(r.RemoteAddr)
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// pieceSize is the size of the pieces. A list of 500 small objects is one.
const pieceSize = 128 << 10

// pieces is a response that is written in pieces.
type pieces struct {
	http.ResponseWriter
	buffer *bufio.Writer
}

var pieceBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, pieceSize) }}

func newPieces(w http.ResponseWriter) pieces {
	buffer := pieceBuffers.Get().(*bufio.Writer)
	buffer.Reset(w)
	return pieces{w, buffer}
}

func (p pieces) release() {
	p.buffer.Reset(nil)
	pieceBuffers.Put(p.buffer)
}

func (p pieces) Write(data []byte) (int, error) { return p.buffer.Write(data) }

// Unwrap implements responsewriter.UserProvidedDecorator.
func (p pieces) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Flush implements http.Flusher.
func (p pieces) Flush() {
	if p.buffer.Flush() == nil {
		_ = http.NewResponseController(p.ResponseWriter).Flush()
	}
}
