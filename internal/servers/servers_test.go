// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestServers: servers are listed with what they announced, the one that leads and those that are lost are known, and a server that
// stops is not listed any more, nor one that has been lost for a day.
func TestServers(t *testing.T) {
	client, c := fake.NewClientset(), clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	if all := list(t, client); len(all) > 0 {
		t.Errorf("servers of a cluster without: %v", all)
	}
	if err := renew(t.Context(), client, Server{Name: "old"}, c.Now().Add(-25*time.Hour)); err != nil {
		t.Fatal(err)
	}
	crashed := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseOf("a"), Namespace: metav1.NamespaceSystem, UID: "before the crash"}}
	if _, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), crashed, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stopA := announce(t, client, Server{Name: "a", URL: "https://10.0.0.1:6443", Version: "v1"}, c)
	stopB := announce(t, client, Server{Name: "b", URL: "https://10.0.0.2:6443", Version: "v2"}, c)
	if _, err := Leader(t.Context(), client); err == nil {
		t.Error("a leader without an election")
	}
	lead(t, client, "b")
	all := list(t, client)
	want := []Server{
		{Name: "a", URL: "https://10.0.0.1:6443", Version: "v1", Seen: c.Now()},
		{Name: "b", URL: "https://10.0.0.2:6443", Version: "v2", Seen: c.Now(), Leads: true},
	}
	if !slices.Equal(all, want) {
		t.Errorf("servers %+v", all)
	}
	if leader, err := Leader(t.Context(), client); err != nil || leader != want[1] {
		t.Errorf("leader %+v, %v", leader, err)
	}
	if lease, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), LeaseOf("a"), metav1.GetOptions{}); err != nil || lease.UID != "" {
		t.Errorf("the Lease is the one of before the crash: %+v, %v", lease, err)
	}
	stopA()
	if all = list(t, client); len(all) != 1 || all[0].Name != "b" {
		t.Errorf("servers after a has stopped: %+v", all)
	}
	if all[0].IsLost(c.Now().Add(lifetime)) || !all[0].IsLost(c.Now().Add(lifetime+time.Second)) {
		t.Error("a server is lost after another time than its Lease says")
	}
	stopB()
}

// announce announces a server until the returned function is called, and returns once it is listed.
func announce(t *testing.T, client kubernetes.Interface, server Server, c *clocktesting.FakeClock) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Announce(ctx, client, server, c) }()
	for !slices.ContainsFunc(list(t, client), func(s Server) bool { return s.Name == server.Name }) {
		time.Sleep(time.Millisecond)
	}
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func list(t *testing.T, client kubernetes.Interface) []Server {
	t.Helper()
	all, err := List(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func lead(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaderLease}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &name}}
	if _, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
