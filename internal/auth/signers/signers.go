// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signers authorizes actions on the certificate requests of a signer. A signer
// (example.com/mesh) is not an object: rules name it as a virtual resource, signers of
// certificates.k8s.io, or all signers of a domain as example.com/*.
package signers

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
)

// Allowed reports whether a user may do verb (approve, sign, attest) for a signer, or for its whole
// domain. It returns false if the authorizer fails.
func Allowed(ctx context.Context, a authorizer.UnconditionalAuthorizer, u user.Info, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, reason, err := a.Authorize(ctx, authorizer.AttributesRecord{
			User: u, Verb: verb, Name: name,
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
