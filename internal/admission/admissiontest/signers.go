// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissiontest

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Signers is an authorizer that allows one verb for one signer, and nothing else.
type Signers struct{ Verb, Signer string }

// Authorize implements authorizer.UnconditionalAuthorizer.
func (s Signers) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetResource() == "signers" && a.GetVerb() == s.Verb && a.GetName() == s.Signer {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
