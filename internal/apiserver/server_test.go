// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/storage"
)

func TestBoot(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir := t.TempDir()
	start := time.Now()
	step := func(s string) { t.Log(s, time.Since(start)) }
	backend, err := storage.Embedded(ctx, filepath.Join(dir, "etcd"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	step("etcd")
	keys, err := pki.Open(filepath.Join(dir, "pki"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	step("pki")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Backend: backend, PKI: keys, Listener: listener, Names: pki.Names{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}},
		AdvertiseAddress: net.IPv4(127, 0, 0, 1), AdvertisePort: 6443, ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"), Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	step("new")
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	client, err := kubernetes.NewForConfig(s.Config(apiserverUser))
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		if err == nil || time.Since(start) > 10*time.Second {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	step("namespace")
	for {
		body, err := client.RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(ctx)
		if err == nil {
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatal(err, string(body))
		}
		time.Sleep(10 * time.Millisecond)
	}
	step("ready")
	cancel()
	t.Log(<-done)
	step("stopped")
}
