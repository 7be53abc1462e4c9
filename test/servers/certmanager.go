// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// CertManager is a release of cert-manager, as clusterctl installs it.
type CertManager struct {
	Version string
	// Manifest is the path of its objects, in a repository of clusterctl.
	Manifest string
	// Programs are those of the images that the manifest names.
	Programs map[string]string
}

const certManagerModule = "github.com/cert-manager/cert-manager"

// BuildCertManager builds cert-manager, as [BuildUpstream] does, and writes its manifest beneath to.
func BuildCertManager(ctx context.Context, dir, to string) (c CertManager, err error) {
	module, bin := filepath.Join(dir, "certmanager"), filepath.Join(dir, "bin", "cert-manager")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return c, err
	}
	if c.Version, err = ListModule(ctx, module, "{{.Version}}", certManagerModule); err != nil {
		return c, err
	}
	c.Programs = map[string]string{}
	for _, name := range []string{"cainjector", "controller", "webhook"} {
		program := Program{Name: name, Package: certManagerModule + "/cmd/" + name, LDFlags: "-s -w -X " + certManagerModule + "/pkg/util.AppVersion=" + c.Version}
		if c.Programs["quay.io/jetstack/cert-manager-"+name+":"+c.Version], err = program.Build(ctx, module, bin); err != nil {
			return c, err
		}
	}
	helm, err := Program{Name: "helm", Package: "helm.sh/helm/v3/cmd/helm", LDFlags: "-s -w"}.Build(ctx, module, bin)
	if err != nil {
		return c, err
	}
	source, err := ListModule(ctx, module, "{{.Dir}}", certManagerModule)
	if err != nil {
		return c, err
	}
	c.Manifest = filepath.Join(to, "cert-manager", c.Version, "cert-manager.yaml")
	return c, c.writeManifest(ctx, helm, filepath.Join(source, "deploy"), filepath.Join(to, "chart"))
}

// writeManifest makes the manifest from the chart, as cert-manager's Makefile does.
func (c CertManager) writeManifest(ctx context.Context, helm, source, chart string) error {
	if err := c.completeChart(source, chart); err != nil {
		return err
	}
	namespace, err := os.ReadFile(filepath.Join(source, "manifests", "namespace.yaml"))
	if err != nil {
		return err
	}
	template := exec.CommandContext(ctx, helm, "template", "cert-manager", chart, "--namespace", "cert-manager", "--kube-version", upstreamVersion,
		"--set", "installCRDs=true,creator=static,startupapicheck.enabled=false")
	template.Stderr = os.Stderr
	objects, err := template.Output()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.Manifest), 0o755); err != nil {
		return err
	}
	return os.WriteFile(c.Manifest, append(namespace, objects...), 0o600)
}

// completeChart copies the chart, and adds to it what its source leaves out: the version, and the definitions.
func (c CertManager) completeChart(source, chart string) error {
	if err := os.CopyFS(chart, os.DirFS(filepath.Join(source, "charts", "cert-manager"))); err != nil {
		return err
	}
	description, err := os.ReadFile(filepath.Join(chart, "Chart.template.yaml"))
	if err != nil {
		return err
	}
	description = bytes.ReplaceAll(description, []byte("v0.1.0"), []byte(c.Version))
	if err := os.WriteFile(filepath.Join(chart, "Chart.yaml"), description, 0o600); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(source, "crds", "*.yaml"))
	if err != nil {
		return err
	}
	var definitions [][]byte
	for _, file := range files {
		definition, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		definitions = append(definitions, definition)
	}
	return os.WriteFile(filepath.Join(chart, "templates", "crds.yaml"), bytes.Join(definitions, []byte("\n---\n")), 0o600)
}
