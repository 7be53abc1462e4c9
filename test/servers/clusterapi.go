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
	// Assertions is a test program of upstream's assertions.
	Assertions string
	Providers  []Provider
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

// BuildClusterAPI builds the programs, as [BuildUpstream] does.
func BuildClusterAPI(ctx context.Context, dir string) (c ClusterAPI, err error) {
	module, bin := filepath.Join(dir, "clusterapi"), filepath.Join(dir, "bin")
	version, err := ListModule(ctx, module, "{{.Version}}", clusterAPIModule)
	if err != nil {
		return ClusterAPI{}, err
	}
	build := func(program Program) (string, error) {
		if err := os.MkdirAll(filepath.Join(bin, filepath.Dir(program.Name)), 0o755); err != nil {
			return "", err
		}
		program.LDFlags = "-s -w -X " + clusterAPIModule + "/version.gitVersion=" + version
		return program.Build(ctx, module, bin)
	}
	if c.Clusterctl, err = build(Program{Name: "clusterctl", Package: clusterAPIModule + "/cmd/clusterctl"}); err != nil {
		return ClusterAPI{}, err
	}
	if c.Assertions, err = build(Program{Name: "clusterapi-assertions", Package: ".", Tests: true}); err != nil {
		return ClusterAPI{}, err
	}
	for _, p := range clusterAPIProviders {
		source, err := ListModule(ctx, module, "{{.Dir}}", clusterAPIModule+p.module)
		if err != nil {
			return ClusterAPI{}, err
		}
		// The Deployments run /manager.
		program, err := build(Program{Name: filepath.Join(p.name, "manager"), Package: clusterAPIModule + p.module + "/" + p.folder})
		if err != nil {
			return ClusterAPI{}, err
		}
		config := filepath.Join(source, p.folder, "config", "default")
		c.Providers = append(c.Providers, Provider{Name: p.name, Image: "example.com/" + p.name + ":" + version, Program: program, Config: config})
		c.Templates = filepath.Join(source, p.folder, "templates") // the last provider has them
	}
	return c, nil
}
