// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// Signer signs with the cluster's CA. It returns a certificate for the public key with the
// content of the template and a new serial number, which expires no later than the CA. It
// returns an error if the CA has expired.
type Signer func(template *x509.Certificate, public crypto.PublicKey) (*x509.Certificate, error)

const (
	maxLifetime = 365 * 24 * time.Hour
	minLifetime = 10 * time.Minute
	// backdate is the tolerated clock skew. It is subtracted from the end of certificates
	// that are not short-lived, so that they are valid as long as requested.
	backdate   = 5 * time.Minute
	shortLived = 8 * time.Hour
)

// issue signs an approved request, or marks it as failed if its signer does not permit it.
func (r *reconciler) issue(ctx context.Context, found *request, now time.Time) error {
	permits, known := rules[found.Spec.SignerName]
	if !known {
		return nil
	}
	wanted, err := parse(found)
	if err != nil {
		return err
	}
	if err := permits(wanted, found.Spec.Usages); err != nil {
		found.Status.Conditions = append(found.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue,
			Reason: "SignerValidationFailure", Message: err.Error(), LastUpdateTime: metav1.NewTime(now),
		})
		return owned.IgnoreStale(r.client.Status().Update(ctx, found))
	}
	template, err := templateFor(wanted, found, now)
	if err != nil {
		return err
	}
	signed, err := r.sign(template, wanted.PublicKey)
	if err != nil {
		return err
	}
	found.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: signed.Raw})
	return owned.IgnoreStale(r.client.Status().Update(ctx, found))
}

// templateFor takes the names from the PKCS #10 request and the usages from the API object. It
// drops extensions of the PKCS #10 request.
func templateFor(wanted *x509.CertificateRequest, found *request, now time.Time) (*x509.Certificate, error) {
	template := &x509.Certificate{
		Subject:  wanted.Subject,
		DNSNames: wanted.DNSNames, IPAddresses: wanted.IPAddresses, EmailAddresses: wanted.EmailAddresses, URIs: wanted.URIs,
		BasicConstraintsValid: true,
	}
	for _, usage := range found.Spec.Usages {
		if of, ok := keyUsages[usage]; ok {
			template.KeyUsage |= of
		} else if of, ok := extendedUsages[usage]; !ok {
			return nil, fmt.Errorf("unrecognized usage values: %q", usage)
		} else if !slices.Contains(template.ExtKeyUsage, of) {
			template.ExtKeyUsage = append(template.ExtKeyUsage, of)
		}
	}
	slices.Sort(template.ExtKeyUsage)
	life := lifetime(found.Spec.ExpirationSeconds)
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(life)
	if life >= shortLived {
		template.NotAfter = template.NotAfter.Add(-backdate)
	}
	return template, nil
}

// lifetime returns the requested duration of a certificate, within limits.
func lifetime(seconds *int32) time.Duration {
	if seconds == nil {
		return maxLifetime
	}
	return min(max(time.Duration(*seconds)*time.Second, minLifetime), maxLifetime)
}

var keyUsages = map[certificatesv1.KeyUsage]x509.KeyUsage{
	certificatesv1.UsageSigning:           x509.KeyUsageDigitalSignature,
	certificatesv1.UsageDigitalSignature:  x509.KeyUsageDigitalSignature,
	certificatesv1.UsageContentCommitment: x509.KeyUsageContentCommitment,
	certificatesv1.UsageKeyEncipherment:   x509.KeyUsageKeyEncipherment,
	certificatesv1.UsageKeyAgreement:      x509.KeyUsageKeyAgreement,
	certificatesv1.UsageDataEncipherment:  x509.KeyUsageDataEncipherment,
	certificatesv1.UsageCertSign:          x509.KeyUsageCertSign,
	certificatesv1.UsageCRLSign:           x509.KeyUsageCRLSign,
	certificatesv1.UsageEncipherOnly:      x509.KeyUsageEncipherOnly,
	certificatesv1.UsageDecipherOnly:      x509.KeyUsageDecipherOnly,
}

var extendedUsages = map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
	certificatesv1.UsageAny:             x509.ExtKeyUsageAny,
	certificatesv1.UsageServerAuth:      x509.ExtKeyUsageServerAuth,
	certificatesv1.UsageClientAuth:      x509.ExtKeyUsageClientAuth,
	certificatesv1.UsageCodeSigning:     x509.ExtKeyUsageCodeSigning,
	certificatesv1.UsageEmailProtection: x509.ExtKeyUsageEmailProtection,
	certificatesv1.UsageSMIME:           x509.ExtKeyUsageEmailProtection,
	certificatesv1.UsageIPsecEndSystem:  x509.ExtKeyUsageIPSECEndSystem,
	certificatesv1.UsageIPsecTunnel:     x509.ExtKeyUsageIPSECTunnel,
	certificatesv1.UsageIPsecUser:       x509.ExtKeyUsageIPSECUser,
	certificatesv1.UsageTimestamping:    x509.ExtKeyUsageTimeStamping,
	certificatesv1.UsageOCSPSigning:     x509.ExtKeyUsageOCSPSigning,
	certificatesv1.UsageMicrosoftSGC:    x509.ExtKeyUsageMicrosoftServerGatedCrypto,
	certificatesv1.UsageNetscapeSGC:     x509.ExtKeyUsageNetscapeServerGatedCrypto,
}
