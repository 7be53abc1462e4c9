// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"path/filepath"
)

var provisionerProgram = Program{
	Name: "csi-provisioner", Package: "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner", LDFlags: "-s -w",
}

// BuildProvisioner builds upstream's external-provisioner in dir/bin from the module in dir/sidecars, and
// returns its path. dir is the directory of this package.
func BuildProvisioner(ctx context.Context, dir string) (string, error) {
	return provisionerProgram.Build(ctx, filepath.Join(dir, "sidecars"), filepath.Join(dir, "bin"))
}
