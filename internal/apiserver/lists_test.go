// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// pieceRecorder records the sizes of the pieces of a response.
type pieceRecorder struct {
	*httptest.ResponseRecorder
	sizes []int
}

func (r *pieceRecorder) Write(data []byte) (int, error) {
	r.sizes = append(r.sizes, len(data))
	return r.ResponseRecorder.Write(data)
}

// sent returns the pieces of a response that a handler writes in items of 1 kB, and whether the handler may compress it.
func sent(t *testing.T, verb, client string, handler http.HandlerFunc) (*pieceRecorder, bool) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps", nil)
	r.RemoteAddr = client
	r.Header.Set("Accept-Encoding", "gzip")
	ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: verb, IsResourceRequest: true})
	r = r.WithContext(context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6443})))
	w := &pieceRecorder{ResponseRecorder: httptest.NewRecorder()}
	compresses := false
	sendLists(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		compresses = r.Header.Get("Accept-Encoding") != ""
		handler(w, r)
	})).ServeHTTP(w, r)
	return w, compresses
}

func items(count int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := range count {
			_, _ = w.Write(bytes.Repeat([]byte{byte(i)}, 1<<10))
		}
	}
}

// TestListsAreSentInPieces: and nothing is lost, whatever the length is.
func TestListsAreSentInPieces(t *testing.T) {
	for count, want := range map[int][]int{0: nil, 1: {1 << 10}, 128: {pieceSize}, 300: {pieceSize, pieceSize, 44 << 10}} {
		w, _ := sent(t, "list", "192.0.2.2:1234", items(count))
		if !slices.Equal(w.sizes, want) {
			t.Errorf("a list of %d kB is sent in pieces of %v, want %v", count, w.sizes, want)
		}
		whole := httptest.NewRecorder()
		items(count)(whole, nil)
		if !bytes.Equal(w.Body.Bytes(), whole.Body.Bytes()) {
			t.Errorf("a list of %d kB is not what was written", count)
		}
	}
	if w, _ := sent(t, "watch", "192.0.2.2:1234", items(3)); len(w.sizes) != 3 {
		t.Errorf("the events of a watch are sent in pieces of %v, want each on its own", w.sizes)
	}
}

// TestFlushedList: what a handler flushes is sent.
func TestFlushedList(t *testing.T) {
	w, _ := sent(t, "list", "192.0.2.2:1234", func(w http.ResponseWriter, r *http.Request) {
		items(2)(w, r)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		items(1)(w, r)
	})
	if want := []int{2 << 10, 1 << 10}; !slices.Equal(w.sizes, want) || !w.Flushed {
		t.Errorf("pieces of %v, flushed %t; want %v", w.sizes, w.Flushed, want)
	}
}

// TestAbortedList: a client must not take what was written before a panic for the whole list.
func TestAbortedList(t *testing.T) {
	var to *pieceRecorder
	defer func() {
		if recover() == nil {
			t.Error("the panic is lost")
		}
		if to.Body.Len() > 0 {
			t.Errorf("%d bytes of the list are sent", to.Body.Len())
		}
		// The buffer that was not sent is not sent with the next list either.
		if w, _ := sent(t, "list", "192.0.2.2:1234", items(1)); w.Body.Len() != 1<<10 {
			t.Errorf("the next list has %d bytes", w.Body.Len())
		}
	}()
	sent(t, "list", "192.0.2.2:1234", func(w http.ResponseWriter, r *http.Request) {
		to = w.(pieces).ResponseWriter.(*pieceRecorder)
		items(1)(w, r)
		panic(http.ErrAbortHandler)
	})
}

// TestCompression: clients on the same machine get lists without compression.
func TestCompression(t *testing.T) {
	for _, tc := range []struct {
		verb, client string
		want         bool
	}{
		{"list", "192.0.2.1:1234", false},
		{"list", "192.0.2.2:1234", true},
		{"list", "[2001:db8::1]:1234", true},
		{"get", "192.0.2.1:1234", true},
	} {
		if _, got := sent(t, tc.verb, tc.client, items(1)); got != tc.want {
			t.Errorf("%s from %s: may be compressed: %t, want %t", tc.verb, tc.client, got, tc.want)
		}
	}
}
