// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
)

// state is the result of a spec.
type state string

const (
	passed state = "passed"
	failed state = "failed"
	notRun state = "not run"
)

// result is the recorded result of one spec.
type result struct {
	Spec    string  `json:"spec"`
	State   state   `json:"state"`
	Seconds float64 `json:"seconds,omitempty"`
	// Message is the first line of a failure.
	Message string `json:"message,omitempty"`
	// Commit is the tested commit, with "-dirty" if the tree had changes.
	Commit string `json:"commit,omitempty"`
	// Nodes describes the nodes of the cluster, if not one real node.
	Nodes string `json:"nodes,omitempty"`
}

// worst merges the results of repeated runs: a spec that failed once has failed.
func worst(runs [][]result) []result {
	joined := slices.Clone(runs[0])
	for i := range joined {
		failures := 0
		for _, run := range runs {
			r := run[i]
			if r.State == failed {
				failures++
			}
			if rank(r.State) > rank(joined[i].State) {
				joined[i] = r
			}
		}
		if failures > 0 && failures < len(runs) {
			joined[i].Message = fmt.Sprintf("failed %d times of %d: %s", failures, len(runs), joined[i].Message)
		}
	}
	return joined
}

func rank(s state) int { return slices.Index([]state{passed, notRun, failed}, s) }

// record has the latest result of each spec against one of the systems.
type record map[string]result

// readRecord reads a file with one result on a line. The file may not exist yet.
func readRecord(file string) (record, error) {
	r := record{}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	for decoder.More() {
		var one result
		if err := decoder.Decode(&one); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		r[one.Spec] = one
	}
	return r, nil
}

// add merges the results of a run. Results of specs that did not run are kept.
func (r record) add(results []result, commit, nodes string) {
	for _, one := range results {
		if one.State == notRun {
			continue
		}
		one.Commit, one.Nodes = commit, nodes
		r[one.Spec] = one
	}
}

// addSuite is add for a suite of which many specs skip themselves: it records why, and the specs that were never run.
func (r record) addSuite(results []result, all []string, commit string) {
	for _, name := range all {
		if _, known := r[name]; !known {
			r[name] = result{Spec: name, State: notRun}
		}
	}
	for _, one := range results {
		if one.State == notRun && one.Message != "" && one.Message != ended && r[one.Spec].State == notRun {
			one.Commit = commit
			r[one.Spec] = one
		}
	}
	r.add(results, commit, "")
}

// specs returns the names of the recorded specs, in order.
func (r record) specs() []string { return slices.Sorted(maps.Keys(r)) }

func (r record) write(file string) error {
	all := make([]result, 0, len(r))
	for _, one := range r {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b result) int { return cmp.Compare(a.Spec, b.Spec) })
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	encoder.SetEscapeHTML(false)
	for _, one := range all {
		if err := encoder.Encode(one); err != nil {
			return err
		}
	}
	return os.WriteFile(file, content.Bytes(), 0o644)
}
