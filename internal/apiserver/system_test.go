// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"testing"
	"time"

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
		s.keepTokenTracking(ctx, client, ticker)
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
