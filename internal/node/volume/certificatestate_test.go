// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCertificates: a certificate is to be renewed after an hour and expires after two.
func TestCertificates(t *testing.T) {
	answers := func(kind string) func(*fixture, *certificatesv1.PodCertificateRequest) {
		return func(_ *fixture, request *certificatesv1.PodCertificateRequest) {
			request.Status.Conditions = []metav1.Condition{{Type: kind}}
		}
	}
	issues := func(f *fixture, request *certificatesv1.PodCertificateRequest) {
		f.issued(1, request)
		request.Status.NotAfter = new(metav1.NewTime(f.clock.Now().Add(2 * time.Hour)))
	}
	for name, test := range map[string]struct {
		answer func(*fixture, *certificatesv1.PodCertificateRequest)
		after  time.Duration
		again  bool // a renewal is requested, and the signer does not answer
		want   string
	}{
		"denied":           {answers(certificatesv1.PodCertificateRequestConditionTypeDenied), 0, false, "denied"},
		"failed":           {answers(certificatesv1.PodCertificateRequestConditionTypeFailed), 0, true, "failed"},
		"issued":           {issues, 0, false, "fresh"},
		"to be renewed":    {issues, time.Hour + refreshLimit, false, "fresh"},
		"is being renewed": {issues, time.Hour + refreshJitter, true, "fresh"},
		"overdue":          {issues, time.Hour + refreshJitter + refreshLimit + time.Second, true, "overdue_for_refresh"},
		"expires":          {issues, 2 * time.Hour, false, "overdue_for_refresh"},
		"expired":          {issues, 2*time.Hour + time.Second, true, "expired"},
	} {
		f := newFixture(t)
		s := newSigner(t, f)
		s.answer = func(_ int, request *certificatesv1.PodCertificateRequest) { test.answer(f, request) }
		pod := certificatePod()
		source := pod.Spec.Volumes[0].Projected.Sources[0].PodCertificate
		ask := func() { _, _, _ = f.certificateFiles(t.Context(), pod, certificateKey{volume: "v"}, source, nil) }
		ask()
		f.clock.Step(test.after)
		if s.answer = func(int, *certificatesv1.PodCertificateRequest) {}; test.again {
			ask()
		}
		if diff := cmp.Diff(map[CertificateClass]int{{"example.com/signer", test.want}: 1}, f.Certificates()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCertificateIsCountedWhileAwaited: metrics do not wait for a signer.
func TestCertificateIsCountedWhileAwaited(t *testing.T) {
	f := newFixture(t)
	s := newSigner(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Prepare(ctx, certificatePod()) }()
	eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.created == 1 })
	if diff := cmp.Diff(map[CertificateClass]int{{"example.com/signer", "not_yet_issued"}: 1}, f.Certificates()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	cancel()
	<-done
}
