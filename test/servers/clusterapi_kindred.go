// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// KindredRelease is a release of Cluster API with Kindred's own providers.
type KindredRelease struct {
	// Dir is a repository of clusterctl, and Config its configuration.
	Dir, Config string
	// Clusterctl is the program.
	Clusterctl string
	// Version is the version of Kubernetes that its Kindred has, and ClusterAPI that of Cluster API's core.
	Version, ClusterAPI string

	// args are those of make, without the version of the providers.
	args []string
}

// BuildKindredRelease writes a release with a program of Kindred to a directory, as "make capi-release" does. root is the directory of the
// project, and version the version of Kubernetes that this Kindred has.
func BuildKindredRelease(ctx context.Context, root, kindred, version, dir string) (r KindredRelease, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return r, err
	}
	if kindred, err = filepath.Abs(kindred); err != nil {
		return r, err
	}
	upstream, err := ListModule(ctx, filepath.Join(root, "clusterapi"), "{{.Version}}", clusterAPIModule)
	if err != nil {
		return r, err
	}
	r = KindredRelease{Dir: filepath.Join(dir, "repository"), Clusterctl: filepath.Join(dir, "clusterctl"), Version: version, ClusterAPI: upstream}
	r.Config = filepath.Join(r.Dir, "clusterctl.yaml")
	// The program of Kindred is there already: --old-file leaves the target "build" out.
	r.args = []string{"--directory", root, "--old-file", "build", "capi-release", "BIN=" + kindred, "KUBERNETES_VERSION=" + version, "CAPI_BIN=" + dir, "CAPI_RELEASE=" + r.Dir}
	return r, r.WriteProviders(ctx, "v0.1.0")
}

// WriteProviders adds a version of Kindred's providers to the repository. The configuration and the image are of that version then.
func (r KindredRelease) WriteProviders(ctx context.Context, version string) error {
	_, err := run(ctx, "", "make", append(r.args, "CAPI_VERSION="+version)...)
	return err
}

// KubernetesVersion returns the version of Kubernetes that a program of Kindred reports.
func KubernetesVersion(ctx context.Context, kindred string) (string, error) {
	out, err := exec.CommandContext(ctx, kindred, "version").Output()
	if err != nil {
		return "", err
	}
	for field := range strings.FieldsSeq(string(out)) {
		if version := strings.Trim(field, "(),"); strings.HasPrefix(version, "v1.") {
			return version, nil
		}
	}
	return "", fmt.Errorf("kindred version prints no version of Kubernetes: %s", out)
}
