// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// parseJSON decodes a JSON value as the program does.
func parseJSON(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := utiljson.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	return parseJSON(t, text).(map[string]any)
}

// TestManifests: every manifest can be parsed and has a kind, and names are unique for each kind
// and namespace.
func TestManifests(t *testing.T) {
	all, err := readManifests(manifestFiles)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, m := range all {
		id := strings.Join([]string{m.gvk().String(), m.namespace(), m.name(), m.subresource}, " ")
		if m.gvk().Kind == "" || m.gvk().Version == "" {
			t.Errorf("manifest %d of %s has no kind", i, m.resource)
		}
		if seen[id] && m.name() != "" && m.subresource == "" {
			t.Errorf("%s exists twice", id)
		}
		seen[id] = true
	}
	if _, err := readDocuments(manifestFiles, setupFile); err != nil {
		t.Error(err)
	}
}

func TestChange(t *testing.T) {
	const before = `{"a":{"b":[1,2,3]},"c":"d"}`
	for _, tt := range []struct {
		name   string
		change change
		want   string
		ok     bool
	}{
		{"set", change{path: path{"c"}, value: "x"}, `{"a":{"b":[1,2,3]},"c":"x"}`, true},
		{"add", change{path: path{"a", "e"}, value: true}, `{"a":{"b":[1,2,3],"e":true},"c":"d"}`, true},
		{"remove", change{path: path{"a", "b"}, remove: true}, `{"a":{},"c":"d"}`, true},
		{"remove a missing field", change{path: path{"x"}, remove: true}, before, false},
		{"replace an item", change{path: path{"a", "b", 1}, value: "x"}, `{"a":{"b":[1,"x",3]},"c":"d"}`, true},
		{"append", change{path: path{"a", "b", 3}, value: int64(4)}, `{"a":{"b":[1,2,3,4]},"c":"d"}`, true},
		{"remove an item", change{path: path{"a", "b", 0}, remove: true}, `{"a":{"b":[2,3]},"c":"d"}`, true},
		{"beyond the end", change{path: path{"a", "b", 5}, value: "x"}, before, false},
		{"below a missing field", change{path: path{"x", "y"}, value: "x"}, before, false},
		{"below a leaf", change{path: path{"c", "y"}, value: "x"}, before, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := tt.change.apply(parseJSON(t, before))
			if ok != tt.ok {
				t.Errorf("ok: %v, want %v", ok, tt.ok)
			}
			if diff := cmp.Diff(parseJSON(t, tt.want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// testSchemas has a kind with one field of each type.
func testSchemas() (*schemas, *schemaNode) {
	item := &schemaNode{Type: "object", Required: []string{"name"}, Properties: map[string]*schemaNode{
		"name": {Type: "string"}, "size": {AllOf: []schemaNode{{Ref: "#/components/schemas/x.Quantity"}}},
	}}
	root := &schemaNode{Type: "object", Properties: map[string]*schemaNode{
		"mode":   {Type: "string", Enum: []any{"Fast", "Slow"}},
		"count":  {Type: "integer"},
		"labels": {Type: "object", AdditionalProperties: &schemaNode{Type: "string"}},
		"items":  {Type: "array", Items: item, MergeKey: "name", Strategy: "merge"},
	}}
	s := newSchemas(nil)
	s.byName["x.Quantity"] = &schemaNode{Type: "string", name: "x.Quantity"}
	return s, root
}

func TestMutations(t *testing.T) {
	s, root := testSchemas()
	value := object(t, `{"mode":"Fast","items":[{"name":"a","size":"1"}]}`)
	all := s.mutations(root, value, func(p path) bool { return p[0] == "count" })
	var texts []string
	for _, c := range all {
		texts = append(texts, c.String())
	}
	for _, want := range []string{
		`mode = "Slow"`, `mode = "fast"`, `mode removed`, `mode = 7`, `parityUnknown = "x"`, `items = []`, `items[1] = {"name":"a","size":"1"}`,
		`items[0].name removed`, `items[0].size = "-1"`, `labels = {"Bad Key!":"a"}`,
	} {
		found := false
		for _, text := range texts {
			found = found || text == want
		}
		if !found {
			t.Errorf("no manifest for %s", want)
		}
	}
	for _, text := range texts {
		if strings.HasPrefix(text, "count") {
			t.Errorf("%s is tried although it is skipped", text)
		}
	}
	if diff := cmp.Diff(object(t, `{"mode":"Fast","items":[{"name":"a","size":"1"}]}`), value); diff != "" {
		t.Errorf("the walk changed the object: %s", diff)
	}
}

// TestSampleRepeats: the sample depends only on the seed.
func TestSampleRepeats(t *testing.T) {
	s, root := testSchemas()
	value := object(t, `{"mode":"Fast","items":[{"name":"a"}]}`)
	all := s.mutations(root, value, func(path) bool { return false })
	draw := func(seed uint64) string {
		var texts []string
		for _, m := range sample(all, 20, rand.New(rand.NewPCG(seed, 0))) {
			texts = append(texts, m.String())
		}
		return strings.Join(texts, "\n")
	}
	first := draw(1)
	if again := draw(1); first != again {
		t.Error("one seed gives different samples")
	}
	if first == draw(2) {
		t.Error("two seeds give the same sample")
	}
}

func TestPatches(t *testing.T) {
	s, root := testSchemas()
	const before = `{"mode":"Fast","labels":{"a/b":"c"},"items":[{"name":"a","size":"1"},{"name":"b"}]}`
	for _, tt := range []struct {
		name                   string
		change                 change
		json, merge, strategic string
	}{
		{"set", change{path: path{"mode"}, value: "Slow"},
			`[{"op":"replace","path":"/mode","value":"Slow"}]`, `{"mode":"Slow"}`, `{"mode":"Slow"}`},
		{"remove a key", change{path: path{"labels", "a/b"}, remove: true},
			`[{"op":"remove","path":"/labels/a~1b"}]`, `{"labels":{"a/b":null}}`, `{"labels":{"a/b":null}}`},
		{"below a list", change{path: path{"items", 0, "size"}, value: "2"},
			`[{"op":"replace","path":"/items/0/size","value":"2"}]`, `{"items":[{"name":"a","size":"2"},{"name":"b"}]}`, `{"items":[{"name":"a","size":"2"}]}`},
		{"add an item", change{path: path{"items", 2}, value: map[string]any{"name": "c"}},
			`[{"op":"add","path":"/items/2","value":{"name":"c"}}]`, `{"items":[{"name":"a","size":"1"},{"name":"b"},{"name":"c"}]}`, `{"items":[{"name":"c"}]}`},
		{"remove an item", change{path: path{"items", 1}, remove: true},
			`[{"op":"remove","path":"/items/1"}]`, `{"items":[{"name":"a","size":"1"}]}`, `{"items":[{"$patch":"delete","name":"b"}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(parseJSON(t, tt.json), any(mutation{tt.change}.jsonPatch(object(t, before)))); diff != "" {
				t.Errorf("JSON patch: %s", diff)
			}
			merge, _ := tt.change.mergePatch(object(t, before))
			if diff := cmp.Diff(parseJSON(t, tt.merge), merge); diff != "" {
				t.Errorf("merge patch: %s", diff)
			}
			strategic, _ := tt.change.strategicPatch(s, root, object(t, before))
			if diff := cmp.Diff(parseJSON(t, tt.strategic), strategic); diff != "" {
				t.Errorf("strategic patch: %s", diff)
			}
		})
	}
}
