// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package signers

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rules is an authorizer that allows the listed "verb name" pairs.
type rules map[string]bool

func (r rules) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetResource() != "signers" || a.GetAPIGroup() != "certificates.k8s.io" || !a.IsResourceRequest() {
		return authorizer.DecisionDeny, "", errors.New("asked for something else")
	}
	if a.GetName() == "broken.example.com/a" {
		return authorizer.DecisionAllow, "", errors.New("broken")
	}
	if r[a.GetVerb()+" "+a.GetName()] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestAllowed(t *testing.T) {
	r := rules{"sign example.com/a": true, "approve example.org/*": true}
	for question, want := range map[[2]string]bool{
		{"sign", "example.com/a"}:           true,
		{"sign", "example.com/b"}:           false,
		{"approve", "example.com/a"}:        false,
		{"approve", "example.org/anything"}: true,
		{"sign", "broken.example.com/a"}:    false,
	} {
		if got := Allowed(t.Context(), r, &user.DefaultInfo{Name: "a"}, question[0], question[1]); got != want {
			t.Errorf("%s %s: %v", question[0], question[1], got)
		}
	}
}
