// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/datadir"
)

func TestKubeconfigRenewal(t *testing.T) {
	dir := datadir.Layout{Root: filepath.Join(t.TempDir(), "data")}
	if err := os.Mkdir(dir.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	keys, err := pki.Open(dir.PKI(), clock)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{config: Config{Dir: dir, Clock: clock}, keys: keys}
	if err := c.writeAdminKubeconfig(); err != nil {
		t.Fatal(err)
	}
	first := clientCertificate(t, c.Kubeconfig())

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- renewCertificates(ctx, keys, clock) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	clock.Step(300 * 24 * time.Hour)
	for end := time.Now().Add(30 * time.Second); bytes.Equal(clientCertificate(t, c.Kubeconfig()), first); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the certificate was not renewed with two months left")
		}
	}
	renewed, err := cert.ParseCertsPEM(clientCertificate(t, c.Kubeconfig()))
	if err != nil || renewed[0].NotAfter.Sub(clock.Now()) < 300*24*time.Hour || renewed[0].Subject.CommonName != adminUser.Name {
		t.Errorf("renewed %v, %v", renewed, err)
	}
}

func clientCertificate(t *testing.T, kubeconfig string) []byte {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config.CertData
}
