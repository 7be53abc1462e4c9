// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// health asks for the health of a Service, and returns the status code, the header and the number of endpoints.
func health(port int) (string, error) {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/anything", port))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Service             struct{ Namespace, Name string }
		LocalEndpoints      int
		ServiceProxyHealthy bool
	}
	err = json.Unmarshal(body, &answer)
	return fmt.Sprintf("%d weight %s: %s/%s has %d, healthy %t", response.StatusCode, response.Header.Get("X-Load-Balancing-Endpoint-Weight"),
		answer.Service.Namespace, answer.Service.Name, answer.LocalEndpoints, answer.ServiceProxyHealthy), err
}

func TestHealthCheckNodePort(t *testing.T) {
	client, _, events := start(t)
	ctx := t.Context()
	expect := func(port int, want string) {
		t.Helper()
		var got string
		var err error
		for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(10 * time.Millisecond) {
			if got, err = health(port); got == want {
				return
			}
		}
		t.Fatalf("port %d: %q, %v; want %q", port, got, err, want)
	}
	change := func(do func(*v1.Service)) {
		t.Helper()
		svc, err := client.CoreV1().Services("ns").Get(ctx, "svc", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		do(svc)
		if _, err := client.CoreV1().Services("ns").Update(ctx, svc, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	change(func(s *v1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceTypeLoadBalancer, v1.ServiceExternalTrafficPolicyLocal, 31000
	})
	expect(31000, "200 weight 1: ns/svc has 1, healthy true")
	slice, err := client.DiscoveryV1().EndpointSlices("ns").Get(ctx, "svc-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slice.Endpoints[0].NodeName = ptr.To("elsewhere")
	if _, err = client.DiscoveryV1().EndpointSlices("ns").Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(31000, "503 weight 0: ns/svc has 0, healthy true")
	change(func(s *v1.Service) { s.Spec.HealthCheckNodePort = 31001 })
	expect(31001, "503 weight 0: ns/svc has 0, healthy true")
	expect(31000, "")

	// A Service whose port is taken gets one event, and the port when it is free. The rest goes on.
	other := newService("other", "10.96.0.2")
	other.Spec.ExternalTrafficPolicy, other.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 31001
	if _, err := client.CoreV1().Services("ns").Create(ctx, other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-events.Events:
		if !strings.HasPrefix(e, `Warning FailedToStartServiceHealthcheck node here failed to start healthcheck "ns/other" on port 31001: listen tcp`) {
			t.Error(e)
		}
	case <-time.After(5 * time.Second):
		t.Error("no event")
	}
	if err := client.CoreV1().Services("ns").Delete(ctx, "svc", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(31001, "503 weight 0: ns/other has 0, healthy true")
	if len(events.Events) > 0 {
		t.Errorf("another event: %s", <-events.Events)
	}
}
