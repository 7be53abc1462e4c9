// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	users "k8s.io/apiserver/pkg/authentication/user"

	ownershipv1alpha1 "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// ownershipReviewer is the role of everybody who asks about owners and dependents.
const ownershipReviewer = "kindred:ownership-reviewer"

// addOwnership lets every authenticated user create ownership reviews, as upstream lets them create
// self subject access reviews. A review shows only objects that its caller may read, and a repair
// or an undeletion writes as its caller, who needs permission for each write.
func (p *Policy) addOwnership() {
	p.clusterRole(ownershipReviewer,
		on(ownershipv1alpha1.GroupName, "deletionpreviews ownershipexplanations ownershiptrees ownershiplints ownershiprepairs undeletions deletionhistories", "create"),
	)
	p.bind(ownershipReviewer, group(users.AllAuthenticated))
}
