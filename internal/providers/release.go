// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
)

// Release is a directory with providers, as "make capi-release" writes it. It is also a local repository of clusterctl:
// LABEL/VERSION/TYPE-components.yaml has the objects of a provider.
type Release struct {
	Providers []Provider
	// Images are the archives with the images of the managers.
	Images []string
	// inventory is the definition of the kind Provider.
	inventory []*unstructured.Unstructured
}

// Provider is one of the providers of a release.
type Provider struct {
	// Label is its name with a prefix for its type, such as infrastructure-kindred; the core's is cluster-api.
	Label string
	// Name and Type are as in clusterctl's inventory.
	Name, Type string
	Version    string
	// Namespace is where its manager runs.
	Namespace string
	objects   []*unstructured.Unstructured
}

// types are the types of providers, by the names of their manifests.
var types = []struct{ manifest, name string }{
	{"core", "CoreProvider"},
	{"bootstrap", "BootstrapProvider"},
	{"control-plane", "ControlPlaneProvider"},
	{"infrastructure", "InfrastructureProvider"},
}

// inventoryFile has the definition of the kind Provider, and is beside the directories of the providers.
const inventoryFile = "clusterctl-api.yaml"

// Open reads a release, of each provider its newest version. Variables of its manifests have the values that lookup returns, or their
// defaults.
func Open(dir string, lookup func(string) string) (*Release, error) {
	r := &Release{}
	for _, t := range types {
		files, err := filepath.Glob(filepath.Join(dir, "*", "*", t.manifest+"-components.yaml"))
		if err != nil {
			return nil, err
		}
		files, err = newest(files)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			p, err := openProvider(file, t.name, lookup)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			r.Providers = append(r.Providers, p)
		}
	}
	if len(r.Providers) == 0 || r.Providers[0].Type != types[0].name {
		return nil, fmt.Errorf("%s has no core-components.yaml: it is no release of Cluster API; \"make capi-release\" writes one", dir)
	}
	text, err := os.ReadFile(filepath.Join(dir, inventoryFile))
	if err != nil {
		return nil, err
	}
	if r.inventory, err = Decode(string(text)); err != nil {
		return nil, fmt.Errorf("%s: %w", inventoryFile, err)
	}
	r.Images, err = filepath.Glob(filepath.Join(dir, "*.tar"))
	return r, err
}

// newest returns, of the manifests LABEL/VERSION/FILE, those of the newest version of each label.
func newest(files []string) ([]string, error) {
	best := map[string]*version.Version{}
	chosen := map[string]string{}
	var labels []string
	for _, file := range files {
		label, text := split(file)
		v, err := version.ParseSemantic(text)
		if err != nil {
			return nil, fmt.Errorf("%s: the name of its directory is no version: %w", file, err)
		}
		if best[label] == nil {
			labels = append(labels, label)
		} else if v.LessThan(best[label]) {
			continue
		}
		best[label], chosen[label] = v, file
	}
	newest := make([]string, len(labels))
	for i, label := range labels {
		newest[i] = chosen[label]
	}
	return newest, nil
}

// split returns the label and the version of a manifest.
func split(file string) (label, version string) {
	dir := filepath.Dir(file)
	return filepath.Base(filepath.Dir(dir)), filepath.Base(dir)
}

func openProvider(file, kind string, lookup func(string) string) (Provider, error) {
	p := Provider{Type: kind}
	p.Label, p.Version = split(file)
	p.Name = strings.TrimPrefix(p.Label, strings.TrimSuffix(filepath.Base(file), "components.yaml"))
	text, err := os.ReadFile(file)
	if err != nil {
		return p, err
	}
	substituted, err := Substitute(string(text), lookup)
	if err != nil {
		return p, err
	}
	if p.objects, err = Decode(substituted); err != nil {
		return p, err
	}
	i := slices.IndexFunc(p.objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" })
	if i < 0 {
		return p, errors.New("it has no Namespace")
	}
	p.Namespace = p.objects[i].GetName()
	return p, nil
}

// machinesFlag begins the argument of a manager that makes machines of its host in a directory.
const machinesFlag = "--machines-dir="

// MachinesDirs returns the directories in which the managers make machines of their host.
func (r *Release) MachinesDirs() (dirs []string) {
	for _, p := range r.Providers {
		for _, o := range p.objects {
			dirs = append(dirs, machinesDirs(o)...)
		}
	}
	return dirs
}

// machinesDirs returns the directories that the containers of a Deployment have as an argument.
func machinesDirs(o *unstructured.Unstructured) (dirs []string) {
	if o.GetKind() != "Deployment" {
		return nil
	}
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	for _, container := range containers {
		fields, _ := container.(map[string]any)
		args, _, _ := unstructured.NestedStringSlice(fields, "args")
		for _, arg := range args {
			if dir, found := strings.CutPrefix(arg, machinesFlag); found {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}
