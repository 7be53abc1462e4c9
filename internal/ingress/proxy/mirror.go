// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

const (
	// maxMirroredBody is how long the body of a request may be that is mirrored, in bytes.
	maxMirroredBody = 1 << 20
	mirrorTimeout   = 15 * time.Second
)

// keeping keeps what is read of a request's body.
type keeping struct {
	io.ReadCloser
	read  bytes.Buffer
	whole bool
}

// keep replaces the body of a request by one that keeps what is read.
func keep(r *http.Request) *keeping {
	if r.Body == nil || r.Body == http.NoBody {
		return &keeping{whole: true}
	}
	k := &keeping{ReadCloser: r.Body, whole: false}
	r.Body = k
	return k
}

func (k *keeping) Read(into []byte) (int, error) {
	n, err := k.ReadCloser.Read(into)
	if k.read.Len() <= maxMirroredBody {
		k.read.Write(into[:n])
	}
	k.whole = k.whole || err == io.EOF
	return n, err
}

// complete reports whether the whole body was read and kept.
func (k *keeping) complete(length int64) bool {
	return k.read.Len() <= maxMirroredBody && (k.whole || int64(k.read.Len()) == length)
}

// mirror sends copies of a request to the mirrors, after it was answered. Requests that the backend has not read to
// their end, or that are too long, are not mirrored.
func (s *Server) mirror(r *http.Request, kept *keeping, rule *route.Rule) {
	if !kept.complete(r.ContentLength) {
		return
	}
	body := kept.read.Bytes()
	for i := range rule.Action.Mirrors {
		m := &rule.Action.Mirrors[i]
		if m.Backend.Refusal != nil || m.Denominator <= 0 || rand.IntN(m.Denominator) >= m.Numerator {
			continue
		}
		select {
		case s.mirroring <- struct{}{}:
		default:
			continue
		}
		copied := r.Clone(context.WithoutCancel(r.Context()))
		copied.Body = http.NoBody
		if len(body) > 0 {
			copied.Body = io.NopCloser(bytes.NewReader(body))
			copied.ContentLength = int64(len(body))
		}
		go func() {
			defer func() { <-s.mirroring }()
			ctx, cancel := context.WithTimeout(copied.Context(), mirrorTimeout)
			defer cancel()
			s.exchange(discard{}, copied.WithContext(ctx), &exchange{rule: rule, backend: &m.Backend, mirrored: true})
		}()
	}
}

// discard ignores a response.
type discard struct{}

func (discard) Header() http.Header               { return http.Header{} }
func (discard) Write(content []byte) (int, error) { return len(content), nil }
func (discard) WriteHeader(int)                   {}
