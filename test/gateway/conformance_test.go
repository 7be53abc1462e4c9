// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"

	"github.com/kindred-project/kindred/test/images"
	"github.com/kindred-project/kindred/test/servers"
)

const (
	className = "kindred"
	// pool has the addresses of Gateways. They are loopback addresses, so that no packet leaves the machine.
	pool     = "127.77.0.0/24"
	usable   = "127.77.0.200"
	unusable = "127.78.0.1"
)

// echoServer are the names of the image of the backends in the suite's manifests. The DNS server is a backend of
// UDPRoutes, whose tests are not run. But its pod must be ready before the suite begins, so it is a backend as well.
var echoServer = []string{
	"registry.k8s.io/gateway-api/echo-basic:v1.5.1",
	"registry.k8s.io/gateway-api/echo-basic:v1.6.0-dev.2",
	"registry.k8s.io/gateway-api/echo-basic:v1.6.0-dev.3",
	"registry.k8s.io/coredns/coredns:v1.12.2",
}

// TestConformance runs the suite with the features that the GatewayClass lists. The report is written to the file that
// GATEWAY_REPORT names.
func TestConformance(t *testing.T) {
	binary := os.Getenv("KINDRED_BIN")
	if binary == "" {
		t.Fatal("KINDRED_BIN is not set; run make gateway-conformance")
	}
	dir := cluster(t, binary)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "data", "kubeconfig"))
	for _, what := range []string{"create", "condition=Accepted"} {
		run(t, binary, "kubectl", "wait", "gatewayclass/"+className, "--for="+what, "--timeout=30s")
	}
	options := conformance.DefaultOptions(t)
	options.GatewayClassName = className
	options.CleanupBaseResources = true
	options.ConformanceProfiles = []suite.ConformanceProfileName{
		suite.GatewayHTTPConformanceProfileName, suite.GatewayGRPCConformanceProfileName, suite.GatewayTLSConformanceProfileName,
	}
	options.UsableNetworkAddresses = []gatewayv1.GatewaySpecAddress{{Type: ptr.To(gatewayv1.IPAddressType), Value: usable}}
	options.UnusableNetworkAddresses = []gatewayv1.GatewaySpecAddress{{Type: ptr.To(gatewayv1.IPAddressType), Value: unusable}}
	options.ReportOutputPath = os.Getenv("GATEWAY_REPORT")
	options.RunTest = os.Getenv("GATEWAY_TEST")
	options.Implementation = confv1.Implementation{
		Organization: "kindred-project", Project: "kindred", URL: "https://github.com/kindred-project/kindred",
		Version: version(t, binary), Contact: []string{"https://github.com/kindred-project/kindred/issues"},
	}
	conformance.RunConformanceWithOptions(t, options)
}

// cluster starts a cluster with the image of the backends, and returns its directory.
func cluster(t *testing.T, binary string) string {
	t.Helper()
	echo := filepath.Join(t.TempDir(), "echo-basic")
	run(t, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", echo, "sigs.k8s.io/gateway-api/conformance/echo-basic")
	archive := echo + ".tar"
	if err := images.Program(archive, echo, echoServer...); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "kindred-gateway-") // t.TempDir is too long for the paths of sockets
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	up := servers.Kindred{Binary: binary, Args: []string{"--ingress", "--load-balancer-pool", pool}}
	server, err := up.Start(ctx, dir)
	t.Cleanup(func() {
		if err == nil {
			server.Stop()
		}
		run(t, binary, "reset", "--data-dir", filepath.Join(dir, "data"))
		_ = os.RemoveAll(dir)
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, binary, "image", "load", archive, "--data-dir", filepath.Join(dir, "data"))
	return dir
}

func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
	return string(out)
}

// version returns the version of the binary, the second word that it prints.
func version(t *testing.T, binary string) string {
	t.Helper()
	words := strings.Fields(run(t, binary, "version"))
	if len(words) < 2 {
		t.Fatalf("version: %q", words)
	}
	return words[1]
}
