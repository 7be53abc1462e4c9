// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/kindred-project/kindred/test/servers"
)

const (
	podSpec   = "[sig-node] Pods should be updated [NodeConformance] [Conformance]"
	otherSpec = "[sig-apps] Job should run a job (to completion) [Conformance]"
)

func TestTheSelectionIsWhatIsAskedFor(t *testing.T) {
	all := []string{otherSpec, podSpec}
	list := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(list, []byte("# pods\n\n"+podSpec+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		selection
		want []string
	}{
		"all":   {selection{}, all},
		"focus": {selection{focus: `sig-node\]`}, []string{podSpec}},
		"skip":  {selection{skip: "updated"}, []string{otherSpec}},
		"list":  {selection{file: list}, []string{podSpec}},
		"both":  {selection{file: list, focus: "Job"}, nil},
		"none":  {selection{focus: "no such spec"}, nil},
		"wrong": {selection{focus: "("}, nil},
	} {
		got, err := c.of(all)
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestAListNamesNothingUnknown(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(list, []byte("[sig-node] Pods should fly [Conformance]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if names, err := listed(list, []string{podSpec}); err == nil {
		t.Errorf("a spec that upstream does not have was listed: %q", names)
	}
}

// TestSpecsOfAReport: only specs are listed, without the steps around them.
func TestSpecsOfAReport(t *testing.T) {
	report := types.Report{SpecReports: types.SpecReports{
		spec(podSpec, types.SpecStateSkipped, ""), spec(otherSpec, types.SpecStatePassed, ""),
		{LeafNodeType: types.NodeTypeBeforeSuite, LeafNodeText: "setup"},
	}}
	if got := specsOf(report); !slices.Equal(got, []string{otherSpec, podSpec}) {
		t.Errorf("got %q", got)
	}
}

// TestThePatternMatchesExactly: ginkgo matches the pattern against the suite's description and the
// spec's name.
func TestThePatternMatchesExactly(t *testing.T) {
	focus := regexp.MustCompile(pattern([]string{podSpec, otherSpec}))
	for text, want := range map[string]bool{
		"Kubernetes e2e suite " + podSpec:                                    true,
		"Kubernetes e2e suite " + otherSpec:                                  true,
		"Kubernetes e2e suite " + podSpec + " [Slow]":                        false,
		"Kubernetes e2e suite [sig-node] Other " + podSpec:                   false,
		"Kubernetes e2e suite " + strings.Replace(podSpec, "Pods", "Pod", 1): false,
	} {
		if focus.MatchString(text) != want {
			t.Errorf("%q matches: %t, want %t", text, !want, want)
		}
	}
}

func spec(name string, s types.SpecState, message string) types.SpecReport {
	sig, rest, _ := strings.Cut(name, " ")
	return types.SpecReport{
		ContainerHierarchyTexts: []string{sig}, LeafNodeText: rest, LeafNodeType: types.NodeTypeIt,
		State: s, Failure: types.Failure{Message: message},
	}
}

func TestResults(t *testing.T) {
	const cutSpec = "[sig-cli] Kubectl interrupted [Conformance]"
	const missing = "[sig-cli] Kubectl missing [Conformance]"
	report := types.Report{SpecReports: types.SpecReports{
		spec(podSpec, types.SpecStatePassed, ""),
		spec(otherSpec, types.SpecStateTimedout, "\n  timed out waiting\nfor "+filepath.Join(os.TempDir(), "a", "kubectl")+" and /api/v1/pods"),
		spec(cutSpec, types.SpecStateInterrupted, "interrupted by user"),
		spec("[sig-node] Pods not asked for", types.SpecStatePassed, ""),
	}}
	want := []result{
		{Spec: podSpec, State: passed},
		{Spec: otherSpec, State: failed, Message: "timed out waiting for kubectl and /api/v1/pods"},
		{Spec: cutSpec, State: notRun, Message: "the run was ended"},
		{Spec: missing, State: notRun},
	}
	if got := resultsOf(report, []string{podSpec, otherSpec, cutSpec, missing}); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestOneFailureIsAFailure: the worst of repeated runs counts.
func TestOneFailureIsAFailure(t *testing.T) {
	good, bad := result{Spec: podSpec, State: passed}, result{Spec: podSpec, State: failed, Message: "no"}
	for name, c := range map[string]struct {
		runs [][]result
		want result
	}{
		"once":   {[][]result{{good}}, good},
		"flaky":  {[][]result{{good}, {bad}, {good}}, result{Spec: podSpec, State: failed, Message: "failed 1 times of 3: no"}},
		"always": {[][]result{{bad}, {bad}}, bad},
		"cut":    {[][]result{{good}, {{Spec: podSpec, State: notRun}}}, result{Spec: podSpec, State: notRun}},
	} {
		if got := worst(c.runs); got[0] != c.want {
			t.Errorf("%s: %+v, want %+v", name, got[0], c.want)
		}
	}
}

// TestTheRecordIsMerged: a partial run changes only the results of the specs that it ran.
func TestTheRecordIsMerged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	first, err := readRecord(file)
	if err != nil {
		t.Fatal(err)
	}
	first.add([]result{{Spec: podSpec, State: passed, Seconds: 3}, {Spec: otherSpec, State: failed, Message: "<no>"}}, "abc", "")
	if err := first.write(file); err != nil {
		t.Fatal(err)
	}
	second, err := readRecord(file)
	if err != nil {
		t.Fatal(err)
	}
	second.add([]result{{Spec: podSpec, State: notRun}, {Spec: otherSpec, State: passed}}, "def", "2 simulated nodes")
	want := record{
		podSpec:   {Spec: podSpec, State: passed, Seconds: 3, Commit: "abc"},
		otherSpec: {Spec: otherSpec, State: passed, Commit: "def", Nodes: "2 simulated nodes"},
	}
	for name := range want {
		if second[name] != want[name] {
			t.Errorf("%+v, want %+v", second[name], want[name])
		}
	}
}

func TestThePage(t *testing.T) {
	kindred := record{
		podSpec:   {Spec: podSpec, State: failed, Message: "a | b", Commit: "abc", Seconds: 2.4},
		otherSpec: {Spec: otherSpec, State: passed, Commit: "def", Seconds: 10},
	}
	upstream := record{podSpec: {Spec: podSpec, State: failed, Message: "their message"}}
	why := causes{Upstream: map[string]string{podSpec: "their cause"}}
	const unknown = "[sig-cli] Kubectl unknown [Conformance]"
	got := string(page("v1.37.1", []string{otherSpec, unknown, podSpec}, kindred, upstream, nil, why))
	for _, line := range []string{
		"| [sig-apps](#sig-apps) | 1 | 0 | 0 |",
		"| **all** | **1** | **1** | **1** |",
		"| Job should run a job (to completion) [Conformance] | passed | def | 10 |  |  |",
		"| Kubectl unknown [Conformance] | not run |  |  |  |  |",
		`| Pods should be updated [NodeConformance] [Conformance] | **failed** | abc | 2 | failed | a \| b; upstream: their cause |`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %q in:\n%s", line, got)
		}
	}
}

func TestCausesNameNothingUnknown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "causes.yaml")
	if err := os.WriteFile(file, []byte("kindred: {\"[sig-node] Pods should fly\": wings}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := readCauses(file, []string{podSpec}); err == nil {
		t.Errorf("a cause of a spec that upstream does not have was read: %v", c)
	}
}

// The results of the suite of node agents are a table of their own.
func TestPageOfAgents(t *testing.T) {
	agents := record{
		otherSpec: {Spec: otherSpec, State: failed, Message: "no | pipe", Commit: "abc"},
		podSpec:   {Spec: podSpec, State: passed, Seconds: 3, Commit: "abc"},
	}
	skip := []result{{Spec: "skips", State: notRun, Message: "no swap"}, {Spec: "cut", State: notRun, Message: ended}, {Spec: podSpec, State: notRun, Message: "skipped later"}}
	agents.addSuite(skip, []string{podSpec, otherSpec, "skips", "cut", "never"}, "def")
	got := string(page("v1.37.1", nil, nil, nil, agents, causes{Kindred: map[string]string{podSpec: "passed, not shown"}}))
	for _, want := range []string{
		"## Suite of node agents", "| Pods should be updated [NodeConformance] [Conformance] | passed | abc | 3 |", `no \| pipe`,
		"1 passed, 1 failed, 1 skipped themselves", "\n2 were not run", "| skips | not run | def |  |  | no swap |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page has no %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "not shown") || strings.Contains(got, "| never") || strings.Contains(got, "| cut") || strings.Contains(string(page("v1.37.1", nil, nil, nil, nil, causes{})), "node agents") {
		t.Error("the page has more than was recorded")
	}
}

// The unit of the agent is found, stopped and started with systemctl's commands.
func TestSystemctl(t *testing.T) {
	u := &unit{dir: t.TempDir()}
	if err := u.serve(); err != nil {
		t.Fatal(err)
	}
	defer u.close()
	for _, variable := range u.env() {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	u.running, u.server = true, &servers.Server{}
	if !strings.Contains(u.list(), "running") {
		t.Errorf("a running unit is listed as %q", u.list())
	}
	for _, command := range []string{"list-units", "reset-failed", "start"} {
		if err := actAsSystemctl([]string{command, unitName}); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	// There is no program that could serve the API meanwhile.
	if err := actAsSystemctl([]string{"kill", unitName}); err == nil {
		t.Error("the API is served without a program")
	}
	if strings.Contains(u.list(), "running") {
		t.Errorf("a unit that was killed is listed as %q", u.list())
	}
	for _, command := range []string{"start", "restart"} {
		if err := actAsSystemctl([]string{command, unitName}); err == nil {
			t.Errorf("%s: a unit without a program was started", command)
		}
	}
	if err := actAsSystemctl([]string{"unknown"}); err == nil {
		t.Error("an unknown command succeeded")
	}
}

func TestHierarchies(t *testing.T) {
	mounts := "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu,cpuacct 0 0\n" +
		"cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
	got := hierarchies(mounts, "3:cpu,cpuacct:/a/b\n2:pids:/a\n1:name=systemd:/\n0::/\n")
	want := []hierarchy{
		{kind: "cgroup", dir: "/sys/fs/cgroup/cpu", options: "cpu,cpuacct", own: "/sys/fs/cgroup/cpu/a/b"},
		{kind: "cgroup", dir: "/sys/fs/cgroup/systemd", options: "name=systemd", own: "/sys/fs/cgroup/systemd"},
		{kind: "cgroup2", dir: "/sys/fs/cgroup/unified", own: "/sys/fs/cgroup/unified"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := hierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "0::/a\n"); len(got) != 0 {
		t.Errorf("version 2 alone: got %+v", got)
	}
}
