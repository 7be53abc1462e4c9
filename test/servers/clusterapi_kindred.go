// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"fmt"
	"os"
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

	module string
	// args are those of cmd/release, without the version of the providers.
	args []string
}

// BuildKindredRelease writes a release with a program of Kindred to a directory. root is the directory of the project, and version the
// version of Kubernetes that this Kindred has.
func BuildKindredRelease(ctx context.Context, root, kindred, version, dir string) (r KindredRelease, err error) {
	module := filepath.Join(root, "clusterapi")
	upstream, err := ListModule(ctx, module, "{{.Version}}", clusterAPIModule)
	if err != nil {
		return r, err
	}
	paths := map[string]string{}
	for _, program := range []Program{
		{Name: "manager", Package: "./cmd/manager"}, {Name: "core", Package: clusterAPIModule + "/core"},
		{Name: "clusterctl", Package: clusterAPIModule + "/cmd/clusterctl"},
	} {
		program.LDFlags = "-s -w -X " + clusterAPIModule + "/version.gitVersion=" + upstream
		if paths[program.Name], err = program.Build(ctx, module, dir); err != nil {
			return r, err
		}
	}
	r = KindredRelease{Dir: filepath.Join(dir, "repository"), Clusterctl: paths["clusterctl"], Version: version, ClusterAPI: upstream, module: module}
	r.Config = filepath.Join(r.Dir, "clusterctl.yaml")
	r.args = []string{"--manager", paths["manager"], "--core", paths["core"], "--kindred", kindred, "--kubernetes-version", version, "--out", r.Dir}
	return r, r.WriteProviders(ctx, "v0.1.0")
}

// WriteProviders adds a version of Kindred's providers to the repository. The configuration and the image are of that version then.
func (r KindredRelease) WriteProviders(ctx context.Context, version string) error {
	release := exec.CommandContext(ctx, "go", append([]string{"run", "./cmd/release", "--version", version}, r.args...)...)
	release.Dir, release.Stderr = r.module, os.Stderr
	_, err := release.Output()
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
