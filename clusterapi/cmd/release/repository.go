// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kindred-project/kindred/clusterapi/config"
)

// release is what a repository is made from.
type release struct {
	manager, kindred    string
	version, kubernetes string
	image, out          string
	// core is the program of Cluster API's core, and coreImage the name of its image.
	core, coreImage string
}

// provider is one of the providers, as clusterctl knows it.
type provider struct {
	// name is that of its manifest. kind is its type in clusterctl's configuration, and label the value of its label and the name of
	// its directory.
	name, kind, label string
	// group is the API group of its kinds.
	group string
	// further manifests belong to it.
	further []string
	// templates is set if it has those of workload clusters.
	templates bool
}

var providers = []provider{
	{
		name: "infrastructure", kind: "InfrastructureProvider", label: "infrastructure-kindred", group: "infrastructure.cluster.x-k8s.io",
		further: []string{"policies.yaml"}, templates: true,
	},
	{name: "bootstrap", kind: "BootstrapProvider", label: "bootstrap-kindred", group: "bootstrap.cluster.x-k8s.io"},
	{name: "control-plane", kind: "ControlPlaneProvider", label: "control-plane-kindred", group: "controlplane.cluster.x-k8s.io"},
}

// tag is the full name of the image.
func (r release) tag() string { return r.image + ":" + r.version }

// write writes the repository.
func (r release) write() error {
	var clusterctl strings.Builder
	clusterctl.WriteString("# clusterctl's configuration for the repository in this directory.\nproviders:\n")
	if err := r.writeCore(&clusterctl); err != nil {
		return fmt.Errorf("core: %w", err)
	}
	for _, p := range providers {
		dir := filepath.Join(r.out, p.label, r.version)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := r.writeProvider(p, dir); err != nil {
			return fmt.Errorf("provider %s: %w", p.name, err)
		}
		if err := addTo(&clusterctl, "kindred", p.kind, filepath.Join(dir, p.components())); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(r.out, "clusterctl.yaml"), []byte(clusterctl.String()), 0o644); err != nil {
		return err
	}
	return writeImage(filepath.Join(r.out, "manager.tar"), r.tag(), map[string]string{"manager": r.manager, "kindred": r.kindred})
}

// addTo adds a provider to clusterctl's configuration, which wants absolute paths.
func addTo(clusterctl *strings.Builder, name, kind, file string) error {
	absolute, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(clusterctl, "- name: %s\n  type: %s\n  url: %s\n", name, kind, absolute)
	return nil
}

func (p provider) components() string { return p.name + "-components.yaml" }

func (r release) writeProvider(p provider, dir string) error {
	components, err := r.compose(p)
	if err != nil {
		return err
	}
	files := map[string][]byte{p.components(): components}
	if files["metadata.yaml"], err = config.Files.ReadFile("metadata.yaml"); err != nil {
		return err
	}
	if p.templates {
		found, err := fs.Glob(config.Files, "templates/*.yaml")
		if err != nil {
			return err
		}
		for _, file := range found {
			if files[path.Base(file)], err = config.Files.ReadFile(file); err != nil {
				return err
			}
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compose returns the objects of a provider as one file: its manifests and definitions, with the label of the provider.
func (r release) compose(p provider) ([]byte, error) {
	definitions, err := fs.Glob(config.Files, "crd/"+p.group+"_*.yaml")
	if err != nil {
		return nil, err
	}
	if len(definitions) == 0 {
		return nil, fmt.Errorf("there are no definitions of %s; run \"make generate\" in this module", p.group)
	}
	var out bytes.Buffer
	for _, file := range append(append([]string{p.name + ".yaml"}, definitions...), p.further...) {
		text, err := config.Files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		replaced := strings.NewReplacer("MANAGER_IMAGE}", r.tag()+"}", "KUBERNETES_VERSION", r.kubernetes).Replace(string(text))
		for document := range strings.SplitSeq(replaced, "\n---\n") {
			if err := p.add(&out, document); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return out.Bytes(), nil
}

// contractLabel maps the contract with Cluster API to the version of a definition that fulfils it.
const contractLabel = "cluster.x-k8s.io/v1beta2"

// add writes an object with the labels that it needs.
func (p provider) add(out *bytes.Buffer, document string) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
		return err
	}
	if len(o.Object) == 0 {
		return nil
	}
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["cluster.x-k8s.io/provider"] = p.label
	if o.GetKind() == "CustomResourceDefinition" {
		labels[contractLabel] = "v1alpha1"
	}
	o.SetLabels(labels)
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return err
	}
	out.WriteString("---\n")
	out.Write(text)
	return nil
}
