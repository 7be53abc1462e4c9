// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signers decides who may act on certificate requests of a signer. A
// signer (example.com/mesh) is no object: rules speak of the made-up resource
// signers of certificates.k8s.io, by its name or, for all of a domain, by
// example.com/*.
package signers

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
)

// Allowed says whether somebody may do verb (approve, sign, attest) for a signer,
// or for its whole domain. Who cannot be judged may not.
func Allowed(ctx context.Context, a authorizer.UnconditionalAuthorizer, who user.Info, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, reason, err := a.Authorize(ctx, authorizer.AttributesRecord{
			User: who, Verb: verb, Name: name,
			APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers", ResourceRequest: true,
		})
		if err != nil {
			klog.FromContext(ctx).V(3).Info("Cannot authorize for a signer", "verb", verb, "signer", name, "reason", reason, "err", err)
			continue
		}
		if decision == authorizer.DecisionAllow {
			return true
		}
	}
	return false
}
