// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/utils/clock"
)

// storeGate refuses requests while an external etcd is unavailable. The etcd client would wait
// until the request times out, a minute; with the gate, callers get an error within seconds. The
// embedded etcd needs no gate: if it fails, the process ends.
type storeGate struct {
	check func(ctx context.Context) error
	clock clock.WithTicker
	codec runtime.NegotiatedSerializer

	mu  sync.Mutex
	err error
	// present is done when the etcd is lost, which also ends the requests that wait for it.
	present context.Context
	lose    context.CancelFunc
}

const (
	gateInterval = time.Second
	// gateFailures is the number of consecutive checks that must fail.
	gateFailures = 2
)

func newStoreGate(check func(context.Context) error, c clock.WithTicker, codec runtime.NegotiatedSerializer) *storeGate {
	g := &storeGate{check: check, clock: c, codec: codec}
	g.present, g.lose = context.WithCancel(context.Background())
	return g
}

// run checks the etcd periodically, until ctx is done.
func (g *storeGate) run(ctx context.Context) {
	ticker := g.clock.NewTicker(gateInterval)
	defer ticker.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		err := g.check(ctx)
		if err == nil {
			failures = 0
		} else {
			failures++
		}
		if err == nil || failures >= gateFailures {
			g.set(err)
		}
	}
}

// set stores the result of a check.
func (g *storeGate) set(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err != nil:
		g.lose()
	case g.err != nil:
		g.present, g.lose = context.WithCancel(context.Background())
	}
	g.err = err
}

func (g *storeGate) state() (present context.Context, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.present, g.err
}

// wrap refuses requests for resources while the etcd is unavailable. Watches continue: the watch
// caches are right, and there are no changes to miss.
func (g *storeGate) wrap(next http.Handler, longRunning request.LongRunningRequestCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || info.Verb == "watch" {
			next.ServeHTTP(w, req)
			return
		}
		present, err := g.state()
		if err != nil {
			g.refuse(w, req, info, err)
			return
		}
		if longRunning(req, info) {
			next.ServeHTTP(w, req) // a shell outlives a pause of the etcd
			return
		}
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		defer context.AfterFunc(present, cancel)()
		waiting := &lostWriter{ResponseWriter: w, refuse: func() bool {
			_, err := g.state()
			if err != nil {
				g.refuse(w, req, info, err)
			}
			return err != nil
		}}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(waiting), req.WithContext(ctx))
	})
}

func (g *storeGate) refuse(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, err error) {
	gone := apierrors.NewServiceUnavailable("the store of the cluster is gone: " + err.Error() + "; requests work again once it is back")
	responsewriters.ErrorNegotiated(gone, g.codec, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
}

// lostWriter replaces the error of a request that was waiting for the etcd by the real reason. The
// handler knows only that the context ended.
type lostWriter struct {
	http.ResponseWriter
	// refuse responds in place of the handler if the etcd is unavailable, and reports whether it
	// did.
	refuse  func() bool
	refused bool
}

func (w *lostWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *lostWriter) WriteHeader(code int) {
	if code == http.StatusGatewayTimeout && !w.refused {
		w.refused = w.refuse()
	}
	if !w.refused {
		w.ResponseWriter.WriteHeader(code)
	}
}

func (w *lostWriter) Write(body []byte) (int, error) {
	if w.refused {
		return len(body), nil
	}
	return w.ResponseWriter.Write(body)
}
