// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestConvert(t *testing.T) {
	const manifest = "apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: c}\n---\napiVersion: example.com/v1\nkind: Thing\n"
	for name, test := range map[string]struct {
		args, stdin   string
		out, errs     string
		code          int
		nothingOnExit bool
	}{
		"preferred version":  {"-f -", manifest, "apiVersion: batch/v1\nkind: CronJob\nmetadata:\n  name: c\n---\n# Thing: left unchanged", "", exitOK, false},
		"JSON":               {"-f - -o json", manifest, `"apiVersion": "batch/v1"`, "standard input, document 2, Thing: left unchanged", exitOK, false},
		"no file":            {"", "", "", "no manifest given", exitUsage, true},
		"a wrong form":       {"-f - -o wide", "", "", `--output is "wide"`, exitUsage, true},
		"an unknown version": {"-f - --output-version apps/v3", "", "", "unknown version apps/v3; there are apps/v1, apps/v1beta2, apps/v1beta1", exitUsage, true},
		"no version":         {"-f - --output-version a/b/c", "", "", "--output-version: unexpected GroupVersion string", exitUsage, true},
		"malformed":          {"-f -", manifest + "---\nkind: B\n", "", "standard input, document 3: has no apiVersion or no kind", exitError, true},
		"an argument":        {"old.yaml", "", "", "unknown command", exitUsage, true},
	} {
		t.Run(name, func(t *testing.T) {
			root := New("test")
			var out, errs bytes.Buffer
			root.SetArgs(append([]string{"convert"}, strings.Fields(test.args)...))
			root.SetIn(strings.NewReader(test.stdin))
			root.SetOut(&out)
			root.SetErr(&errs)
			if code := Execute(root); code != test.code {
				t.Errorf("exit status %d, want %d", code, test.code)
			}
			if !strings.Contains(out.String(), test.out) || !strings.Contains(errs.String(), test.errs) {
				t.Errorf("standard output:\n%s\nstandard error:\n%s", &out, &errs)
			}
			if test.nothingOnExit && out.Len() > 0 {
				t.Errorf("written in spite of the error:\n%s", &out)
			}
		})
	}
}
