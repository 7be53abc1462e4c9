// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	users "k8s.io/apiserver/pkg/authentication/user"

	ownershipv1alpha1 "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// ownershipReviewer is the one role that upstream does not have.
const ownershipReviewer = "kindred:ownership-reviewer"

// addOwnership lets everybody ask about ownership, as upstream lets everybody ask what they
// may do: a review shows its caller no more than what they may read, and a repair or
// an undeletion writes as its caller, who needs permission for each write.
func (p *Policy) addOwnership() {
	p.clusterRole(ownershipReviewer,
		on(ownershipv1alpha1.GroupName, "deletionpreviews ownershipexplanations ownershiptrees ownershiplints ownershiprepairs undeletions deletionhistories", "create"),
	)
	p.bind(ownershipReviewer, group(users.AllAuthenticated))
}
