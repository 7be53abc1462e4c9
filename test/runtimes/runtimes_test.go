// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReadResults(t *testing.T) {
	const stream = `{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA/part","Output":"the reason\n"}
{"Action":"fail","Test":"TestA/part","Elapsed":0.5}
{"Action":"fail","Test":"TestA","Elapsed":1.5}
{"Action":"output","Test":"TestB","Output":"hidden\n"}
{"Action":"pass","Test":"TestB","Elapsed":2}
no JSON
{"Action":"skip","Test":"TestC","Elapsed":0}
{"Action":"fail","Elapsed":4}
`
	var out strings.Builder
	got, err := readResults(strings.NewReader(stream), &out, false)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]result{"TestA": {"fail", 1500 * time.Millisecond}, "TestB": {"pass", 2 * time.Second}, "TestC": {"skip", 0}}
	if len(got) != len(want) {
		t.Errorf("results %v", got)
	}
	for name, r := range want {
		if got[name] != r {
			t.Errorf("%s: %v, want %v", name, got[name], r)
		}
	}
	if out.String() != "the reason\nno JSON\n" {
		t.Errorf("output %q", out.String())
	}
	var results table
	results.add("one", got)
	results.add("two", map[string]result{"TestB": {"pass", time.Second}})
	for _, line := range []string{"A         fail 1.5s  not run\n", "B         pass 2s    pass 1s\n"} {
		if text := results.String(); !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	if results.failed() != 1 {
		t.Errorf("%d failed", results.failed())
	}
}

func TestSelectRuntimes(t *testing.T) {
	got, err := selectRuntimes("cri-o,system")
	if err != nil || len(got) != 2 || got[0].name != "system" || got[1].name != "cri-o" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := selectRuntimes("system,docker"); err == nil || !strings.Contains(err.Error(), "no runtime docker; there are system, ") {
		t.Errorf("error %v", err)
	}
}

// TestNodeScenariosExist: go test passes without a word if a scenario of the list has another name.
func TestNodeScenariosExist(t *testing.T) {
	files, err := filepath.Glob("../scenarios/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	var all strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	for _, name := range nodeScenarios {
		if !strings.Contains(all.String(), "\nfunc "+name+"(t *testing.T) {") {
			t.Errorf("no scenario %s", name)
		}
	}
}
