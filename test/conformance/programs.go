// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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

// The suites of upstream: that of clusters, and that of node agents.
const (
	clusterSuite = "cluster"
	nodeSuite    = "node"
)

// suitePrograms are the programs of the suites.
var suitePrograms = map[string]servers.Program{
	clusterSuite: {Name: "e2e.test", Package: "k8s.io/kubernetes/test/e2e", LDFlags: servers.UpstreamStamp, Tests: true},
	nodeSuite:    {Name: "e2e_node.test", Package: "k8s.io/kubernetes/test/e2e_node", LDFlags: servers.UpstreamStamp, Tests: true},
}

// buildPrograms builds the programs of a suite in bin, in the versions that the module in dir requires.
func buildPrograms(ctx context.Context, dir, bin, suite string) (p programs, err error) {
	for _, program := range []struct {
		path *string
		servers.Program
	}{
		{&p.ginkgo, servers.Program{Name: "ginkgo", Package: "github.com/onsi/ginkgo/v2/ginkgo", LDFlags: "-s -w"}},
		{&p.suite, suitePrograms[suite]},
		{&p.kubectl, servers.Program{Name: "kubectl", Package: "k8s.io/kubernetes/cmd/kubectl", LDFlags: servers.UpstreamStamp}},
	} {
		if *program.path, err = program.Build(ctx, dir, bin); err != nil {
			return programs{}, err
		}
	}
	return p, nil
}
