// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"path/filepath"
)

// BuildContainerd builds containerd and its shim in bin from a module that requires containerd, as
// [BuildUpstream] does, and returns the directory of the programs. Debian 12's containerd 1.6 has neither
// image volumes nor container events nor devices of CDI.
func BuildContainerd(ctx context.Context, source, bin string) (string, error) {
	const module = "github.com/containerd/containerd/v2"
	version, err := ListModule(ctx, source, "{{.Version}}", module)
	if err != nil {
		return "", err
	}
	bin = filepath.Join(bin, "containerd-"+version)
	for _, name := range []string{"containerd", "containerd-shim-runc-v2"} {
		program := Program{
			Name: name, Package: module + "/cmd/" + name,
			LDFlags: "-s -w -X " + module + "/version.Version=" + version,
		}
		if _, err := program.Build(ctx, source, bin); err != nil {
			return "", err
		}
	}
	return filepath.Abs(bin)
}
