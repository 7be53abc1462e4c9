// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.yaml":      "apiVersion: v1\nkind: A\n---\n\n---\n# comment\n---\napiVersion: v1\nkind: B\n",
		"b.json":      `{"apiVersion":"v1","kind":"C"} {"apiVersion":"v1","kind":"D"}`,
		"c.txt":       "no manifest",
		"flow/f.yaml": "{\"apiVersion\":\"v1\",\"kind\":\"F\"}\n---\n{apiVersion: v1, kind: G}",
		"deep/d.yml":  "---\napiVersion: v1\nkind: E\n",
		"empty/e.txt": "nothing",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, test := range map[string]struct {
		files     []string
		recursive bool
		want      string
	}{
		"file":           {[]string{in("a.yaml")}, false, "A1 -2 B2"},
		"directory":      {[]string{dir}, false, "A1 -2 B2 C1 D2"},
		"recursive":      {[]string{dir}, true, "A1 -2 B2 C1 D2 E1 F1 G2"},
		"JSON in YAML":   {[]string{in("flow/f.yaml")}, false, "F1 G2"},
		"standard input": {[]string{"-", in("b.json")}, false, "Z1 C1 D2"},
	} {
		documents, err := Read(test.files, test.recursive, strings.NewReader("kind: Z\napiVersion: v1"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, d := range documents {
			kind := "-"
			if d.Object != nil {
				kind = d.Object.GetKind()
			}
			got = append(got, fmt.Sprint(kind, d.Number))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
	for name, want := range map[string]string{"empty": "has no files that end in .json, .yaml, .yml", "missing": "no such file", "c.txt": "document 1: is not an object"} {
		if _, err := Read([]string{in(name)}, false, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestMalformed: errors name the document, all of them are reported, and nothing is returned.
func TestMalformed(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		want []string
	}{
		"no kind":        {"apiVersion: v1", []string{"test, document 1: has no apiVersion or no kind"}},
		"no object":      {"apiVersion: v1\nkind: A\n---\n- 1", []string{"test, document 2: is not an object"}},
		"no YAML":        {"apiVersion: v1\nkind: A\n---\na: b: c\n---\nkind: B", []string{"test, document 2: ", "mapping values", "test, document 3: has no"}},
		"duplicate":      {"apiVersion: v1\nkind: A\nkind: B", []string{"document 1: ", `"kind" already set`}},
		"no JSON":        {`{"apiVersion":"v1","kind":"A"} {"kind":`, []string{"test, document 2: unexpected EOF"}},
		"nothing":        {"\n---\n", []string{"test has no objects"}},
		"kind is a list": {"apiVersion: v1\nkind: [A]", []string{"document 1: has no apiVersion or no kind"}},
	} {
		documents, err := readAll("test", strings.NewReader(test.in))
		if err == nil {
			t.Errorf("%s: %v", name, documents)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	for name, test := range map[string]struct{ in, want string }{
		"wrong type": {"{apiVersion: apps/v1, kind: Deployment}\n---\n{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: web}, spec: {replicas: many}}",
			"test, document 2, Deployment/web: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"},
		"wrong item":    {"{apiVersion: v1, kind: List, items: [{apiVersion: apps/v1beta1, kind: Deployment, spec: 1}]}", "test, document 1, List: items[0], Deployment: "},
		"no item":       {"{apiVersion: v1, kind: List, items: [1]}", "test, document 1, List: items[0] is not an object"},
		"unnamed item":  {"{apiVersion: v1, kind: List, items: [{kind: A}]}", "items[0] has no apiVersion or no kind"},
		"items a field": {"{apiVersion: v1, kind: List, items: 3}", "document 1, List: items is not a list"},
	} {
		documents, err := readAll("test", strings.NewReader(test.in))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out, err := converter.Documents(documents, schema.GroupVersion{}, false)
		if err == nil || !strings.Contains(err.Error(), test.want) || out.Text != nil {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestCheckVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1": "", "apps/v1": "", "extensions/v1beta1": "", "policy/v1beta1": "",
		"apps/v3":        "unknown version apps/v3; there are apps/v1, apps/v1beta2, apps/v1beta1",
		"example.com/v1": `unknown version example.com/v1: no built-in API group is called "example.com"`,
	} {
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := converter.CheckVersion(gv); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	documents, err := readAll("test", strings.NewReader("{apiVersion: example.com/v1, kind: Thing}\n---\n{apiVersion: batch/v1beta1, kind: CronJob, metadata: {name: c}}"))
	if err != nil {
		t.Fatal(err)
	}
	one, err := converter.Documents(documents[1:], schema.GroupVersion{}, true)
	if err != nil {
		t.Fatal(err)
	}
	want := "{\n    \"apiVersion\": \"batch/v1\",\n    \"kind\": \"CronJob\",\n    \"metadata\": {\n        \"name\": \"c\"\n    }\n}\n"
	if diff := cmp.Diff(want, string(one.Text)); diff != "" || len(one.Notes) > 0 {
		t.Errorf("%s\n%s", diff, one.Notes)
	}
	both, err := converter.Documents(documents, schema.GroupVersion{}, true)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(both.Text), "{\n    \"apiVersion\": \"v1\",\n    \"items\": [") || !strings.HasPrefix(string(both.Notes), "test, document 1, Thing: left unchanged") {
		t.Errorf("%s\n%s", both.Text, both.Notes)
	}
}
