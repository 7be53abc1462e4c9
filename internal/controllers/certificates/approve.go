// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// The permissions of the requester may change, so an undecided request is checked again after a
// time that grows with its age, within these limits.
const (
	minRecheck = time.Second
	maxRecheck = 1000 * time.Second
)

// approval is a rule for automatic approval: the requester must be authorized to create the
// virtual subresource.
type approval struct {
	applies     func(*request, *x509.CertificateRequest) bool
	subresource string
	message     string
	// check, if set, is a further condition. It may also return why the request is denied.
	check func(context.Context, *reconciler, *x509.CertificateRequest) (approve bool, denial string, err error)
}

// approvals holds the rules in the order in which they are tried.
var approvals = []approval{
	{ownClientCertificate, "selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.", nil},
	{nodeClientCertificate, "nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.", refuseKnownNode},
	{ownServingCertificate, "selfnodeclient", "Auto approving kubelet serving certificate for the addresses of the node.", hasOwnNames},
}

// nodeClientCertificate reports whether the request is for a client certificate of a node.
func nodeClientCertificate(r *request, wanted *x509.CertificateRequest) bool {
	return r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName && checkNodeClient(wanted, r.Spec.Usages) == nil
}

// ownClientCertificate reports whether a node requests a client certificate of its own, to renew
// it.
func ownClientCertificate(r *request, wanted *x509.CertificateRequest) bool {
	return r.Spec.Username == wanted.Subject.CommonName && nodeClientCertificate(r, wanted)
}

// decide approves a request if a rule permits it. Otherwise it returns when to check again, or 0
// for never.
func (r *reconciler) decide(ctx context.Context, found *request, now time.Time) (time.Duration, error) {
	wanted, err := parse(found)
	if err != nil {
		return 0, err
	}
	var again time.Duration
	for _, a := range approvals {
		if !a.applies(found, wanted) {
			continue
		}
		again = min(max(now.Sub(found.CreationTimestamp.Time), minRecheck), maxRecheck)
		allowed, err := r.permitted(ctx, found, a.subresource)
		if err != nil {
			return 0, err
		}
		denial := ""
		if allowed && a.check != nil {
			if allowed, denial, err = a.check(ctx, r, wanted); err != nil {
				return 0, err
			}
		}
		if denial != "" {
			found.Status.Conditions = append(found.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "AutoDenied", Message: denial,
			})
			return 0, owned.IgnoreStale(r.client.SubResource("approval").Update(ctx, found))
		}
		if allowed {
			found.Status.Conditions = append(found.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: a.message,
			})
			err := owned.IgnoreStale(r.client.SubResource("approval").Update(ctx, found))
			if apierrors.IsForbidden(err) {
				// The bootstrap role does not permit serving certificates. The first "kindred token create" does.
				return again, nil
			}
			return 0, err
		}
	}
	return again, nil
}

// permitted reports whether the requester may create the subresource.
func (r *reconciler) permitted(ctx context.Context, found *request, subresource string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range found.Spec.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: found.Spec.Username, UID: found.Spec.UID, Groups: found.Spec.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests", Subresource: subresource, Verb: "create",
		},
	}}
	err := r.client.Create(ctx, review)
	return review.Status.Allowed, err
}
