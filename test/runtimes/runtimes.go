// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"

	"github.com/kindred-project/kindred/test/servers"
)

// runtime is a combination of a CRI runtime and an OCI runtime.
type runtime struct {
	name string
	// prepare builds what it needs, and returns the variables that make the scenarios use it. The function that it
	// returns stops what prepare started.
	prepare func(ctx context.Context) (env []string, stop func(), err error)
}

// runtimes are all that are tested. The system's is Debian's package, containerd 1.6 in Debian 12. All have crun as a
// handler beside runc; with containerd-2-crun, crun is in the place of runc, so that all pods run in it.
var runtimes = []runtime{
	{"system", containerdWith(fetchCrun)},
	{"containerd-1.7", containerdWith(buildContainerd17, buildRunc, fetchCrun)},
	{"containerd-2", containerdWith(buildContainerd2, buildRunc, fetchCrun)},
	{"containerd-2-crun", containerdWith(buildContainerd2, fetchCrun, crunAsRunc)},
	{"cri-o", startCRIO},
}

func runtimeNames() []string {
	var names []string
	for _, r := range runtimes {
		names = append(names, r.name)
	}
	return names
}

// builder builds programs, and returns their directory.
type builder func(ctx context.Context) (dir string, err error)

// containerdWith returns the preparation of a containerd and an OCI runtime that Kindred finds through PATH.
func containerdWith(builders ...builder) func(context.Context) ([]string, func(), error) {
	return func(ctx context.Context) ([]string, func(), error) {
		path := os.Getenv("PATH")
		for _, build := range builders {
			dir, err := build(ctx)
			if err != nil {
				return nil, nil, err
			}
			path = dir + string(os.PathListSeparator) + path
		}
		return []string{"PATH=" + path}, func() {}, nil
	}
}

func buildContainerd2(ctx context.Context) (string, error) {
	return servers.BuildContainerd(ctx, "test/conformance/containerd", "test/servers/bin")
}

func buildContainerd17(ctx context.Context) (string, error) {
	const module = "github.com/containerd/containerd"
	return build(ctx, "containerd1.7", module, nil, module+"/cmd/containerd", module+"/cmd/containerd-shim-runc-v2")
}

// buildRunc builds runc with seccomp, without which it cannot run CRI containers, so it needs cgo and libseccomp.
func buildRunc(ctx context.Context) (string, error) {
	const module = "github.com/opencontainers/runc"
	return build(ctx, "runc", module, []string{"seccomp"}, module)
}
