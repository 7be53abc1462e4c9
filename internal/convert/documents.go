// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/yaml"
)

// Document is one document of a file.
type Document struct {
	// Source is the file, or "standard input".
	Source string
	// Number counts the documents of the source that have an object, from 1.
	Number int
	// Text is the document as it was read.
	Text string
	// Object is nil if there are only comments.
	Object *unstructured.Unstructured
}

// String names the document in messages.
func (d *Document) String() string { return fmt.Sprintf("%s, document %d", d.Source, d.Number) }

// Read reads the documents of files, of the manifests in directories, and of standard input, which
// is "-". It reads as far as possible, and returns an error for each document that is malformed.
func Read(names []string, recursive bool, stdin io.Reader) ([]*Document, error) {
	var all []*Document
	var failed []error
	for _, name := range names {
		documents, err := readFrom(name, recursive, stdin)
		all, failed = append(all, documents...), append(failed, err)
	}
	return all, errors.Join(failed...)
}

func readFrom(name string, recursive bool, stdin io.Reader) ([]*Document, error) {
	if name == "-" {
		return readAll("standard input", stdin)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return readFile(name)
	}
	files, err := manifests(name, recursive)
	if err != nil {
		return nil, err
	}
	var all []*Document
	var failed []error
	for _, file := range files {
		documents, err := readFile(file)
		all, failed = append(all, documents...), append(failed, err)
	}
	return all, errors.Join(failed...)
}

// manifests returns the files in a directory with an extension by which kubectl knows manifests.
func manifests(directory string, recursive bool) ([]string, error) {
	var files []string
	err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != directory && !recursive:
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains(resource.FileExtensions, filepath.Ext(name)):
			files = append(files, name)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no files that end in %s", directory, strings.Join(resource.FileExtensions, ", "))
	}
	return files, err
}

func readFile(name string) ([]*Document, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readAll(name, file)
}

func readAll(source string, from io.Reader) ([]*Document, error) {
	content, err := io.ReadAll(from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	next := yamlDocuments(content)
	if isJSON(content) {
		next = jsonDocuments(content)
	}
	var all []*Document
	var failed []error
	for number := 1; ; number++ {
		text, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		d := &Document{Source: source, Number: number, Text: text}
		if err == nil {
			err = d.parse()
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", d, err))
			if text == "" {
				break // what follows cannot be told apart
			}
			continue
		}
		if d.Object == nil {
			number--
		}
		all = append(all, d)
	}
	if len(all) == 0 && len(failed) == 0 {
		return nil, fmt.Errorf("%s has no objects", source)
	}
	return all, errors.Join(failed...)
}

// yamlDocuments returns a function that returns the next document. Empty ones are left out.
func yamlDocuments(content []byte) func() (string, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	return func() (string, error) {
		for {
			text, err := reader.Read()
			if err != nil {
				return "", err
			}
			// The reader leaves the separator at the beginning of a file.
			trimmed := strings.TrimSpace(strings.TrimPrefix(string(text), "---\n"))
			if trimmed != "" {
				return trimmed + "\n", nil
			}
		}
	}
}

// isJSON reports whether content is a series of JSON values. YAML may begin with a JSON value too.
func isJSON(content []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(content))
	var first json.RawMessage
	if decoder.Decode(&first) != nil {
		return false
	}
	rest := bytes.TrimSpace(content[decoder.InputOffset():])
	return len(rest) == 0 || utilyaml.IsJSONBuffer(rest)
}

func jsonDocuments(content []byte) func() (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	return func() (string, error) {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		return string(raw), err
	}
}

// parse decodes the text. Duplicate fields are errors.
func (d *Document) parse() error {
	encoded, err := yaml.YAMLToJSONStrict([]byte(d.Text))
	if err != nil {
		return err
	}
	if string(encoded) == "null" {
		return nil
	}
	fields := map[string]any{}
	if err := utiljson.Unmarshal(encoded, &fields); err != nil {
		return errors.New("is not an object")
	}
	object := &unstructured.Unstructured{Object: fields}
	kind, _, _ := unstructured.NestedString(fields, "kind")
	apiVersion, _, _ := unstructured.NestedString(fields, "apiVersion")
	if kind == "" || apiVersion == "" {
		return errors.New("has no apiVersion or no kind")
	}
	d.Object = object
	return nil
}
