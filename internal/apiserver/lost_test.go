// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/storage"
	"github.com/kindred-project/kindred/test/etcd"
)

// TestGate: the store gate closes when etcd is lost and opens when it is back.
func TestGate(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Unix(1000, 0))
	answers := make(chan error)
	gate := newStoreGate(func(context.Context) error { return <-answers }, fake, scheme.Codecs)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go gate.run(ctx)
	tick := func(err error) {
		for !fake.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		fake.Step(gateInterval)
		answers <- err
	}
	entered := make(chan struct{})
	handler := gate.wrap(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/wait" {
			close(entered)
			<-req.Context().Done()
			w.WriteHeader(http.StatusGatewayTimeout)
			_, _ = w.Write([]byte("cut short"))
		}
	}), func(_ *http.Request, info *request.RequestInfo) bool { return info.Subresource == "exec" })
	serve := func(path string, info request.RequestInfo) *httptest.ResponseRecorder {
		req := httptest.NewRequest(http.MethodGet, path, nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req.WithContext(request.WithRequestInfo(req.Context(), &info)))
		return w
	}
	get := request.RequestInfo{IsResourceRequest: true, Verb: "get", Resource: "pods", APIVersion: "v1"}

	waiting := make(chan *httptest.ResponseRecorder)
	go func() { waiting <- serve("/wait", get) }()
	<-entered
	broken := errors.New("etcd does not answer")
	tick(broken)
	if w := serve("/", get); w.Code != http.StatusOK {
		t.Errorf("one failure closed the gate: %d", w.Code)
	}
	tick(broken)
	if w := <-waiting; w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "etcd does not answer") || strings.Contains(w.Body.String(), "cut short") {
		t.Errorf("a request in progress: %d %s", w.Code, w.Body)
	}
	w := serve("/", get)
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "etcd does not answer") || w.Header().Get("Retry-After") != "" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := serve("/", request.RequestInfo{IsResourceRequest: true, Verb: "watch", Resource: "pods"}); w.Code != http.StatusOK {
		t.Errorf("a watch: %d", w.Code)
	}
	if w := serve("/readyz", request.RequestInfo{Verb: "get"}); w.Code != http.StatusOK {
		t.Errorf("a path that is not a resource: %d", w.Code)
	}
	tick(nil)
	err := within(5*time.Second, func() error {
		if w := serve("/", get); w.Code != http.StatusOK {
			return errors.New(w.Body.String())
		}
		return nil
	})
	if err != nil {
		t.Errorf("after etcd is back: %v", err)
	}
}

// TestLostEtcd: when an external etcd is lost, requests fail quickly, with an error that names the
// cause.
func TestLostEtcd(t *testing.T) {
	dir := t.TempDir()
	store := etcd.Local(t, filepath.Join(dir, "external"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	backend, err := storage.External{Servers: []string{store.Address}}.Connect(ctx, clock.RealClock{}, storage.DefaultRetention)
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	s, err := boot(ctx, dir, backend)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); <-s.stopped }()
	maps := s.client(t).CoreV1().ConfigMaps("default")
	if _, err := maps.Create(ctx, configMap("a", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	store.Close()

	start := time.Now()
	_, err = maps.Create(ctx, configMap("b", nil), metav1.CreateOptions{})
	if waited := time.Since(start); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "the store of the cluster is gone") || waited > 15*time.Second {
		t.Errorf("a request at the time of the loss: %v after %s", err, waited)
	}
	_, err = maps.Get(ctx, "a", metav1.GetOptions{})
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "etcd does not answer") {
		t.Errorf("a request after the loss: %v", err)
	}
}
