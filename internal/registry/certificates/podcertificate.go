// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"errors"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/signers"
	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

type podRequest = certificatesv1.PodCertificateRequest

// podCertificateRequest returns the kind PodCertificateRequest: a node's request for a certificate
// that one of its pods mounts (KEP-4317). A signer answers it once; the answer is final.
func podCertificateRequest(a authorizer.UnconditionalAuthorizer) generic.Clocked[*podRequest] {
	return func(c clock.PassiveClock) generic.Kind[*podRequest] {
		return generic.Kind[*podRequest]{
			Name: "PodCertificateRequest", Plural: "podcertificaterequests",
			New:        func() *podRequest { return &podRequest{} },
			NewList:    func() runtime.Object { return &certificatesv1.PodCertificateRequestList{} },
			Spec:       func(r *podRequest) any { return &r.Spec },
			Status:     func(r *podRequest) any { return &r.Status },
			Generation: generic.NoGeneration,
			StatusUpdate: generic.Update[*podRequest]{
				Prepare: func(_ context.Context, r, old *podRequest) {
					metav1.ResetObjectMetaForStatus(&r.ObjectMeta, &old.ObjectMeta)
				},
				Resets:   []string{"metadata"},
				Validate: answer{c, a}.validate,
			},
			Validate: validatePodRequest,
			ValidateUpdate: func(_ context.Context, c *check.Checker, r, old *podRequest) {
				c.Add(apivalidation.ValidateImmutableField(r.Spec, old.Spec, specPath)...)
			},
			RequireResourceVersion: true,
			Fields: map[string]func(*podRequest) string{
				"spec.signerName": func(r *podRequest) string { return r.Spec.SignerName },
				"spec.podName":    func(r *podRequest) string { return r.Spec.PodName },
				"spec.nodeName":   func(r *podRequest) string { return string(r.Spec.NodeName) },
			},
			FieldSelection: generic.FieldSelection{NamespaceUnselectable: true},
			Table:          generic.Table[*podRequest]{ColumnsOnly: true}, // upstream has no column AGE
			Columns: []generic.Column[*podRequest]{
				generic.NameColumn[*podRequest](),
				{Name: "PodName", Description: podRequestDoc["podName"], Cell: func(r *podRequest) any { return r.Spec.PodName }},
				{Name: "ServiceAccountName", Description: podRequestDoc["serviceAccountName"], Cell: func(r *podRequest) any { return r.Spec.ServiceAccountName }},
				{Name: "NodeName", Description: podRequestDoc["nodeName"], Cell: func(r *podRequest) any { return string(r.Spec.NodeName) }},
				{Name: "SignerName", Description: podRequestDoc["signerName"], Cell: func(r *podRequest) any { return r.Spec.SignerName }},
				{Name: "State", Description: "Is the request Pending, Issued, Denied, or Failed?", Cell: podRequestState},
				{Name: "UnverifiedUserAnnotations", Description: podRequestDoc["unverifiedUserAnnotations"], Cell: func(r *podRequest) any {
					return labels.FormatLabels(r.Spec.UnverifiedUserAnnotations)
				}},
			},
		}
	}
}

var podRequestDoc = certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()

const (
	issued = certificatesv1.PodCertificateRequestConditionTypeIssued
	denied = certificatesv1.PodCertificateRequestConditionTypeDenied
	failed = certificatesv1.PodCertificateRequestConditionTypeFailed
)

// podRequestState returns the answer; validation permits only one.
func podRequestState(r *podRequest) any {
	state := "Pending"
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case issued, denied, failed:
			state = c.Type
		}
	}
	return state
}

// answer validates changes of a request's status, and authorizes the signer.
type answer struct {
	clock      clock.PassiveClock
	authorizer authorizer.UnconditionalAuthorizer
}

func (a answer) validate(ctx context.Context, c *check.Checker, r, old *podRequest) {
	valid := c.Passes(func() { validateAnswer(c, r, old, a.clock.Now()) })
	if !valid || equality.Semantic.DeepEqual(r.Status, old.Status) {
		return
	}
	path, signer := specPath.Child("signerName"), old.Spec.SignerName
	who, ok := request.UserFrom(ctx)
	if !ok {
		c.Add(field.InternalError(path, errors.New("cannot determine calling user to perform \"sign\" check")))
		return
	}
	if !signers.Allowed(ctx, a.authorizer, who, "sign", signer) {
		c.Forbidden(path, fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", who.GetName(), signer))
	}
}
