// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"os"
	"path"
	"path/filepath"
)

// ClusterAPI has the paths of Cluster API's programs.
type ClusterAPI struct {
	Clusterctl string
	// Specs is a test program of upstream's assertions and of its quick start.
	Specs     string
	Providers []Provider
	// Templates is the directory of upstream's example clusters.
	Templates string
}

// Provider is one of Cluster API's managers.
type Provider struct {
	// Name is its namespace, and the prefix of its objects, such as capi.
	Name string
	// Role is what clusterctl installs it as: core, bootstrap, control-plane, infrastructure or runtime-extension. Label is its name there,
	// such as kubeadm.
	Role, Label string
	// Version is that of its module.
	Version string
	// Image is the reference of its image.
	Image string
	// Program is its manager.
	Program string
	// Config is the directory from which kubectl kustomize makes its manifest, and Metadata the file that clusterctl wants beside it.
	Config, Metadata string
}

// clusterAPIPart is where a provider comes from: the module, beneath Cluster API's own, and the package in it.
type clusterAPIPart struct {
	Provider
	module, folder string
}

// clusterAPIParts are the providers that scenarios run. The last has examples of clusters. core is the package of the core.
func clusterAPIParts(core string) []clusterAPIPart {
	return []clusterAPIPart{
		{Provider{Name: "capi", Role: "core", Label: "cluster-api"}, "", core},
		{Provider{Name: "capi-kubeadm-bootstrap", Role: "bootstrap", Label: "kubeadm"}, "", "bootstrap/kubeadm"},
		{Provider{Name: "capi-kubeadm-control-plane", Role: "control-plane", Label: "kubeadm"}, "", "controlplane/kubeadm"},
		{Provider{Name: "capd", Role: "infrastructure", Label: "docker"}, "/test", "infrastructure/docker"},
	}
}

const clusterAPIModule = "sigs.k8s.io/cluster-api"

// clusterAPIBuild builds programs of a version of Cluster API, which a module here requires.
type clusterAPIBuild struct{ module, bin, version string }

func newClusterAPIBuild(ctx context.Context, dir string) (b clusterAPIBuild, err error) {
	b.module, b.bin = filepath.Join(dir, "clusterapi"), filepath.Join(dir, "bin")
	b.version, err = ListModule(ctx, b.module, "{{.Version}}", clusterAPIModule)
	return b, err
}

func (b clusterAPIBuild) build(ctx context.Context, program Program) (string, error) {
	if err := os.MkdirAll(filepath.Join(b.bin, filepath.Dir(program.Name)), 0o755); err != nil {
		return "", err
	}
	program.LDFlags = "-s -w -X " + clusterAPIModule + "/version.gitVersion=" + b.version
	return program.Build(ctx, b.module, b.bin)
}

// provider builds a manager. The Deployments run it as /manager.
func (b clusterAPIBuild) provider(ctx context.Context, part clusterAPIPart) (p Provider, err error) {
	p = part.Provider
	root, err := ListModule(ctx, b.module, "{{.Dir}}", clusterAPIModule)
	if err != nil {
		return p, err
	}
	source, err := ListModule(ctx, b.module, "{{.Dir}}", clusterAPIModule+part.module)
	if err != nil {
		return p, err
	}
	p.Version, p.Image = b.version, "example.com/"+p.Name+":"+b.version
	p.Config, p.Metadata = filepath.Join(source, part.folder, "config", "default"), filepath.Join(root, "metadata.yaml")
	p.Program, err = b.build(ctx, Program{Name: filepath.Join(p.Name, "manager"), Package: path.Join(clusterAPIModule+part.module, part.folder)})
	return p, err
}

func (b clusterAPIBuild) providers(ctx context.Context, parts []clusterAPIPart) (all []Provider, err error) {
	for _, part := range parts {
		p, err := b.provider(ctx, part)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// specs is the test program of upstream's assertions and of its quick start.
var specs = Program{Name: "clusterapi-specs", Package: ".", Tests: true}

// BuildClusterAPISpecs builds upstream's assertions and its quick start alone.
func BuildClusterAPISpecs(ctx context.Context, dir string) (string, error) {
	b, err := newClusterAPIBuild(ctx, dir)
	if err != nil {
		return "", err
	}
	return b.build(ctx, specs)
}

// BuildClusterAPIExtension builds upstream's extension of Cluster API that records which hooks were called.
func BuildClusterAPIExtension(ctx context.Context, dir string) (Provider, error) {
	b, err := newClusterAPIBuild(ctx, dir)
	if err != nil {
		return Provider{}, err
	}
	return b.provider(ctx, clusterAPIPart{Provider{Name: "test-extension", Role: "runtime-extension", Label: "test-extension"}, "/test", "extension"})
}

// BuildPreviousClusterAPI builds the providers of the previous minor version.
func BuildPreviousClusterAPI(ctx context.Context, dir string) ([]Provider, error) {
	b := clusterAPIBuild{module: filepath.Join(dir, "clusterapi-previous"), bin: filepath.Join(dir, "bin", "previous")}
	var err error
	if b.version, err = ListModule(ctx, b.module, "{{with .Replace}}{{.Version}}{{end}}", clusterAPIModule); err != nil {
		return nil, err
	}
	return b.providers(ctx, clusterAPIParts("."))
}

// BuildClusterAPI builds the programs, as [BuildUpstream] does.
func BuildClusterAPI(ctx context.Context, dir string) (c ClusterAPI, err error) {
	b, err := newClusterAPIBuild(ctx, dir)
	if err != nil {
		return ClusterAPI{}, err
	}
	if c.Clusterctl, err = b.build(ctx, Program{Name: "clusterctl", Package: clusterAPIModule + "/cmd/clusterctl"}); err != nil {
		return ClusterAPI{}, err
	}
	if c.Specs, err = b.build(ctx, specs); err != nil {
		return ClusterAPI{}, err
	}
	if c.Providers, err = b.providers(ctx, clusterAPIParts("core")); err != nil {
		return ClusterAPI{}, err
	}
	c.Templates = filepath.Join(c.Providers[len(c.Providers)-1].Config, "..", "..", "templates")
	return c, nil
}
