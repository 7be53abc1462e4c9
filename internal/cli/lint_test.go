// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

func finding(name string, rule ownership.LintRule, fix string) ownership.LintFinding {
	d, _ := ownership.DescribeLintRule(rule)
	f := ownership.LintFinding{
		Object: ownership.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: "shop", Name: name, UID: types.UID(name)},
		Rule:   rule, Severity: d.Severity, Message: "something is wrong", Consequence: d.Consequence, Remedy: d.Remedy,
	}
	if fix != "" {
		f.Fix = &ownership.LintFix{Description: fix, ResourceVersion: "7"}
	}
	return f
}

func someFindings() *ownership.OwnershipLint {
	lint := &ownership.OwnershipLint{}
	lint.Status.Findings = []ownership.LintFinding{
		finding("one", ownership.RuleLostReference, "restore the reference to Set web"),
		finding("one", ownership.RuleTooManyOwners, ""),
		finding("two", ownership.RuleUnservedVersion, "name Set web in version v2"),
	}
	lint.Status.Checked, lint.Status.Hidden, lint.Status.Warnings = 12, 1, []string{"the objects of widgets are not known yet"}
	return lint
}

func TestPrintLint(t *testing.T) {
	l := linting{}
	got := printed(func(cmd *cobra.Command) {
		if err := l.print(cmd, someFindings(), "v1"); err != nil {
			t.Error(err)
		}
	})
	want := `Secret/one in shop
  warning  lost-reference         something is wrong
                                  then: The object is no longer deleted with that owner: it is left
                                  behind.
                                  do: Restore the reference, unless it was removed on purpose.
                                  --fix: restore the reference to Set web
  info     too-many-owners        something is wrong
                                  then: It is deleted only when all of them are deleted.
                                  do: Keep only the owner that it cannot exist without. Several
                                  owners should be the exception.
Secret/two in shop
  error    unserved-version       something is wrong
                                  then: Clients that look the owner up by it do not find it:
                                  controllers do not get the owner, and upstream's garbage collector
                                  never deletes the object. Kindred's garbage collector ignores the
                                  version.
                                  do: Name a served version.
                                  --fix: name Set web in version v2

3 findings about 2 objects: 1 error, 1 warning, 1 note
2 can be repaired; --fix --dry-run shows the changes
12 objects checked, 1 more object that you may not read
the objects of widgets are not known yet
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = printed(func(cmd *cobra.Command) { _ = l.print(cmd, &ownership.OwnershipLint{}, "v1") })
	if got != "nothing found\n0 objects checked\n" {
		t.Errorf("without findings: %q", got)
	}
}

func TestPrintRepair(t *testing.T) {
	repair := &ownership.OwnershipRepair{}
	found := someFindings().Status.Findings
	repair.Status.Results = []ownership.RepairResult{
		{LintFinding: found[0], Outcome: ownership.RepairApplied},
		{LintFinding: found[1], Outcome: ownership.RepairSkipped, Reason: "no change is safe"},
		{LintFinding: found[2], Outcome: ownership.RepairWouldApply},
	}
	repair.Status.Checked, repair.Status.Applied, repair.Status.Skipped = 12, 2, 1
	l := linting{fix: true}
	got := printed(func(cmd *cobra.Command) { _ = l.printRepair(cmd, repair) })
	want := `Secret/one in shop
  warning  lost-reference         something is wrong
                                  repaired: restore the reference to Set web
  info     too-many-owners        something is wrong
                                  skipped: no change is safe
Secret/two in shop
  error    unserved-version       something is wrong
                                  would be repaired: name Set web in version v2

3 findings about 2 objects: 1 error, 1 warning, 1 note
2 repaired, 1 skipped
12 objects checked
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestListOfRules prints all rules without a cluster, within 100 columns.
func TestListOfRules(t *testing.T) {
	out, errOut, code := run(t, "lint", "--rules", "--data-dir", t.TempDir())
	if code != 0 || errOut != "" {
		t.Fatalf("exit status %d: %s", code, errOut)
	}
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > tableWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, d := range ownership.LintRules() {
		if !strings.Contains(out, "  "+string(d.Rule)+" ") {
			t.Errorf("%s is not listed", d.Rule)
		}
	}
	out, _, _ = run(t, "lint", "--rules", "-o", "json")
	var described []ownership.LintRuleDescription
	if err := json.Unmarshal([]byte(out), &described); err != nil || len(described) != len(ownership.LintRules()) {
		t.Errorf("%d rules, %v", len(described), err)
	}
}

// TestSARIF validates a report against the schema of SARIF 2.1.0 and checks the fields that code
// scanners use.
func TestSARIF(t *testing.T) {
	report := sarifReport(someFindings(), "v1.2.3")
	if err := report.Validate(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report.PrettyWrite(&out); err != nil {
		t.Fatal(err)
	}
	var log struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name, Version string
					Rules         []struct{ ID string }
				}
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					LogicalLocations []struct{ FullyQualifiedName string }
				}
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	if len(log.Runs) != 1 || len(log.Runs[0].Results) != 3 {
		t.Fatalf("got %+v", log)
	}
	run := log.Runs[0]
	if log.Version != "2.1.0" || run.Tool.Driver.Name != "kindred lint" || run.Tool.Driver.Version != "v1.2.3" || len(run.Tool.Driver.Rules) != len(ownership.LintRules()) {
		t.Errorf("version %s, tool %+v", log.Version, run.Tool.Driver)
	}
	var levels []string
	for _, r := range run.Results {
		levels = append(levels, r.Level)
		if id := run.Tool.Driver.Rules[r.RuleIndex].ID; id != r.RuleID {
			t.Errorf("rule %d is %s, not %s", r.RuleIndex, id, r.RuleID)
		}
	}
	if diff := cmp.Diff([]string{"warning", "note", "error"}, levels); diff != "" {
		t.Errorf("levels (-want +got):\n%s", diff)
	}
	if at := run.Results[0].Locations[0].LogicalLocations[0].FullyQualifiedName; at != "v1/namespaces/shop/Secret/one" {
		t.Errorf("the first is at %s", at)
	}
}

func TestLintVerdict(t *testing.T) {
	for failOn, want := range map[string]int{"info": exitFound, "warning": exitFound, "error": exitOK, "never": exitOK} {
		l := linting{failOn: failOn}
		err := l.verdict([]ownership.LintFinding{finding("one", ownership.RuleStaleVersion, ""), finding("one", ownership.RuleTooManyOwners, "")})
		var own exitStatus
		if errors.As(err, &own); own.code != want {
			t.Errorf("--fail-on %s: exit status %d, want %d", failOn, own.code, want)
		}
		if err := l.verdict(nil); err != nil {
			t.Errorf("--fail-on %s, and nothing found: %v", failOn, err)
		}
	}
}

// TestLintUsage: invalid combinations of flags are refused before the cluster is contacted, and the
// exit status distinguishes errors from findings.
func TestLintUsage(t *testing.T) {
	for want, args := range map[string][]string{
		`--rule is "nonsense"`:          {"--rule", "nonsense"},
		`--fail-on is "bad"`:            {"--fail-on", "bad"},
		`--profile is "other"`:          {"--profile", "other"},
		`--output is "xml"`:             {"-o", "xml"},
		"--dry-run needs --fix":         {"--dry-run"},
		"cannot be used with --fix":     {"--fix", "-o", "sarif"},
		"cannot be used with an object": {"-A", "pod/x"},
		"--rules can be printed as":     {"--rules", "-o", "sarif"},
		"no cluster has run in":         {"-A"},
	} {
		t.Setenv("KUBECONFIG", "")
		out, errOut, code := run(t, append([]string{"lint", "--data-dir", t.TempDir()}, args...)...)
		if code != exitFailure || out != "" || !strings.Contains(errOut, want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%v: exit status %d, %q, %q; want %q", args, code, out, errOut, want)
		}
	}
}

func TestPreconditions(t *testing.T) {
	got := preconditions(append(someFindings().Status.Findings, finding("one", ownership.RuleStaleVersion, "bump")))
	want := []ownership.RepairPrecondition{{UID: "one", ResourceVersion: "7"}, {UID: "two", ResourceVersion: "7"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
