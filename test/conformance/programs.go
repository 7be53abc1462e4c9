// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/kindred-project/kindred/test/servers"
)

// module is a published module.
type module struct{ Dir, Version string }

// findKubernetes finds the module that the suite is built from.
func findKubernetes(ctx context.Context, dir string) (m module, err error) {
	found, err := servers.ListModule(ctx, dir, "{{.Dir}} {{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return module{}, err
	}
	m.Dir, m.Version, _ = strings.Cut(found, " ")
	return m, nil
}

// programs are the programs that run the suite.
type programs struct {
	ginkgo, suite, kubectl string
}

// buildPrograms builds the programs in bin, in the versions that the module in dir requires.
func buildPrograms(ctx context.Context, dir, bin string) (p programs, err error) {
	for _, program := range []struct {
		path *string
		servers.Program
	}{
		{&p.ginkgo, servers.Program{Name: "ginkgo", Package: "github.com/onsi/ginkgo/v2/ginkgo", LDFlags: "-s -w"}},
		{&p.suite, servers.Program{Name: "e2e.test", Package: "k8s.io/kubernetes/test/e2e", LDFlags: servers.UpstreamStamp, Tests: true}},
		{&p.kubectl, servers.Program{Name: "kubectl", Package: "k8s.io/kubernetes/cmd/kubectl", LDFlags: servers.UpstreamStamp}},
	} {
		if *program.path, err = program.Build(ctx, dir, bin); err != nil {
			return programs{}, err
		}
	}
	return p, nil
}

// buildContainerd builds the node's container runtime and returns the directory of its programs.
// Debian 12's containerd 1.6 has neither image volumes nor container events.
func buildContainerd(ctx context.Context, dir, bin string) (string, error) {
	const module = "github.com/containerd/containerd/v2"
	source := filepath.Join(dir, "containerd")
	version, err := servers.ListModule(ctx, source, "{{.Version}}", module)
	if err != nil {
		return "", err
	}
	bin = filepath.Join(bin, "containerd-"+version)
	for _, name := range []string{"containerd", "containerd-shim-runc-v2"} {
		program := servers.Program{
			Name: name, Package: module + "/cmd/" + name,
			LDFlags: "-s -w -X " + module + "/version.Version=" + version,
		}
		if _, err := program.Build(ctx, source, bin); err != nil {
			return "", err
		}
	}
	return filepath.Abs(bin)
}
