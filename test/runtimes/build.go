// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/kindred-project/kindred/test/kept"
	"github.com/kindred-project/kindred/test/servers"
)

// build builds packages from the module in a directory below this one, in the version of target that it requires, and
// returns the directory of the programs. With tags, it builds with cgo: they select C libraries.
func build(ctx context.Context, source, target string, tags []string, packages ...string) (string, error) {
	source = filepath.Join("test/runtimes", source)
	version, err := servers.ListModule(ctx, source, "{{.Version}}", target)
	if err != nil {
		return "", err
	}
	bin, err := filepath.Abs(filepath.Join("test/runtimes/bin", path.Base(source)+"-"+version))
	if err != nil {
		return "", err
	}
	for _, pkg := range packages {
		key := kept.NewKey(pkg, version, tags, os.Getenv("GOFLAGS"))
		if err := key.AddFile(filepath.Join(source, "go.sum")); err != nil {
			return "", err
		}
		program := filepath.Join(bin, path.Base(pkg))
		if err := kept.File(program, key.String(), func() error {
			return compile(ctx, source, program, pkg, version, tags)
		}); err != nil {
			return "", err
		}
	}
	return bin, nil
}

func compile(ctx context.Context, source, program, pkg, version string, tags []string) error {
	fmt.Printf("build %s\n", path.Base(program))
	cgo := "CGO_ENABLED=0"
	if len(tags) > 0 {
		cgo = "CGO_ENABLED=1"
	}
	stamp := "-s -w -X github.com/containerd/containerd/version.Version=" + version + " -X main.version=" + strings.TrimPrefix(version, "v")
	// Build to another name, so that an interrupted build does not count as complete.
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-mod=readonly", "-tags", strings.Join(tags, ","),
		"-ldflags", stamp, "-o", program+".new", pkg)
	cmd.Dir, cmd.Env = source, append(os.Environ(), cgo)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	return os.Rename(program+".new", program)
}
