// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

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

// TrustBundleName is the name of the plugin TrustBundle in the API server's
// configuration.
const TrustBundleName = "ClusterTrustBundleAttest"

// TrustBundle admits writes of a signer's ClusterTrustBundles only from users who
// may attest for the signer (KEP-3257).
type TrustBundle struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
}

var (
	_ admission.ValidationInterface            = &TrustBundle{}
	_ initializer.WantsUnconditionalAuthorizer = &TrustBundle{}
)

// NewTrustBundle returns the plugin.
func NewTrustBundle() *TrustBundle {
	return &TrustBundle{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// SetUnconditionalAuthorizer implements initializer.WantsUnconditionalAuthorizer.
func (p *TrustBundle) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) {
	p.authorizer = a
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *TrustBundle) ValidateInitialization() error {
	if p.authorizer == nil {
		return fmt.Errorf("%s needs an authorizer", TrustBundleName)
	}
	return nil
}

// Validate implements admission.ValidationInterface. A bundle's signer is
// immutable, so the new object's is also the old one's.
func (p *TrustBundle) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
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
	if old, ok := a.GetOldObject().(*certificatesv1.ClusterTrustBundle); ok && changesOnlyOwners(bundle, old) {
		return nil
	}
	if !signers.Allowed(ctx, p.authorizer, a.GetUserInfo(), "attest", signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to attest for signerName %q", signer))
	}
	return nil
}

// changesOnlyOwners reports whether an update changes only owner references and
// finalizers, which the garbage collector writes, or nothing, as storage migration does.
func changesOnlyOwners(bundle, old *certificatesv1.ClusterTrustBundle) bool {
	same := bundle.DeepCopy()
	same.OwnerReferences, same.Finalizers = old.OwnerReferences, old.Finalizers
	same.SelfLink, same.ManagedFields = old.SelfLink, old.ManagedFields
	return equality.Semantic.DeepEqual(same, old)
}
