// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRewrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "process.json")
	for _, c := range []struct{ process, want string }{
		{
			`{"oomScoreAdj": -997, "capabilities": {"bounding": ["CAP_KILL", "CAP_SYS_RESOURCE"], "effective": ["CAP_SYS_RESOURCE"]}, "rlimit": 18446744073709551615}`,
			`{"capabilities":{"bounding":["CAP_KILL"],"effective":[]},"oomScoreAdj":-3,"rlimit":18446744073709551615}`,
		},
		{`{"oomScoreAdj": 1000, "capabilities": {"bounding": null}}`, `{"capabilities":{"bounding":null},"oomScoreAdj":1000}`},
		{`{"args": ["true"]}`, `{"args":["true"]}`},
	} {
		if err := os.WriteFile(file, []byte(c.process), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := rewrite(file, func(process map[string]any) { restrict(process, -3) }); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != c.want {
			t.Errorf("%s, %v\nwant %s", got, err, c.want)
		}
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(file, nil); err == nil {
		t.Errorf("invalid JSON: %v", err)
	}
}

func TestOption(t *testing.T) {
	for _, c := range []struct {
		command []string
		want    string
	}{
		{[]string{"runc", "--root", "/r", "create", "--bundle", "/b", "id"}, "/b"},
		{[]string{"runc", "create", "--bundle=/b", "id"}, "/b"},
		{[]string{"runc", "create", "--bundle"}, ""},
		{[]string{"runc", "state", "id"}, ""},
	} {
		if got, ok := option(c.command, "bundle"); got != c.want || ok != (c.want != "") {
			t.Errorf("%q: %q, %v", c.command, got, ok)
		}
	}
}
