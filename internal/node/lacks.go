// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"

	"github.com/kindred-project/kindred/internal/unserved"
)

// lacks returns the features that the kernel and the container runtime lack, as the Node's annotation has them.
func (r *reporter) lacks() string {
	var names []string
	for _, feature := range []struct {
		name    unserved.Feature
		lacking bool
	}{
		{unserved.AppArmor, !r.machine.appArmor},
		{unserved.ImageVolumes, noImageVolumes(r.version) != nil},
		{unserved.RecursiveReadOnlyMounts, isContainerdBefore(r.version, 2, 0)},
		{unserved.SELinux, !r.machine.seLinux},
		{unserved.UserNamespaces, isContainerdBefore(r.version, 2, 0)},
	} {
		if feature.lacking {
			names = append(names, string(feature.name))
		}
	}
	return strings.Join(names, ",")
}
