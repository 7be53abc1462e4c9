// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package userns

import (
	"errors"
	"fmt"
	"os/exec"
	"os/user"
)

// account is the user whose subordinate IDs pods get, as documented for kubelets.
const account = "kubelet"

// hostRange returns the IDs for pods: the subordinate IDs of the user kubelet, if that user and the program getsubids exist,
// else all IDs from idsPerPod.
func hostRange(idsPerPod int64) (Range, error) {
	if _, err := user.Lookup(account); err != nil {
		var unknown user.UnknownUserError
		if errors.As(err, &unknown) {
			return defaultRange(idsPerPod), nil
		}
		return Range{}, fmt.Errorf("look up the user %s: %w", account, err)
	}
	getsubids, err := exec.LookPath("getsubids")
	if err != nil {
		return defaultRange(idsPerPod), nil
	}
	// If the user exists and has no IDs, their source may be unreachable: this is an error.
	users, err := exec.Command(getsubids, account).Output()
	if err != nil {
		return Range{}, fmt.Errorf("error retrieving additional uids for user %q: %w", account, err)
	}
	groups, err := exec.Command(getsubids, "-g", account).Output()
	if err != nil {
		return Range{}, fmt.Errorf("error retrieving additional gids for user %q: %w", account, err)
	}
	if string(users) != string(groups) {
		return Range{}, fmt.Errorf("mismatched subuids and subgids for user %q", account)
	}
	return parseSubIDs(string(users))
}
