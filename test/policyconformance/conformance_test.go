// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policyconformance

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	report "sigs.k8s.io/network-policy-api/conformance/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"

	"github.com/kindred-project/kindred/test/images"
	"github.com/kindred-project/kindred/test/servers"
)

var (
	version = flag.String("version", "", "version of Kindred in the report")
	output  = flag.String("report", "", "file that the report is written to")
)

// agnhost is the image that the suite's manifests name.
const agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.45"

// TestConformance runs all tests of the suite, unmodified, on a cluster of its own with a real node.
func TestConformance(t *testing.T) {
	binary := os.Getenv("KINDRED_BIN")
	if binary == "" {
		t.Skip("KINDRED_BIN is not set; run make policy-conformance")
	}
	dir := t.TempDir()
	image := filepath.Join(dir, "agnhost.tar")
	buildImage(t, dir, image)
	results := run(t, start(t, binary, filepath.Join(dir, "cluster"), image))
	text, err := yaml.Marshal(results)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("report:\n%s", text)
	if *output != "" {
		if err := os.WriteFile(*output, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// wrapper is what the image has as /agnhost. The kernel may not have SCTP: then servers of it idle instead of ending, because
// the suite waits until all pods are ready. The tests that use SCTP fail nevertheless.
const wrapper = `#!/bin/sh
if [ "$1" = porter ] && ! grep -q '^SCTP ' /proc/net/protocols && env | grep -q '^SERVE_SCTP_PORT_'; then
	echo "the kernel has no SCTP"
	exec sleep 1000000
fi
exec /agnhost-program "$@"
`

// buildImage writes an archive with upstream's program on busybox, whose shell is also /bin/bash.
func buildImage(t *testing.T, dir, file string) {
	t.Helper()
	program := filepath.Join(dir, "agnhost")
	build := exec.Command("go", "build", "-C", "../conformance", "-o", program, "k8s.io/kubernetes/test/images/agnhost")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building agnhost: %v: %s", err, out)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	layer, err := images.LayerFile(filepath.Join(dir, "layer.tar.gz"), func(l *images.Layer) {
		l.File("bin/bash", 0o755, []byte("#!/bin/sh\nexec /bin/sh \"$@\"\n")) // busybox goes by the name that it is called by
		l.File("agnhost", 0o755, []byte(wrapper))
		l.File("agnhost-program", 0o755, content)
	})
	if err != nil {
		t.Fatal(err)
	}
	base, err := images.BusyboxImage()
	if err != nil {
		t.Fatal(err)
	}
	image, err := images.Assemble(base, v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}, layer)
	if err != nil {
		t.Fatal(err)
	}
	if err := images.Write(file, image, agnhost); err != nil {
		t.Fatal(err)
	}
}

// start runs a cluster with the image until the test ends, and returns its kubeconfig.
func start(t *testing.T, binary, dir, image string) string {
	t.Helper()
	up := servers.Kindred{Binary: binary, Args: []string{"--cluster-network-policies", "--simulated-nodes", "1"}}
	server, err := up.Start(t.Context(), dir)
	t.Cleanup(func() {
		if server != nil {
			server.Stop()
		}
		verb(t, dir, "reset")
	})
	if err != nil {
		t.Fatal(err)
	}
	verb(t, dir, "image", "load", image)
	useSecond(t, dir, server.Kubeconfig)
	return server.Kubeconfig
}

// second puts the first pod of the suite's two that need the same ports of their nodes on the simulated node. The tests use
// the other one.
const second = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: second-node}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: first, expression: object.metadata.name == "centaur-0"}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: |
        [JSONPatch{op: "add", path: "/spec/nodeSelector", value: {"kindred.dev/simulated": ""}},
         JSONPatch{op: "add", path: "/spec/tolerations/-", value: Object.spec.tolerations{key: "kindred.dev/simulated", operator: "Exists"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: second-node}
spec: {policyName: second-node}
`

// useSecond creates that policy and waits until it is in force.
func useSecond(t *testing.T, dir, kubeconfig string) {
	t.Helper()
	kubectl := func(stdin string, args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(dir, "kindred"), append([]string{"kubectl"}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := kubectl(second, "apply", "-f", "-")
	if err != nil {
		t.Fatalf("creating the policy: %v: %s", err, out)
	}
	// The API server reads the types that expressions may use once a minute.
	for range 120 {
		if out, err = kubectl("", "run", "centaur-0", "--image=none", "--dry-run=server", "-o", "jsonpath={.spec.nodeSelector}"); err == nil && out != "" {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("the mutation of pods is not in force after two minutes: %v: %s", err, out)
}

// verb runs a verb of the cluster's own copy of the binary.
func verb(t *testing.T, dir string, args ...string) {
	t.Helper()
	args = append(args, "--data-dir", filepath.Join(dir, "data"))
	if out, err := exec.Command(filepath.Join(dir, "kindred"), args...).CombinedOutput(); err != nil {
		t.Errorf("kindred %v: %v: %s", args, err, out)
	}
}

func run(t *testing.T, kubeconfig string) *report.ConformanceReport {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := policyv1alpha2.Install(c.Scheme()); err != nil {
		t.Fatal(err)
	}
	all, err := suite.NewConformanceProfileTestSuite(suite.ConformanceProfileOptions{
		Options: suite.Options{
			Client: c, ClientSet: kubernetes.NewForConfigOrDie(config), KubeConfig: *config,
			EnableAllSupportedFeatures: true, SupportedFeatures: suite.AllFeatures,
		},
		Implementation: report.Implementation{
			Organization: "kindred-project", Project: "kindred", URL: "https://github.com/kindred-project/kindred", Version: *version,
			Contact: []string{"https://github.com/kindred-project/kindred/issues"}, AdditionalInformation: "make policy-conformance",
		},
		ConformanceProfiles: sets.New(suite.CNPConformanceProfileName),
	})
	if err != nil {
		t.Fatal(err)
	}
	all.Setup(t)
	if err := all.Run(t, tests.ConformanceTests); err != nil {
		t.Fatal(err)
	}
	results, err := all.Report()
	if err != nil {
		t.Fatal(err)
	}
	return results
}
