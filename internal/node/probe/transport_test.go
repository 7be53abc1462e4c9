// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// answer is a server that reads a request and answers each with the same bytes, or keeps the connection open.
func answer(t testing.TB, text string, keep bool) (url string, requests chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests = make(chan string, 10)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 4096)
			n, _ := connection.Read(buffer)
			requests <- string(buffer[:n])
			_, _ = io.WriteString(connection, text)
			if keep {
				defer connection.Close()
				continue
			}
			_ = connection.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	return "http://" + listener.Addr().String() + "/x?y=z", requests
}

// read requests a URL, and returns the response as text, or the error.
func read(t *testing.T, client *http.Client, ctx context.Context, url string, headers http.Header) string {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = headers.Clone()
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	text := response.Status + " " + string(content)
	if err != nil {
		text += " " + err.Error()
	}
	return text
}

// TestTransportIsUpstreams compares with http.Transport, whose errors are in upstream's events: the same requests, responses
// and errors.
func TestTransportIsUpstreams(t *testing.T) {
	const limit = 300 * time.Millisecond
	inner := &newTransport().Transport
	theirs := &http.Client{Transport: inner, Timeout: limit, CheckRedirect: sameHost}
	ours := &http.Client{Transport: newTransport(), CheckRedirect: sameHost}
	for name, tc := range map[string]struct {
		answer  string
		keep    bool
		headers http.Header
	}{
		"a response":               {answer: "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"},
		"more than its length":     {answer: "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodybody"},
		"less than its length":     {answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody"},
		"until the end":            {answer: "HTTP/1.0 200 OK\r\n\r\nbody"},
		"chunks":                   {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"},
		"a broken chunk":           {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"},
		"no content":               {answer: "HTTP/1.1 204 No Content\r\n\r\n", keep: true},
		"not modified":             {answer: "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", keep: true},
		"early hints":              {answer: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"},
		"continue":                 {answer: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		"switching protocols":      {answer: "HTTP/1.1 101 Switching Protocols\r\n\r\n"},
		"too many hints":           {answer: strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 7)},
		"nothing":                  {answer: ""},
		"half a status":            {answer: "HTTP/1.1 20"},
		"half a head":              {answer: "HTTP/1.1 200 OK\r\nContent-"},
		"not HTTP":                 {answer: "SSH-2.0-OpenSSH\r\n\r\n"},
		"an invalid header":        {answer: "HTTP/1.1 200 OK\r\nno colon\r\n\r\n"},
		"an invalid length":        {answer: "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"},
		"silence":                  {keep: true},
		"a head and silence":       {answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n", keep: true},
		"a long header":            {answer: "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 10*headSize) + "\r\nContent-Length: 1\r\n\r\nb"},
		"headers":                  {answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", headers: http.Header{"X": {"1", "2"}, "User-Agent": {"u"}}},
		"a header of a connection": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", headers: http.Header{"Connection": {"x"}}},
		"an upgrade":               {answer: "HTTP/1.1 101 Switching Protocols\r\n\r\n", headers: http.Header{"Upgrade": {"x"}, "Connection": {"upgrade"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, requests := answer(t, tc.answer, tc.keep)
			want := read(t, theirs, t.Context(), url, tc.headers)
			wantRequest := <-requests
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if got := read(t, ours, ctx, url, tc.headers); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if got := <-requests; sorted(got) != sorted(wantRequest) {
				t.Errorf("request\n%s\nwant\n%s", got, wantRequest)
			}
		})
	}
}

// sorted returns the lines of a request in a canonical order: that of headers has no meaning.
func sorted(request string) string {
	lines := strings.Split(request, "\r\n")
	slices.Sort(lines[1:])
	return strings.Join(lines, "\n")
}

// TestTransportClosed: a port without a server, and the end of the caller.
func TestTransportClosed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String() + "/"
	_ = listener.Close()
	client := &http.Client{Transport: newTransport()}
	if got, want := read(t, client, t.Context(), url, nil), "connect: connection refused"; !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want …%s", got, want)
	}
	url, requests := answer(t, "", true)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-requests
		cancel()
	}()
	if got := read(t, client, ctx, url, nil); strings.HasPrefix(got, "200") {
		t.Errorf("a cancelled request got %s", got)
	}
}

// BenchmarkHTTP is what a probe costs, with the server's part.
func BenchmarkHTTP(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "body") }))
	defer server.Close()
	ours := newTransport()
	for name, transport := range map[string]http.RoundTripper{"ours": ours, "net-http": &ours.Transport} {
		client := &http.Client{Transport: transport}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				ctx, cancel := context.WithTimeout(b.Context(), time.Second)
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
				if err != nil {
					b.Fatal(err)
				}
				response, err := client.Do(request)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				cancel()
			}
		})
	}
}
