// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"path/filepath"
)

var provisionerProgram = sidecarProgram("csi-provisioner", "external-provisioner/v6")

// BuildProvisioner builds upstream's external-provisioner in dir/bin from the module in dir/provisioner, and
// returns its path. dir is the directory of this package.
func BuildProvisioner(ctx context.Context, dir string) (string, error) {
	return provisionerProgram.Build(ctx, filepath.Join(dir, "provisioner"), filepath.Join(dir, "bin"))
}

// Sidecars has the paths of upstream's sidecars of CSI drivers.
type Sidecars struct {
	Provisioner, Attacher, Resizer, Snapshotter, SnapshotController string
	// SnapshotResources is the directory of the CustomResourceDefinitions of snapshots.
	SnapshotResources string
}

// BuildSidecars builds upstream's sidecars, as [BuildProvisioner] does.
func BuildSidecars(ctx context.Context, dir string) (s Sidecars, err error) {
	if s.Provisioner, err = BuildProvisioner(ctx, dir); err != nil {
		return Sidecars{}, err
	}
	module := filepath.Join(dir, "sidecars")
	for path, program := range map[*string]Program{
		&s.Attacher:           sidecarProgram("csi-attacher", "external-attacher/v4"),
		&s.Resizer:            sidecarProgram("csi-resizer", "external-resizer/v2"),
		&s.Snapshotter:        sidecarProgram("csi-snapshotter", "external-snapshotter/v8"),
		&s.SnapshotController: sidecarProgram("snapshot-controller", "external-snapshotter/v8"),
	} {
		if *path, err = program.Build(ctx, module, filepath.Join(dir, "bin")); err != nil {
			return Sidecars{}, err
		}
	}
	client, err := ListModule(ctx, module, "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8")
	s.SnapshotResources = filepath.Join(client, "config", "crd")
	return s, err
}

func sidecarProgram(name, module string) Program {
	return Program{Name: name, Package: "github.com/kubernetes-csi/" + module + "/cmd/" + name, LDFlags: "-s -w"}
}
