// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"os"
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
	// Image is the reference of its image.
	Image string
	// Program is its manager.
	Program string
	// Config is the directory from which kubectl kustomize makes its manifest.
	Config string
}

// clusterAPIProviders are the module, beneath Cluster API's own, and the package in it of each provider.
var clusterAPIProviders = []struct{ name, module, folder string }{
	{name: "capi", folder: "core"},
	{name: "capi-kubeadm-bootstrap", folder: "bootstrap/kubeadm"},
	{name: "capi-kubeadm-control-plane", folder: "controlplane/kubeadm"},
	{name: "capd", module: "/test", folder: "infrastructure/docker"},
}

const clusterAPIModule = "sigs.k8s.io/cluster-api"

// clusterAPIBuild builds programs of the module in clusterapi.
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
	for _, p := range clusterAPIProviders {
		source, err := ListModule(ctx, b.module, "{{.Dir}}", clusterAPIModule+p.module)
		if err != nil {
			return ClusterAPI{}, err
		}
		// The Deployments run /manager.
		program, err := b.build(ctx, Program{Name: filepath.Join(p.name, "manager"), Package: clusterAPIModule + p.module + "/" + p.folder})
		if err != nil {
			return ClusterAPI{}, err
		}
		config := filepath.Join(source, p.folder, "config", "default")
		c.Providers = append(c.Providers, Provider{Name: p.name, Image: "example.com/" + p.name + ":" + b.version, Program: program, Config: config})
		c.Templates = filepath.Join(source, p.folder, "templates") // the last provider has them
	}
	return c, nil
}
