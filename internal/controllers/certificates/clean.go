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
	// answeredTTL is the time that a request is kept after it was denied, failed or issued;
	// pendingTTL is the time that it may be pending.
	answeredTTL = time.Hour
	pendingTTL  = 24 * time.Hour
)

// deadline returns when a request is deleted, if ever.
func deadline(r *request) (at time.Time, ends bool) {
	atLatest := func(t time.Time) {
		if !ends || t.Before(at) {
			at, ends = t, true
		}
	}
	if len(r.Status.Conditions) == 0 {
		atLatest(r.CreationTimestamp.Add(pendingTTL))
	}
	for _, c := range r.Status.Conditions {
		issued := len(r.Status.Certificate) > 0
		if expiry, ok := expiry(r); ok && c.Type == certificatesv1.CertificateApproved {
			atLatest(expiry)
		}
		switch {
		case c.LastUpdateTime.IsZero():
		case c.Type == certificatesv1.CertificateApproved && !issued:
			atLatest(c.LastUpdateTime.Add(pendingTTL))
		case c.Type == certificatesv1.CertificateApproved, c.Type == certificatesv1.CertificateDenied, c.Type == certificatesv1.CertificateFailed:
			atLatest(c.LastUpdateTime.Add(answeredTTL))
		}
	}
	return at, ends
}

// expiry returns when the issued certificate expires.
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
