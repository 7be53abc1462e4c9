// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Output is the result of converting documents.
type Output struct {
	// Text is the manifest. Notes has a line for each note, if the form of the text has no comments.
	Text, Notes []byte
}

// Documents converts documents to a version. Nothing is returned if one of them cannot be converted.
func (c *Converter) Documents(documents []*Document, to schema.GroupVersion, asJSON bool) (Output, error) {
	var results []Result
	var failed []error
	for _, d := range documents {
		if d.Object == nil {
			results = append(results, Result{})
			continue
		}
		result, err := c.Convert(d.Object, to)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s, %s: %w", d, Name(d.Object), err))
		}
		results = append(results, result)
	}
	if err := errors.Join(failed...); err != nil {
		return Output{}, err
	}
	if asJSON {
		return writeJSON(documents, results)
	}
	return writeYAML(documents, results)
}

// writeYAML writes each document with its notes as comments at its head, after the comments that it had
// there. Documents that did not change stay as they are.
func writeYAML(documents []*Document, results []Result) (Output, error) {
	var out bytes.Buffer
	for i, d := range documents {
		if i > 0 {
			out.WriteString("---\n")
		}
		result := results[i]
		if result.Changed {
			out.WriteString(headOf(d.Text))
		}
		for _, note := range result.Notes {
			// An unchanged document may have it from an earlier conversion.
			if comment := fmt.Sprintf("# %s: %s\n", Name(d.Object), note); !strings.Contains(headOf(d.Text), comment) {
				out.WriteString(comment)
			}
		}
		if !result.Changed {
			out.WriteString(d.Text)
			if d.Text[len(d.Text)-1] != '\n' {
				out.WriteByte('\n')
			}
			continue
		}
		text, err := yaml.Marshal(result.Object.Object)
		if err != nil {
			return Output{}, fmt.Errorf("%s: %w", d, err)
		}
		out.Write(text)
	}
	return Output{Text: out.Bytes()}, nil
}

// headOf returns the comments at the head of a document.
func headOf(text string) string {
	var head strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		head.WriteString(line)
	}
	return head.String()
}

// writeJSON writes one object, or several in a List.
func writeJSON(documents []*Document, results []Result) (Output, error) {
	var notes bytes.Buffer
	var objects []any
	for i, d := range documents {
		if d.Object == nil {
			continue
		}
		for _, note := range results[i].Notes {
			fmt.Fprintf(&notes, "%s, %s: %s\n", d, Name(d.Object), note)
		}
		objects = append(objects, results[i].Object.Object)
	}
	var all any = map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}
	if len(objects) == 1 {
		all = objects[0]
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", "    ")
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(all)
	return Output{Text: out.Bytes(), Notes: notes.Bytes()}, err
}

// WriteTo writes the manifest, and the notes that are not in it.
func (o Output) WriteTo(out, notes io.Writer) error {
	if _, err := notes.Write(o.Notes); err != nil {
		return err
	}
	_, err := out.Write(o.Text)
	return err
}
