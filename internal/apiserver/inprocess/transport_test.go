// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package inprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

func client(t *testing.T, handler http.HandlerFunc) *http.Client {
	t.Helper()
	server := &Server{}
	server.Serve(handler)
	c, err := rest.HTTPClientFor(server.Config(&user.DefaultInfo{Name: "jane"}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestIdentityOfConfig(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, req *http.Request) {
		response, ok, err := Authenticator().AuthenticateRequest(req)
		if err != nil || !ok {
			http.Error(w, "anonymous", http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, response.User.GetName())
	})
	response, err := c.Get(host + "/whoami")
	if err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(response.Body)
	if string(got) != "jane" {
		t.Errorf("acted as %q, want jane", got)
	}
}

func TestAuthenticatorRefusesRequestsFromOutside(t *testing.T) {
	req, _ := http.NewRequest(http.MethodGet, host, nil)
	if _, ok, err := Authenticator().AuthenticateRequest(req); ok || err != nil {
		t.Errorf("a request without identity: ok %v, err %v", ok, err)
	}
}

func TestBodyStreams(t *testing.T) {
	next := make(chan string)
	c := client(t, func(w http.ResponseWriter, req *http.Request) {
		for s := range next {
			fmt.Fprint(w, s)
			w.(http.Flusher).Flush()
		}
	})
	go func() { next <- "one" }()
	response, err := c.Get(host)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 3)
	if _, err := io.ReadFull(response.Body, p); err != nil || string(p) != "one" {
		t.Fatalf("read %q, %v before the handler ended", p, err)
	}
	next <- "two"
	close(next)
	rest, err := io.ReadAll(response.Body)
	if err != nil || string(rest) != "two" {
		t.Errorf("read %q, %v", rest, err)
	}
}

func TestCloseStopsTheHandler(t *testing.T) {
	stopped := make(chan error, 1)
	c := client(t, func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(http.StatusOK)
		<-req.Context().Done()
		_, err := w.Write([]byte("x"))
		stopped <- err
	})
	response, err := c.Get(host)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if err := <-stopped; err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write after close: %v", err)
	}
}

func TestCancelledReaderDoesNotHang(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(http.StatusOK)
		<-req.Context().Done()
	})
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, host, nil)
	response, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	go cancel()
	if _, err := io.ReadAll(response.Body); !errors.Is(err, context.Canceled) && err != nil {
		t.Errorf("read after cancel: %v", err)
	}
}

func TestBodyLargerThanBuffer(t *testing.T) {
	const total = 3 * maxBuffered
	c := client(t, func(w http.ResponseWriter, req *http.Request) {
		chunk := []byte(strings.Repeat("x", maxBuffered/4))
		for written := 0; written < total; written += len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	response, err := c.Get(host)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(response.Body)
	if err != nil || len(got) != total {
		t.Errorf("read %d bytes, %v; want %d", len(got), err, total)
	}
}

func TestPanicIsAnError(t *testing.T) {
	c := client(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	response, err := c.Get(host)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(response.Body); err == nil {
		t.Error("a handler that panicked left no error")
	}
}

func TestNotServingYet(t *testing.T) {
	c, err := rest.HTTPClientFor((&Server{}).Config(&user.DefaultInfo{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(host); !errors.Is(err, errNotServing) {
		t.Errorf("got %v", err)
	}
}

func TestCallerContextValuesAreNotPassedOn(t *testing.T) {
	type key struct{}
	c := client(t, func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprint(w, req.Context().Value(key{}))
	})
	req, _ := http.NewRequestWithContext(context.WithValue(context.Background(), key{}, "secret"), http.MethodGet, host, nil)
	response, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(response.Body); string(got) != "<nil>" {
		t.Errorf("the server saw %s", got)
	}
}

// longLived is a context that lives as long as the process, and counts its callbacks.
type longLived struct {
	context.Context
	waiting atomic.Int64
}

// AfterFunc is called by package context to register callbacks.
func (l *longLived) AfterFunc(func()) (stop func() bool) {
	l.waiting.Add(1)
	return func() bool { l.waiting.Add(-1); return true }
}

func TestFinishedRequestsDetachFromCaller(t *testing.T) {
	finished := make(chan struct{})
	c := client(t, func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprint(w, "done")
		context.AfterFunc(req.Context(), func() { finished <- struct{}{} })
	})
	caller := &longLived{Context: t.Context()}
	for range 3 {
		req, _ := http.NewRequestWithContext(caller, http.MethodGet, host, nil)
		response, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(response.Body); string(got) != "done" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		<-finished // although the body is never closed
	}
	if n := caller.waiting.Load(); n != 0 {
		t.Errorf("%d requests are still registered with their caller's context", n)
	}
}

func TestBufferedResponses(t *testing.T) {
	const total = 3 * maxBuffered // not read while it is written
	for _, method := range []string{http.MethodDelete, http.MethodPost, http.MethodPut, http.MethodPatch} {
		t.Run(method, func(t *testing.T) {
			c := client(t, func(w http.ResponseWriter, req *http.Request) {
				w.WriteHeader(http.StatusAccepted)
				for range 3 {
					if _, err := w.Write(make([]byte, maxBuffered)); err != nil {
						t.Error(err)
					}
				}
			})
			req, _ := http.NewRequest(method, host, nil)
			response, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(response.Body)
			if err != nil || len(got) != total || response.StatusCode != http.StatusAccepted {
				t.Errorf("%d, %d bytes, %v; want %d", response.StatusCode, len(got), err, total)
			}
		})
	}
}

func TestBufferedRequestEndsWithCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	c := client(t, func(w http.ResponseWriter, req *http.Request) {
		cancel()
		<-req.Context().Done()
	})
	req, _ := http.NewRequestWithContext(ctx, http.MethodDelete, host, nil)
	if _, err := c.Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
