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

	"github.com/kindred-project/kindred/test/kept"
)

// upstreamVersion is the version that upstream's server reports, the one in upstream/go.mod.
const upstreamVersion = "v1.37.1"

// UpstreamStamp are linker flags that set the version of a Kubernetes program.
const UpstreamStamp = "-s -w -X k8s.io/component-base/version.gitVersion=" + upstreamVersion +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"

// Program is a program of a module, or of one that it requires.
type Program struct {
	Name, Package string
	LDFlags       string
	// Tests builds the package's tests instead.
	Tests bool
}

var (
	etcdProgram      = Program{Name: "etcd", Package: "go.etcd.io/etcd/server/v3", LDFlags: "-s -w"}
	apiserverProgram = kubernetesProgram("kube-apiserver")
)

// BuildMetricsAdapter builds the adapter of custom and external metrics, as [BuildUpstream] does, and
// returns its path.
func BuildMetricsAdapter(ctx context.Context, dir string) (string, error) {
	program := Program{Name: "metrics-adapter", Package: ".", LDFlags: "-s -w"}
	return program.Build(ctx, filepath.Join(dir, "adapter"), filepath.Join(dir, "bin"))
}

// kubernetesProgram returns one of the programs of Kubernetes.
func kubernetesProgram(name string) Program {
	return Program{Name: name, Package: "k8s.io/kubernetes/cmd/" + name, LDFlags: UpstreamStamp}
}

// Upstream has the paths of upstream's programs.
type Upstream struct{ etcd, apiserver string }

// BuildUpstream builds upstream's programs in dir/bin from the module in dir/upstream. dir is the
// directory of this package.
func BuildUpstream(ctx context.Context, dir string) (u Upstream, err error) {
	module, bin := filepath.Join(dir, "upstream"), filepath.Join(dir, "bin")
	if u.etcd, err = etcdProgram.Build(ctx, module, bin); err != nil {
		return Upstream{}, err
	}
	u.apiserver, err = apiserverProgram.Build(ctx, module, bin)
	return u, err
}

// BuildControlPlane builds the programs of a control plane, as [BuildUpstream] does.
func BuildControlPlane(ctx context.Context, dir string) (c UpstreamControlPlane, err error) {
	if c.Upstream, err = BuildUpstream(ctx, dir); err != nil {
		return UpstreamControlPlane{}, err
	}
	return c, buildKubernetes(ctx, dir, map[string]*string{
		"kube-controller-manager": &c.controllerManager,
		"kube-scheduler":          &c.scheduler,
	})
}

// buildKubernetes builds programs of Kubernetes, by name, and sets their paths.
func buildKubernetes(ctx context.Context, dir string, programs map[string]*string) (err error) {
	for name, path := range programs {
		if *path, err = kubernetesProgram(name).Build(ctx, filepath.Join(dir, "upstream"), filepath.Join(dir, "bin")); err != nil {
			return err
		}
	}
	return nil
}

// BuildCluster builds the programs of a whole cluster, as [BuildUpstream] does. runtime is the
// directory of containerd 2.x, its shim and ctr, or empty to use the installed ones.
func BuildCluster(ctx context.Context, dir, runtime string) (c UpstreamCluster, err error) {
	c.runtime = runtime
	if err := c.checkContainerd(ctx); err != nil {
		return UpstreamCluster{}, err
	}
	if c.UpstreamControlPlane, err = BuildControlPlane(ctx, dir); err != nil {
		return UpstreamCluster{}, err
	}
	if c.dns, err = buildDNS(ctx, dir); err != nil {
		return UpstreamCluster{}, err
	}
	return c, buildKubernetes(ctx, dir, map[string]*string{"kubelet": &c.kubelet, "kube-proxy": &c.proxy})
}

// kubeletModules are the modules of the minor versions of the kubelet that BuildKubelet builds.
var kubeletModules = map[string]string{"v1.36": "kubelet-1.36", "v1.37": "upstream"}

// BuildKubelet builds the kubelet of a minor version, such as v1.36, as [BuildUpstream] does, and returns its path.
func BuildKubelet(ctx context.Context, dir, minor string) (string, error) {
	module := filepath.Join(dir, kubeletModules[minor])
	version, err := ListModule(ctx, module, "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	program := Program{
		Name: "kubelet-" + minor, Package: "k8s.io/kubernetes/cmd/kubelet",
		LDFlags: "-s -w -X k8s.io/component-base/version.gitVersion=" + version,
	}
	return program.Build(ctx, module, filepath.Join(dir, "bin"))
}

// BuildKubeProxy builds kube-proxy, as [BuildUpstream] does, and returns its path.
func BuildKubeProxy(ctx context.Context, dir string) (path string, err error) {
	err = buildKubernetes(ctx, dir, map[string]*string{"kube-proxy": &path})
	return path, err
}

// Build builds the program in bin in the version that the module requires, and returns its path. It
// rebuilds only if the module, the compiler or the build flags have changed, because asking the go
// command takes seconds.
func (p Program) Build(ctx context.Context, module, bin string) (string, error) {
	binary, err := filepath.Abs(filepath.Join(bin, p.Name))
	if err != nil {
		return "", err
	}
	key, err := p.key(ctx, module)
	if err != nil {
		return "", err
	}
	return binary, kept.File(binary, key, func() error { return p.build(ctx, module, binary) })
}

// key identifies the inputs of the program.
func (p Program) key(ctx context.Context, module string) (string, error) {
	compiler, err := run(ctx, module, "go", "env", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS")
	if err != nil {
		return "", err
	}
	key := kept.NewKey(p, compiler)
	files, err := filepath.Glob(filepath.Join(module, "*.go"))
	if err != nil {
		return "", err
	}
	for _, file := range append(files, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")) {
		if err := key.AddFile(file); err != nil {
			return "", err
		}
	}
	return key.String(), nil
}

func (p Program) build(ctx context.Context, module, binary string) error {
	fmt.Printf("build %s (some minutes, once)\n", p.Name)
	// Build to another name, so that an interrupted build does not count as complete.
	aside := binary + ".new"
	verb := []string{"build", "-buildvcs=false"}
	if p.Tests {
		// Upstream vets its own tests.
		verb = []string{"test", "-c", "-vet=off"}
	}
	cmd := exec.CommandContext(ctx, "go", append(verb, "-mod=readonly", "-ldflags", p.LDFlags, "-o", aside, p.Package)...)
	// Static, because an image has no libraries.
	cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w", p.Package, err)
	}
	return os.Rename(aside, binary)
}

// ListModule returns a property of a module that the module in dir requires, in the format of "go
// list -m -f". It downloads the module first, because a module without a build has no directory.
func ListModule(ctx context.Context, dir, format, module string) (string, error) {
	if _, err := run(ctx, dir, "go", "mod", "download", module); err != nil {
		return "", err
	}
	return run(ctx, dir, "go", "list", "-m", "-f", format, module)
}

// run runs a command in dir and returns its output.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
