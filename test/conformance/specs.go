// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
	"sigs.k8s.io/yaml"
)

// conformanceSpecs returns the names of all specs in upstream's list of conformance tests:
// conformance.yaml of the module that the suite is built from.
func conformanceSpecs(kubernetes string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(kubernetes, "test/conformance/testdata/conformance.yaml"))
	if err != nil {
		return nil, err
	}
	var entries []struct {
		Codename string `json:"codename"`
	}
	if err := yaml.Unmarshal(content, &entries); err != nil {
		return nil, fmt.Errorf("conformance.yaml: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Codename)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// suiteSpecs returns the names of all specs of the suite, as ginkgo reports them without running them.
func (r *run) suiteSpecs(ctx context.Context) ([]string, error) {
	programs, err := buildPrograms(ctx, r.dir, filepath.Join(r.dir, "bin"), r.suite)
	if err != nil {
		return nil, err
	}
	out, err := os.MkdirTemp("", "conformance-specs-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	args := []string{"--dry-run", "--silence-skips", "--output-dir=" + out, "--json-report=report.json", programs.suite, "--"}
	if r.suite == clusterSuite {
		args = append(args, "--provider=skeleton", "--kubeconfig="+os.DevNull)
	}
	cmd := exec.CommandContext(ctx, programs.ginkgo, args...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("list the specs of the suite: %w: %s", err, firstLines(string(text)))
	}
	report, err := readReport(filepath.Join(out, "report.json"))
	if err != nil {
		return nil, err
	}
	return specsOf(report), nil
}

// specsOf returns the names of the specs in a report, sorted.
func specsOf(report types.Report) []string {
	var names []string
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType == types.NodeTypeIt {
			names = append(names, spec.FullText())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// selection chooses the specs of a run.
type selection struct {
	focus, skip string
	// file, if set, lists specs by name, one on a line; "#" begins a comment.
	file string
}

// of returns the selected specs. Selecting none is an error, because it is probably a typing error.
func (s selection) of(all []string) ([]string, error) {
	focus, err := regexp.Compile(s.focus)
	if err != nil {
		return nil, fmt.Errorf("FOCUS: %w", err)
	}
	skip, err := regexp.Compile(s.skip)
	if err != nil {
		return nil, fmt.Errorf("SKIP: %w", err)
	}
	if s.file != "" {
		if all, err = listed(s.file, all); err != nil {
			return nil, err
		}
	}
	var selected []string
	for _, name := range all {
		if focus.MatchString(name) && (s.skip == "" || !skip.MatchString(name)) {
			selected = append(selected, name)
		}
	}
	if len(selected) == 0 {
		return nil, errors.New("no spec has a name that matches FOCUS and not SKIP")
	}
	return selected, nil
}

// listed reads a list of specs. A name that upstream does not have is an error: otherwise the spec
// would silently never run.
func listed(file string, all []string) ([]string, error) {
	content, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	var names []string
	lines := bufio.NewScanner(content)
	for lines.Scan() {
		name := strings.TrimSpace(lines.Text())
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("%s: no conformance spec is called %q", file, name)
		}
		names = append(names, name)
	}
	return names, lines.Err()
}

// sigOf returns the special interest group in a spec's name: "[sig-node] Pods ...".
func sigOf(name string) string {
	sig, _, _ := strings.Cut(strings.TrimPrefix(name, "["), "]")
	return sig
}

// pattern returns a regular expression that matches exactly the given specs. ginkgo matches it
// against the suite's description, a space and the spec's name.
func pattern(names []string) string {
	quoted := make([]string, 0, len(names))
	for _, name := range names {
		quoted = append(quoted, regexp.QuoteMeta(name))
	}
	return "^[^\\[]*(" + strings.Join(quoted, "|") + ")$"
}
