// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package inprocess

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// maxBuffered is how many bytes of a stream the server may write ahead of the reader before it
// blocks, as on a full socket.
const maxBuffered = 1 << 20

// response is both ends of one response: the http.ResponseWriter that the
// server writes to and the body that the client reads.
type response struct {
	ctx     context.Context
	cancel  context.CancelFunc
	header  http.Header
	started chan struct{}
	// ahead is the number of bytes that the server may write ahead of the reader; maxBuffered by default.
	ahead int
	// detach has functions that unregister the callbacks of this response from contexts.
	detach []func() bool

	mu      sync.Mutex
	changed sync.Cond
	code    int
	buffer  bytes.Buffer
	// sent is a copy of the header from when the code was written: later changes are not sent.
	sent http.Header
	done bool
	err  error
}

var (
	_ http.ResponseWriter = &response{}
	_ http.Flusher        = &response{}
	_ io.ReadCloser       = body{}
)

func newResponse(ctx context.Context, cancel context.CancelFunc) *response {
	r := &response{ctx: ctx, cancel: cancel, header: http.Header{}, started: make(chan struct{}), ahead: maxBuffered}
	r.changed.L = &r.mu
	r.detach = append(r.detach, context.AfterFunc(ctx, r.wake))
	return r
}

// cancelAfter cancels the request when the caller's context is done. That context may live as long as
// the process, so the callback is unregistered when the request is complete.
func (r *response) cancelAfter(caller context.Context) {
	r.detach = append(r.detach, context.AfterFunc(caller, r.cancel))
}

func (r *response) Header() http.Header { return r.header }

func (r *response) WriteHeader(code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeHeader(code)
}

func (r *response) writeHeader(code int) {
	// 1xx codes are informational; the final one follows (RFC 9110).
	if r.code != 0 || code < 200 {
		return
	}
	r.code, r.sent = code, r.header.Clone()
	close(r.started)
}

func (r *response) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeHeader(http.StatusOK)
	for r.buffer.Len() > r.ahead && r.ctx.Err() == nil {
		r.changed.Wait()
	}
	if r.ctx.Err() != nil {
		return 0, io.ErrClosedPipe
	}
	r.changed.Broadcast()
	return r.buffer.Write(p)
}

// Flush implements http.Flusher. Written data can be read at once anyway.
func (r *response) Flush() { r.WriteHeader(http.StatusOK) }

// CloseNotify implements http.CloseNotifier, by which k8s.io/apiserver recognizes response writers
// that can stream (apiserver/pkg/endpoints/responsewriter).
func (r *response) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(r.ctx, func() { gone <- true })
	return gone
}

// SetReadDeadline and SetWriteDeadline satisfy http.ResponseController. The context of the request
// ends an in-process request.
func (r *response) SetReadDeadline(time.Time) error  { return nil }
func (r *response) SetWriteDeadline(time.Time) error { return nil }

// abort makes the reader fail with err, after what is written already.
func (r *response) abort(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	r.writeHeader(http.StatusInternalServerError)
}

// wake wakes a blocked reader or writer, so that it notices the end of the request's context.
func (r *response) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed.Broadcast()
}

// finish ends the body and the request: the reader gets io.EOF.
func (r *response) finish() {
	r.end()
	for _, detach := range r.detach {
		detach()
	}
	r.cancel()
}

// end marks the body as complete.
func (r *response) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeHeader(http.StatusOK)
	r.done = true
	r.changed.Broadcast()
}

// result returns the response for the client. The header must have been written.
func (r *response) result(req *http.Request) *http.Response {
	r.mu.Lock()
	defer r.mu.Unlock()
	length := int64(-1)
	if n, err := strconv.ParseInt(r.sent.Get("Content-Length"), 10, 64); err == nil {
		length = n
	}
	return &http.Response{
		Status:     strconv.Itoa(r.code) + " " + http.StatusText(r.code),
		StatusCode: r.code,
		Proto:      "HTTP/2.0", ProtoMajor: 2,
		Header:        r.sent,
		Body:          body{r},
		ContentLength: length,
		Request:       req,
	}
}

// body is the client's end of a response.
type body struct{ *response }

func (b body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.buffer.Len() == 0 {
		switch {
		case b.err != nil:
			return 0, b.err
		case b.done:
			return 0, io.EOF
		case b.ctx.Err() != nil:
			return 0, b.ctx.Err()
		}
		b.changed.Wait()
	}
	n, _ := b.buffer.Read(p)
	b.changed.Broadcast()
	return n, nil
}

// Close tells the server that the client has stopped reading.
func (b body) Close() error {
	b.cancel()
	return nil
}
