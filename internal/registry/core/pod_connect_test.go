// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestEndApart checks that data which is read together with io.EOF is returned without it.
func TestEndApart(t *testing.T) {
	r := &endApart{ReadCloser: io.NopCloser(iotest.DataErrReader(strings.NewReader("alive")))}
	p := make([]byte, 16)
	if n, err := r.Read(p); string(p[:n]) != "alive" || err != nil {
		t.Errorf("first %q, %v", p[:n], err)
	}
	for range 2 {
		if n, err := r.Read(p); n != 0 || err != io.EOF {
			t.Errorf("then %d bytes, %v", n, err)
		}
	}
}
