// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

const (
	// answeredLife is how long a request stays that was denied, given up or
	// answered with a certificate; pendingLife how long it may wait for that.
	answeredLife = time.Hour
	pendingLife  = 24 * time.Hour
)

// deadline is when a request has no use any more, if that can be said.
func deadline(r *request) (at time.Time, ends bool) {
	atLatest := func(t time.Time) {
		if !ends || t.Before(at) {
			at, ends = t, true
		}
	}
	if len(r.Status.Conditions) == 0 {
		atLatest(r.CreationTimestamp.Add(pendingLife))
	}
	for _, c := range r.Status.Conditions {
		issued := len(r.Status.Certificate) > 0
		if expiry, ok := expiry(r); ok && c.Type == certificatesv1.CertificateApproved {
			atLatest(expiry)
		}
		switch {
		case c.LastUpdateTime.IsZero():
		case c.Type == certificatesv1.CertificateApproved && !issued:
			atLatest(c.LastUpdateTime.Add(pendingLife))
		case c.Type == certificatesv1.CertificateApproved, c.Type == certificatesv1.CertificateDenied, c.Type == certificatesv1.CertificateFailed:
			atLatest(c.LastUpdateTime.Add(answeredLife))
		}
	}
	return at, ends
}

// expiry is when the certificate that was issued ends.
func expiry(r *request) (time.Time, bool) {
	issued, err := cert.ParseCertsPEM(r.Status.Certificate)
	if err != nil {
		return time.Time{}, false
	}
	return issued[0].NotAfter, true
}

func (r *reconciler) remove(ctx context.Context, done *request) error {
	return owned.IgnoreStale(r.client.Delete(ctx, done, client.Preconditions{UID: &done.UID}))
}
