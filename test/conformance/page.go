// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

const pageHead = `<!-- Written by "make conformance" from test/conformance/results*.json and causes.yaml. Do not edit. -->

# Conformance

The latest result of each of upstream's %d conformance specs of Kubernetes %s, which
` + "`make conformance`" + ` runs unmodified ([how](../test/conformance/README.md)). *Seen on* is the tested
commit. Kindred has two real nodes, the second in a network namespace. *Upstream* is the result of the same spec with upstream's own control plane and kubelet, on
the same kind of machine and one node (` + "`make conformance AGAINST=upstream`" + `), if it was run there.

`

// causes are the known causes of failures, by spec name. They are written by hand.
type causes struct {
	Kindred  map[string]string `json:"kindred"`
	Upstream map[string]string `json:"upstream"`
}

// readCauses reads causes.yaml. It fails if a name is not that of a conformance spec.
func readCauses(file string, all []string) (causes, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return causes{}, err
	}
	var c causes
	if err := yaml.UnmarshalStrict(content, &c); err != nil {
		return causes{}, fmt.Errorf("%s: %w", file, err)
	}
	known := map[string]bool{}
	for _, name := range all {
		known[name] = true
	}
	for _, side := range []map[string]string{c.Kindred, c.Upstream} {
		for name := range side {
			if !known[name] {
				return causes{}, fmt.Errorf("%s: no conformance spec is called %q", file, name)
			}
		}
	}
	return c, nil
}

// page returns the content of docs/conformance.md.
func page(version string, all []string, kindred, upstream, agents record, why causes) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, pageHead, len(all), version)
	results := make([]result, 0, len(all))
	for _, name := range all {
		results = append(results, latest(kindred, name))
	}
	groups, sigs := bySig(results)
	writeSummary(&b, groups, sigs, tallyOf(results))
	for _, sig := range sigs {
		fmt.Fprintf(&b, "\n## %s\n\n| spec | | seen on | s | upstream | why |\n|---|---|---|---:|---|---|\n", sig)
		for _, r := range groups[sig] {
			writeRow(&b, r, latest(upstream, r.Spec), why)
		}
	}
	writeAgents(&b, agents, why)
	return b.Bytes()
}

const agentsHead = `
## Suite of node agents

The latest result of each spec of upstream's suite of node agents (test/e2e_node) on the agent of Kindred's real node, from
` + "`make conformance SUITE=node`" + `: %d passed, %d failed, %d skipped themselves because of this machine or the configuration, and
%d were not run and are not listed.

| spec | | seen on | s | upstream | why |
|---|---|---|---:|---|---|
`

// writeAgents writes the table of the suite of node agents, if it was run.
func writeAgents(b *bytes.Buffer, agents record, why causes) {
	if len(agents) == 0 {
		return
	}
	var results, listed []result
	for _, name := range agents.specs() {
		one := agents[name]
		if results = append(results, one); one.State != notRun || one.Message != "" {
			listed = append(listed, one)
		}
	}
	t := tallyOf(results)
	skipped := len(listed) - t[passed] - t[failed]
	fmt.Fprintf(b, agentsHead, t[passed], t[failed], skipped, t[notRun]-skipped)
	for _, one := range listed {
		writeRow(b, one, latest(nil, one.Spec), why)
	}
}

// latest returns the recorded result of a spec, or notRun.
func latest(r record, name string) result {
	if one, ok := r[name]; ok {
		return one
	}
	return result{Spec: name, State: notRun}
}

func writeSummary(b *bytes.Buffer, groups map[string][]result, sigs []string, total tally) {
	b.WriteString("| | passed | failed | not run |\n|---|---:|---:|---:|\n")
	for _, sig := range sigs {
		t := tallyOf(groups[sig])
		fmt.Fprintf(b, "| [%s](#%s) | %d | %d | %d |\n", sig, sig, t[passed], t[failed], t[notRun])
	}
	fmt.Fprintf(b, "| **all** | **%d** | **%d** | **%d** |\n", total[passed], total[failed], total[notRun])
}

func writeRow(b *bytes.Buffer, r, upstream result, why causes) {
	seen := r.Commit
	if r.Nodes != "" {
		seen += ", " + r.Nodes
	}
	seconds := ""
	if r.State != notRun {
		seconds = fmt.Sprintf("%.0f", r.Seconds)
	}
	var reasons []string
	if r.State != passed {
		reasons = append(reasons, reason(why.Kindred[r.Spec], r.Message))
	}
	theirs := ""
	if upstream.State != notRun {
		theirs = string(upstream.State)
	}
	if upstream.State == failed {
		reasons = append(reasons, "upstream: "+reason(why.Upstream[r.Spec], upstream.Message))
	}
	mark := string(r.State)
	if r.State == failed {
		mark = "**failed**"
	}
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n",
		cell(strings.TrimPrefix(r.Spec, "["+sigOf(r.Spec)+"] ")), mark, seen, seconds, theirs, cell(strings.Join(reasons, "; ")))
}

// reason returns the cause if it is known, and otherwise the spec's own failure message.
func reason(found, said string) string {
	if found != "" {
		return found
	}
	return said
}

// cell escapes text for a cell of a Markdown table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "*", `\*`, "\n", " ").Replace(strings.TrimSpace(text))
}
