// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	pathpkg "path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

//go:embed manifests
var manifestFiles embed.FS

const (
	// namespace is the namespace of objects whose manifest has none.
	namespace = "parity"
	// setupFile has objects that are created in both servers before the first request.
	setupFile = "manifests/setup.yaml"
)

// manifest is one document, which is one variant of a kind.
type manifest struct {
	object map[string]any
	// subresource is set for a body that is sent to a subresource of the object with its name:
	// documents in files named <resource>.<subresource>.yaml.
	resource, subresource string
}

func (m manifest) gvk() schema.GroupVersionKind {
	apiVersion, _ := m.object["apiVersion"].(string)
	kind, _ := m.object["kind"].(string)
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

func (m manifest) metadata() map[string]any {
	metadata, _ := m.object["metadata"].(map[string]any)
	return metadata
}

func (m manifest) name() string {
	name, _ := m.metadata()["name"].(string)
	return name
}

func (m manifest) namespace() string {
	if named, ok := m.metadata()["namespace"].(string); ok {
		return named
	}
	return namespace
}

// readManifests reads all manifests except the setup.
func readManifests(files fs.FS) ([]manifest, error) {
	var all []manifest
	err := fs.WalkDir(files, "manifests", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == setupFile {
			return err
		}
		documents, err := readDocuments(files, name)
		if err != nil {
			return err
		}
		resource, subresource, _ := strings.Cut(strings.TrimSuffix(pathpkg.Base(name), ".yaml"), ".")
		for _, object := range documents {
			all = append(all, manifest{object: object, resource: resource, subresource: subresource})
		}
		return nil
	})
	return all, err
}

// readDocuments reads the documents of a YAML file.
func readDocuments(files fs.FS, name string) ([]map[string]any, error) {
	content, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	var all []map[string]any
	for i, document := range bytes.Split(content, []byte("\n---\n")) {
		data, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", name, i+1, err)
		}
		var object map[string]any
		if err := utiljson.Unmarshal(data, &object); err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", name, i+1, err)
		}
		if len(object) > 0 {
			all = append(all, object)
		}
	}
	return all, nil
}

// of returns the manifests of a resource: its variants, and bodies for its subresources.
func of(all []manifest, r *resource) (variants, bodies []manifest) {
	for _, m := range all {
		switch {
		case m.subresource == "" && m.gvk() == r.gvk():
			variants = append(variants, m)
		case m.subresource != "" && m.resource == r.api.Name:
			if _, found := r.subresources[m.subresource]; found {
				bodies = append(bodies, m)
			}
		}
	}
	return variants, bodies
}
