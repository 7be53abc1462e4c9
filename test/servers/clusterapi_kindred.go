// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// KindredProvider is a release of Kindred's own providers of Cluster API.
type KindredProvider struct {
	// Dir is the repository of clusterctl, Image the archive with the image of the manager, and Version the version of Kubernetes that
	// its Kindred has.
	Dir, Image, Version string
}

// BuildKindredProvider writes a release with a program of Kindred to a directory. root is the directory of the project.
func BuildKindredProvider(ctx context.Context, root, kindred, version, dir string) (KindredProvider, error) {
	module := filepath.Join(root, "clusterapi")
	manager := Program{Name: "manager", Package: "./cmd/manager", LDFlags: "-s -w"}
	program, err := manager.Build(ctx, module, dir)
	if err != nil {
		return KindredProvider{}, err
	}
	out := filepath.Join(dir, "repository")
	release := exec.CommandContext(ctx, "go", "run", "./cmd/release", "--manager", program, "--kindred", kindred, "--kubernetes-version", version, "--out", out)
	release.Dir, release.Stderr = module, os.Stderr
	if _, err := release.Output(); err != nil {
		return KindredProvider{}, err
	}
	return KindredProvider{Dir: out, Image: filepath.Join(out, "manager.tar"), Version: version}, nil
}

// KindredProviders are the names of the providers of a release. Each has its namespace, kindred-NAME-system.
var KindredProviders = []string{"infrastructure", "bootstrap", "control-plane"}

// Components is the manifest of a provider, with variables set.
func (p KindredProvider) Components(name string, variables map[string]string) (string, error) {
	return p.read(filepath.Join(name+"-kindred", "*", name+"-components.yaml"), variables)
}

// Template is a template of clusters of the release, with variables set.
func (p KindredProvider) Template(name string, variables map[string]string) (string, error) {
	return p.read(filepath.Join("infrastructure-kindred", "*", name), variables)
}

// read reads the only file that matches.
func (p KindredProvider) read(pattern string, variables map[string]string) (string, error) {
	files, err := filepath.Glob(filepath.Join(p.Dir, pattern))
	if err != nil {
		return "", err
	}
	if len(files) != 1 {
		return "", fmt.Errorf("%d files match %s in %s", len(files), pattern, p.Dir)
	}
	text, err := os.ReadFile(files[0])
	return Substitute(string(text), variables), err
}
