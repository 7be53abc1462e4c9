// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
)

// hookCounts has what was counted.
type hookCounts struct{ fallbacks, interrupted int }

func (c *hookCounts) HookFellBack()     { c.fallbacks++ }
func (c *hookCounts) SleepInterrupted() { c.interrupted++ }

// hangingUp returns a server that answers TLS in plain HTTP, and closes the connections of other requests.
func hangingUp(http.Handler) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
}

func TestHTTPHook(t *testing.T) {
	for _, test := range []struct {
		name    string
		scheme  v1.URIScheme
		server  func(http.Handler) *httptest.Server
		wantErr bool
		counted hookCounts
	}{
		{"plain", v1.URISchemeHTTP, httptest.NewServer, false, hookCounts{}},
		{"TLS", v1.URISchemeHTTPS, httptest.NewTLSServer, false, hookCounts{}},
		{"TLS to a plain server", v1.URISchemeHTTPS, httptest.NewServer, false, hookCounts{fallbacks: 1}},
		{"TLS to a plain server that hangs up", v1.URISchemeHTTPS, hangingUp, true, hookCounts{}},
		{"no server", v1.URISchemeHTTP, func(h http.Handler) *httptest.Server {
			s := httptest.NewServer(h)
			s.Close()
			return s
		}, true, hookCounts{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got string
			server := test.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = fmt.Sprintf("%s %s %s %s", r.Host, r.URL, r.Header.Get("X-Mine"), r.UserAgent())
				w.WriteHeader(http.StatusTeapot) // any response is a success
			}))
			defer server.Close()
			address, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			port, err := strconv.Atoi(address.Port())
			if err != nil {
				t.Fatal(err)
			}
			pod := testPod()
			pod.Status.PodIP = address.Hostname()
			get := &v1.HTTPGetAction{
				Path: "/hook?a=b", Port: intstr.FromInt(port), Scheme: test.scheme,
				HTTPHeaders: []v1.HTTPHeader{{Name: "Host", Value: "me"}, {Name: "X-Mine", Value: "1"}},
			}
			counted, recorder := hookCounts{}, record.NewFakeRecorder(10)
			_, err = Hooks{Observer: &counted, Recorder: recorder}.Run(t.Context(), pod, &pod.Spec.Containers[0], "id", &v1.LifecycleHandler{HTTPGet: get})
			if (err != nil) != test.wantErr {
				t.Fatalf("error %v", err)
			}
			if want := "me /hook?a=b 1 kube-lifecycle/1.37"; err == nil && got != want {
				t.Errorf("the hook requested %q, want %q", got, want)
			}
			if counted != test.counted {
				t.Errorf("counted %+v, want %+v", counted, test.counted)
			}
			close(recorder.Events)
			want := ""
			if test.counted.fallbacks > 0 {
				want = "Warning LifecycleHTTPFallback request to HTTPS lifecycle hook " + address.Host + " got HTTP response, retry with HTTP succeeded"
			}
			if event := <-recorder.Events; event != want {
				t.Errorf("event %q, want %q", event, want)
			}
		})
	}
}

func TestSleepHook(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	done, counted := make(chan error, 1), hookCounts{}
	sleep := func(ctx context.Context) {
		pod := testPod()
		_, err := Hooks{Clock: clock, Observer: &counted}.Run(ctx, pod, &pod.Spec.Containers[0], "id", &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}})
		done <- err
	}
	go sleep(t.Context())
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	clock.Step(5 * time.Second)
	if err := <-done; err != nil || counted.interrupted != 0 {
		t.Errorf("after the sleep: %v, %d sleeps count as interrupted", err, counted.interrupted)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go sleep(ctx)
	cancel()
	if err := <-done; err == nil || counted.interrupted != 1 {
		t.Errorf("a cancelled sleep: %v, %d sleeps count as interrupted", err, counted.interrupted)
	}
}
