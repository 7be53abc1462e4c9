// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import "time"

// The states of certificates in metrics, as upstream's kubelet names them.
const (
	certNotIssued = "not_yet_issued"
	certDenied    = "denied"
	certFailed    = "failed"
	certFresh     = "fresh"
	certOverdue   = "overdue_for_refresh"
	certExpired   = "expired"
)

// refreshLimit is the time after which a certificate that should be renewed is overdue.
const refreshLimit = 10 * time.Minute

// CertificateClass is a class of certificates of pods: their signer and their state.
type CertificateClass struct{ Signer, State string }

// Certificates returns the numbers of the certificates of pods that have volumes.
func (m *Manager) Certificates() map[CertificateClass]int {
	counts, now := map[CertificateClass]int{}, m.options.Clock.Now()
	for _, state := range m.states() {
		for _, c := range state.shownCertificates() {
			counts[CertificateClass{c.signer, c.state(now)}]++
		}
	}
	return counts
}

// shownCertificate is what metrics tell of a certificate.
type shownCertificate struct {
	signer           string
	refusal          string // certDenied, certFailed or ""
	issued           bool
	refresh, expires time.Time // zero if unknown
}

// shown returns what metrics tell of the certificate.
func (c *podCertificate) shown(signer string) shownCertificate {
	return shownCertificate{signer: signer, refusal: c.refusal, issued: c.chain != nil, refresh: c.refresh, expires: c.expires}
}

func (c shownCertificate) state(now time.Time) string {
	switch {
	case c.refusal != "":
		return c.refusal
	case !c.issued:
		return certNotIssued
	case !c.expires.IsZero() && now.After(c.expires):
		return certExpired
	case !c.refresh.IsZero() && now.After(c.refresh.Add(refreshLimit)):
		return certOverdue
	}
	return certFresh
}
