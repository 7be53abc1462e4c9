// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
)

// TestTrackingIsKept: a running server recreates the ConfigMap, with the current date.
func TestTrackingIsKept(t *testing.T) {
	start := time.Date(2026, 1, 2, 23, 45, 0, 0, time.UTC)
	client, c := fake.NewClientset(), testingclock.NewFakeClock(start)
	s := &Server{clock: c}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	ticker := c.NewTicker(trackingInterval)
	go func() {
		defer close(ended)
		s.keepConfigMaps(ctx, client, ticker)
	}()
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	since := func() string {
		found, err := maps.Get(t.Context(), trackingName, metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return found.Data["since"]
	}
	becomes := func(want string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); since() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("since %q, want %q", since(), want)
			}
		}
	}
	c.Step(trackingInterval)
	becomes("2026-01-03")
	if err := maps.Delete(t.Context(), trackingName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Step(24 * time.Hour)
	becomes("2026-01-04")
	stop()
	<-ended
}

// TestTrust: extension API servers find out how to authenticate. Keys that others added stay.
func TestTrust(t *testing.T) {
	configs := server.client(t).CoreV1().ConfigMaps(metav1.NamespaceSystem)
	found, err := configs.Get(t.Context(), trustName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"client-ca-file": string(server.keys.Cluster.CertPEM), "requestheader-client-ca-file": string(server.keys.FrontProxy.CertPEM),
		"requestheader-allowed-names": `["front-proxy-client"]`, "requestheader-username-headers": `["X-Remote-User"]`, "requestheader-uid-headers": `["X-Remote-Uid"]`,
		"requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	} {
		if found.Data[key] != want {
			t.Errorf("%s is %q, want %q", key, found.Data[key], want)
		}
	}
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: trustName}, Data: map[string]string{"more": "1", "client-ca-file": "old"}})
	for range 2 {
		if err := ensureTrust(t.Context(), client, map[string]string{"client-ca-file": "new"}); err != nil {
			t.Fatal(err)
		}
	}
	writes := 0
	for _, action := range client.Actions() {
		if action.GetVerb() == "update" {
			writes++
		}
	}
	kept, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), trustName, metav1.GetOptions{})
	if err != nil || kept.Data["more"] != "1" || kept.Data["client-ca-file"] != "new" || writes != 1 {
		t.Errorf("%v, %v after %d writes", kept, err, writes)
	}
}
