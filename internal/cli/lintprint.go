// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

func (l *linting) print(cmd *cobra.Command, lint *ownership.OwnershipLint, version string) error {
	switch l.output {
	case "json":
		return printJSON(cmd, lint)
	case "yaml":
		return printYAML(cmd, lint)
	case "sarif":
		return printSARIF(cmd, lint, version)
	}
	p := newLintPrinter(cmd)
	s := &lint.Status
	for _, f := range s.Findings {
		notes := []string{"then: " + f.Consequence, "do: " + f.Remedy}
		if f.Fix != nil {
			notes = append(notes, "--fix: "+f.Fix.Description)
		}
		p.finding(f, notes...)
	}
	p.end(s.Findings, s.Checked, s.Hidden, s.Warnings, fixable(s.Findings))
	return nil
}

// fixable says how many findings can be repaired, and how.
func fixable(findings []ownership.LintFinding) string {
	n := 0
	for _, f := range findings {
		if f.Fix != nil {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d can be repaired; --fix --dry-run shows the changes", n)
}

func (l *linting) printRepair(cmd *cobra.Command, repair *ownership.OwnershipRepair) error {
	switch l.output {
	case "json":
		return printJSON(cmd, repair)
	case "yaml":
		return printYAML(cmd, repair)
	}
	p := newLintPrinter(cmd)
	s := &repair.Status
	var findings []ownership.LintFinding
	for _, result := range s.Results {
		findings = append(findings, result.LintFinding)
		p.finding(result.LintFinding, outcomeNote(result))
	}
	done := fmt.Sprintf("%d repaired, %d skipped", s.Applied, s.Skipped)
	if l.dryRun {
		done = fmt.Sprintf("%d would be repaired, %d skipped", s.Applied, s.Skipped)
	}
	if len(findings) == 0 {
		done = ""
	}
	p.end(findings, s.Checked, s.Hidden, s.Warnings, done)
	return nil
}

func outcomeNote(result ownership.RepairResult) string {
	switch result.Outcome {
	case ownership.RepairApplied:
		return "repaired: " + result.Fix.Description
	case ownership.RepairWouldApply:
		return "would be repaired: " + result.Fix.Description
	}
	return "skipped: " + result.Reason
}

// lintPrinter prints findings, those of an object together.
type lintPrinter struct {
	cmd     *cobra.Command
	painter painter
	object  ownership.ObjectReference
	objects int
}

func newLintPrinter(cmd *cobra.Command) *lintPrinter {
	return &lintPrinter{cmd: cmd, painter: newPainter(cmd)}
}

var severityColours = map[ownership.LintSeverity]colour{
	ownership.SeverityError: red, ownership.SeverityWarning: yellow, ownership.SeverityInfo: faint,
}

// The columns before the text of a finding: two spaces, its severity, its rule.
const (
	severityWidth = len("warning")
	ruleWidth     = len("cluster-to-namespaced")
	findingIndent = 2 + severityWidth + 2 + ruleWidth + 2
)

func (p *lintPrinter) finding(f ownership.LintFinding, notes ...string) {
	if f.Object != p.object {
		p.object = f.Object
		p.objects++
		name := kindAndName(f.Object)
		if f.Object.Namespace != "" {
			name += " in " + f.Object.Namespace
		}
		printf(p.cmd, "%s\n", name)
	}
	p.entry(f.Severity, f.Rule, append([]string{f.Message}, notes...)...)
}

// entry prints one finding.
func (p *lintPrinter) entry(severity ownership.LintSeverity, rule ownership.LintRule, texts ...string) {
	painted := p.painter.paint(severityColours[severity], pad(strings.ToLower(string(severity)), severityWidth))
	lead := "  " + painted + "  " + pad(string(rule), ruleWidth) + "  "
	for _, text := range texts {
		for _, line := range wrap([]string{text}, max(notesWidth, proseWidth(p.cmd.OutOrStdout())-findingIndent)) {
			printf(p.cmd, "%s%s\n", lead, line)
			lead = strings.Repeat(" ", findingIndent)
		}
	}
}

// end prints the number of findings and of objects.
func (p *lintPrinter) end(findings []ownership.LintFinding, checked, hidden int32, warnings []string, next string) {
	if len(findings) > 0 {
		printf(p.cmd, "\n")
	}
	printWarnings(p.cmd, append([]string{tally(findings, p.objects), next,
		sentence(plural(int(checked), "object")+" checked", hiddenNote(hidden))}, warnings...))
}

func tally(findings []ownership.LintFinding, objects int) string {
	if len(findings) == 0 {
		return "nothing found"
	}
	count := map[ownership.LintSeverity]int{}
	for _, f := range findings {
		count[f.Severity]++
	}
	var parts []string
	for _, s := range []struct {
		severity ownership.LintSeverity
		thing    string
	}{{ownership.SeverityError, "error"}, {ownership.SeverityWarning, "warning"}, {ownership.SeverityInfo, "note"}} {
		if count[s.severity] > 0 {
			parts = append(parts, plural(count[s.severity], s.thing))
		}
	}
	return fmt.Sprintf("%s about %s: %s", plural(len(findings), "finding"), plural(objects, "object"), strings.Join(parts, ", "))
}

// printRules lists the rules.
func (l *linting) printRules(cmd *cobra.Command) error {
	switch l.output {
	case "json":
		return printJSON(cmd, ownership.LintRules())
	case "yaml":
		return printYAML(cmd, ownership.LintRules())
	}
	p := newLintPrinter(cmd)
	for _, d := range ownership.LintRules() {
		texts := []string{d.Summary, "then: " + d.Consequence, "do: " + d.Remedy}
		if d.Fix != "" {
			texts = append(texts, "--fix: "+d.Fix)
		}
		p.entry(d.Severity, d.Rule, texts...)
	}
	return nil
}
