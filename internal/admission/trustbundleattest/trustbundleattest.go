// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trustbundleattest lets only those write a ClusterTrustBundle of a signer
// who may attest for it (KEP-3257).
package trustbundleattest

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kindred-project/kindred/internal/auth/signers"
)

// Name is the plugin's name in the API server's configuration.
const Name = "ClusterTrustBundleAttest"

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
}

var (
	_ admission.ValidationInterface            = &Plugin{}
	_ initializer.WantsUnconditionalAuthorizer = &Plugin{}
)

// New returns the plugin.
func New() *Plugin { return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)} }

// SetUnconditionalAuthorizer implements initializer.WantsUnconditionalAuthorizer.
func (p *Plugin) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) { p.authorizer = a }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.authorizer == nil {
		return fmt.Errorf("%s needs an authorizer", Name)
	}
	return nil
}

// Validate implements admission.ValidationInterface. The signer of a bundle never
// changes, so that either version names it.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != certificatesv1.Resource("clustertrustbundles") {
		return nil
	}
	bundle, ok := a.GetObject().(*certificatesv1.ClusterTrustBundle)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type ClusterTrustBundle, got: %T", a.GetObject()))
	}
	signer := bundle.Spec.SignerName
	if signer == "" {
		return nil
	}
	if old, ok := a.GetOldObject().(*certificatesv1.ClusterTrustBundle); ok && onlyCollected(bundle, old) {
		return nil
	}
	if !signers.Allowed(ctx, p.authorizer, a.GetUserInfo(), "attest", signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to attest for signerName %q", signer))
	}
	return nil
}

// onlyCollected says whether nothing differs but what the garbage collector and
// storage migration write.
func onlyCollected(bundle, old *certificatesv1.ClusterTrustBundle) bool {
	same := bundle.DeepCopy()
	same.OwnerReferences, same.Finalizers = old.OwnerReferences, old.Finalizers
	same.SelfLink, same.ManagedFields = old.SelfLink, old.ManagedFields
	return equality.Semantic.DeepEqual(same, old)
}
