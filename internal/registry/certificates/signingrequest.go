// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

type (
	csr       = certificatesv1.CertificateSigningRequest
	condition = certificatesv1.CertificateSigningRequestCondition
)

// signingRequest returns the kind CertificateSigningRequest. Its spec, which includes the
// requesting user, is immutable. Approvers write conditions through the subresource approval,
// signers the certificate through status.
func signingRequest(c clock.PassiveClock) generic.Kind[*csr] {
	return generic.Kind[*csr]{
		Name: "CertificateSigningRequest", Plural: "certificatesigningrequests", ShortNames: []string{"csr"}, ClusterScoped: true,
		New:        func() *csr { return &csr{} },
		NewList:    func() runtime.Object { return &certificatesv1.CertificateSigningRequestList{} },
		Metadata:   generic.Metadata{ValidName: anyName},
		Spec:       func(r *csr) any { return &r.Spec },
		Status:     func(r *csr) any { return &r.Status },
		Generation: generic.NoGeneration,
		Prepare:    prepareRequest,
		Resets:     []string{"spec"},
		StatusUpdate: generic.Update[*csr]{
			Prepare: func(_ context.Context, r, old *csr) {
				keepConditions(r, old, certificatesv1.CertificateApproved)
				keepConditions(r, old, certificatesv1.CertificateDenied)
				setConditionTimes(r, old, c)
			},
			Resets:   []string{"status.conditions"},
			Validate: csrUpdate{signs: true}.validate,
		},
		Validate:       validateRequest,
		ValidateUpdate: csrUpdate{}.validate,
		Updates: map[string]generic.Update[*csr]{"approval": {
			Prepare: func(_ context.Context, r, old *csr) {
				setConditionTimes(r, old, c)
				conditions := r.Status.Conditions
				r.Spec, r.Status = old.Spec, old.Status
				r.Status.Conditions = conditions
			},
			Validate: csrUpdate{approves: true}.validate,
			Resets:   []string{"spec", "status.certificate"},
		}},
		Fields: map[string]func(*csr) string{"spec.signerName": func(r *csr) string { return r.Spec.SignerName }},
		Table: generic.Table[*csr]{AfterAge: []generic.Column[*csr]{
			{Name: "SignerName", Description: csrDoc["signerName"], Cell: func(r *csr) any { return generic.OrNone(r.Spec.SignerName) }},
			{Name: "Requestor", Description: csrDoc["request"], Cell: func(r *csr) any { return r.Spec.Username }},
			{Name: "RequestedDuration", Description: csrDoc["expirationSeconds"], Cell: durationText},
			{Name: "Condition", Description: certificatesv1beta1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"], Cell: stateText},
		}},
	}
}

// csrDoc is the documentation of v1beta1, which upstream's columns still use.
var csrDoc = certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()

// prepareRequest sets the user of a new request, and reverts changes of the spec.
func prepareRequest(ctx context.Context, r, old *csr) {
	if old != nil {
		r.Spec = old.Spec
		return
	}
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = "", "", nil, nil
	user, ok := request.UserFrom(ctx)
	if !ok {
		return
	}
	r.Spec.Username, r.Spec.UID, r.Spec.Groups = user.GetName(), user.GetUID(), user.GetGroups()
	for key, values := range user.GetExtra() {
		if r.Spec.Extra == nil {
			r.Spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		r.Spec.Extra[key] = values
	}
}

func ofType(conditions []condition, t certificatesv1.RequestConditionType) []condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c condition) bool { return c.Type != t })
}

// keepConditions reverts changes of conditions of type t, which a signer must not change.
// Validation refuses added and removed ones.
func keepConditions(r, old *csr, t certificatesv1.RequestConditionType) {
	before := ofType(old.Status.Conditions, t)
	if len(before) != len(ofType(r.Status.Conditions, t)) {
		return
	}
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == t {
			r.Status.Conditions[i], before = before[0], before[1:]
		}
	}
}

// setConditionTimes sets missing update and transition times of conditions.
func setConditionTimes(r, old *csr, c clock.PassiveClock) {
	now := metav1.NewTime(c.Now())
	for i := range r.Status.Conditions {
		this := &r.Status.Conditions[i]
		if this.LastUpdateTime.IsZero() {
			this.LastUpdateTime = now
		}
		if !this.LastTransitionTime.IsZero() {
			continue
		}
		this.LastTransitionTime = now
		same := func(c condition) bool {
			return c.Type == this.Type && c.Status == this.Status && !c.LastTransitionTime.IsZero()
		}
		if j := slices.IndexFunc(old.Status.Conditions, same); j >= 0 {
			this.LastTransitionTime = old.Status.Conditions[j].LastTransitionTime
		}
	}
}

func durationText(r *csr) any {
	if r.Spec.ExpirationSeconds == nil {
		return generic.OrNone("")
	}
	return duration.HumanDuration(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
}

func stateText(r *csr) any {
	has := func(t certificatesv1.RequestConditionType) bool { return len(ofType(r.Status.Conditions, t)) > 0 }
	state := "Pending"
	switch {
	case has(certificatesv1.CertificateDenied):
		state = "Denied"
	case has(certificatesv1.CertificateApproved):
		state = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		state += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		state += ",Issued"
	}
	return state
}
