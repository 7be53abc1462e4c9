// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writeFiles writes files, by their paths in a new directory.
func writeFiles(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	namespaceOnly = "apiVersion: v1\nkind: Namespace\nmetadata: {name: some-system}\n"
	definition    = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: providers.clusterctl.cluster.x-k8s.io}\n"
)

func withoutVariables(string) string { return "" }

// TestOpen: a release has the newest version of each of its providers, the core first.
func TestOpen(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"infrastructure-kindred/v0.9.0/infrastructure-components.yaml":  namespaceOnly,
		"infrastructure-kindred/v0.10.0/infrastructure-components.yaml": strings.ReplaceAll(namespaceOnly, "some-system", "${NAME:=kindred}-system"),
		"infrastructure-kindred/v0.10.0/cluster-template.yaml":          "not: read",
		"control-plane-kindred/v0.1.0/control-plane-components.yaml":    namespaceOnly,
		"cluster-api/v1.14.2/core-components.yaml":                      namespaceOnly,
		"cluster-api/v1.14.2-rc.0/core-components.yaml":                 namespaceOnly,
		"clusterctl-api.yaml": definition,
		"core.tar":            "an image",
	})
	r, err := Open(dir, withoutVariables)
	if err != nil {
		t.Fatal(err)
	}
	var got []Provider
	for _, p := range r.Providers {
		p.objects = nil
		got = append(got, p)
	}
	want := []Provider{
		{Label: "cluster-api", Name: "cluster-api", Type: "CoreProvider", Version: "v1.14.2", Namespace: "some-system"},
		{Label: "control-plane-kindred", Name: "kindred", Type: "ControlPlaneProvider", Version: "v0.1.0", Namespace: "some-system"},
		{Label: "infrastructure-kindred", Name: "kindred", Type: "InfrastructureProvider", Version: "v0.10.0", Namespace: "kindred-system"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Provider{})); diff != "" {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{filepath.Join(dir, "core.tar")}, r.Images); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	named, err := Open(dir, func(name string) string { return map[string]string{"NAME": "mine"}[name] })
	if err != nil || named.Providers[2].Namespace != "mine-system" {
		t.Errorf("with a variable: %+v, %v", named, err)
	}
}

// TestOpenRefuses: what is no release, or a damaged one, is an error that names the file.
func TestOpenRefuses(t *testing.T) {
	const core = "cluster-api/v1.14.2/core-components.yaml"
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"empty":         {nil, "\"make capi-release\" writes one"},
		"no core":       {map[string]string{"bootstrap-kindred/v0.1.0/bootstrap-components.yaml": namespaceOnly}, "has no core-components.yaml"},
		"no version":    {map[string]string{"cluster-api/latest/core-components.yaml": namespaceOnly}, "the name of its directory is no version"},
		"no namespace":  {map[string]string{core: definition}, core + ": it has no Namespace"},
		"no YAML":       {map[string]string{core: "a: b: c"}, core + ": "},
		"no kind":       {map[string]string{core: namespaceOnly + "---\na: b\n"}, "document 2 has no kind or no name"},
		"no variable":   {map[string]string{core: "a: ${b"}, core + ": "},
		"no definition": {map[string]string{core: namespaceOnly}, inventoryFile},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Open(writeFiles(t, test.files), withoutVariables); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestMachinesDirs: the directory of machines is that which a manager gets as an argument.
func TestMachinesDirs(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"cluster-api/v1.14.2/core-components.yaml":                     components,
		"infrastructure-kindred/v0.1.0/infrastructure-components.yaml": machines,
		"clusterctl-api.yaml":                                          definition,
	})
	for variable, want := range map[string]string{"": "/var/lib/kindred-machines", "/srv/machines": "/srv/machines"} {
		r, err := Open(dir, func(string) string { return variable })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{want}, r.MachinesDirs()); diff != "" {
			t.Errorf("with the variable %q (-want +got):\n%s", variable, diff)
		}
	}
}
