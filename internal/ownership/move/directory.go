// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kindred-project/kindred/internal/durable"
)

// A directory has one file for each object, in its state at the source, and an index with the
// files' checksums. It is written under a temporary name and then renamed, so that it is complete
// once it has its name. The index reveals directories that were copied only in part.
const (
	indexFile = "index.yaml"
	indexKind = "MovedGraph"
)

// index is the content of the index file.
type index struct {
	Kind  string       `json:"kind"`
	ID    string       `json:"id"`
	Roots []types.UID  `json:"roots"`
	Items []indexEntry `json:"items"` // in the order in which they are created
}

type indexEntry struct {
	File   string    `json:"file"`
	UID    types.UID `json:"uid"`
	SHA256 string    `json:"sha256"`
}

// directory is a graph that is stored in files.
type directory struct {
	path  string
	graph *Graph
}

func (d *directory) String() string { return d.path }

// read returns the graph that was read when the directory was opened.
func (d *directory) read(context.Context) (*Graph, []Ref, error) { return d.graph, nil, nil }

// readDirectory reads a directory and verifies it by its index.
func readDirectory(path string) (*directory, error) {
	text, err := os.ReadFile(filepath.Join(path, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no %s: it is not the directory of a move, or is incomplete; write it again with --to-directory", path, indexFile)
	}
	if err != nil {
		return nil, err
	}
	var list index
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(path, indexFile), err)
	}
	if list.Kind != indexKind || len(list.Items) == 0 {
		return nil, fmt.Errorf("%s is not the index of a move", filepath.Join(path, indexFile))
	}
	roots := map[types.UID]bool{}
	for _, uid := range list.Roots {
		roots[uid] = true
	}
	var objects []*unstructured.Unstructured
	for _, entry := range list.Items {
		object, err := readEntry(path, entry)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	g := Assemble(objects, roots)
	if g.ID() != list.ID {
		return nil, fmt.Errorf("%s: its roots are not among its objects", filepath.Join(path, indexFile))
	}
	return &directory{path, g}, nil
}

func readEntry(path string, entry indexEntry) (*unstructured.Unstructured, error) {
	if !filepath.IsLocal(entry.File) {
		return nil, fmt.Errorf("%s names %q, which is outside of the directory", filepath.Join(path, indexFile), entry.File)
	}
	name := filepath.Join(path, entry.File)
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s is incomplete: %w", path, err)
	}
	if sumOf(text) != entry.SHA256 {
		return nil, fmt.Errorf("%s is not what was written: its checksum differs from the one in %s", name, indexFile)
	}
	// Decode as JSON, so that integers stay integers.
	text, err = yaml.YAMLToJSON(text)
	object := &unstructured.Unstructured{}
	if err == nil {
		err = object.UnmarshalJSON(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if object.GetUID() != entry.UID || object.GetName() == "" || object.GetKind() == "" {
		return nil, fmt.Errorf("%s is not the object that %s names", name, indexFile)
	}
	return object, nil
}

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// checkEmptyDirectory returns an error if a directory exists and is not empty.
func checkEmptyDirectory(path string) error {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%s is not empty: name another directory", path)
	default:
		return nil
	}
}

// writeDirectory writes the graph. It replaces the temporary directory of an interrupted run.
func (m *Mover) writeDirectory() error {
	path := filepath.Clean(m.ToDirectory)
	partial := fmt.Sprintf("%s.partial-%s", path, m.plan.ID)
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	// The objects may include Secrets.
	if err := os.MkdirAll(partial, 0o700); err != nil {
		return err
	}
	list := index{Kind: indexKind, ID: m.plan.ID}
	for i, item := range m.graph.moved() {
		m.Progress(fmt.Sprintf("writing %s", item))
		if item.Root {
			list.Roots = append(list.Roots, item.UID())
		}
		entry, err := writeEntry(partial, i, item)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, entry)
	}
	text, err := yaml.Marshal(list)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(partial, indexFile), text, 0o600); err != nil {
		return err
	}
	// Verify that the directory can be read.
	if _, err := readDirectory(partial); err != nil {
		return err
	}
	// An empty directory may exist; os.Remove fails for any other.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := durable.RenameDir(partial, path); err != nil {
		return err
	}
	m.report.Copied = len(list.Items)
	return nil
}

func writeEntry(path string, number int, item *Item) (indexEntry, error) {
	object := item.Object.DeepCopy()
	object.SetManagedFields(nil)
	text, err := yaml.Marshal(object.Object)
	if err != nil {
		return indexEntry{}, err
	}
	// Number the files, because object names may be too long or invalid as file names.
	name := fmt.Sprintf("%04d-%s-%.100s.yaml", number+1, item.kind().String(), filepath.Base(item.Object.GetName()))
	return indexEntry{name, item.UID(), sumOf(text)}, os.WriteFile(filepath.Join(path, name), text, 0o600)
}
