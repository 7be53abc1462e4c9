// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"github.com/spf13/cobra"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// sarifLevels maps severities to the levels of SARIF 2.1.0, section 3.27.10.
var sarifLevels = map[ownership.LintSeverity]string{
	ownership.SeverityError: sarif.LevelError, ownership.SeverityWarning: sarif.LevelWarning, ownership.SeverityInfo: sarif.LevelNote,
}

func printSARIF(cmd *cobra.Command, lint *ownership.OwnershipLint, version string) error {
	return sarifReport(lint, version).PrettyWrite(cmd.OutOrStdout())
}

// sarifReport returns the findings as SARIF 2.1.0. Objects are logical locations, since they are not
// files.
func sarifReport(lint *ownership.OwnershipLint, version string) *sarif.Report {
	driver := sarif.NewToolComponent().WithName("kindred lint").WithVersion(version)
	for _, d := range ownership.LintRules() {
		driver.AddRule(sarif.NewRule(string(d.Rule)).
			WithShortDescription(sarif.NewMultiformatMessageString().WithText(d.Summary)).
			WithFullDescription(sarif.NewMultiformatMessageString().WithText(d.Summary + " " + d.Consequence)).
			WithHelp(sarif.NewMultiformatMessageString().WithText(d.Remedy)).
			WithDefaultConfiguration(sarif.NewReportingConfiguration().WithLevel(sarifLevels[d.Severity])))
	}
	run := sarif.NewRun().WithTool(sarif.NewTool().WithDriver(driver))
	for _, f := range lint.Status.Findings {
		run.AddResult(sarifResult(f, run.GetRuleIndex(string(f.Rule))))
	}
	return sarif.NewReport().AddRun(run)
}

// sarifResult returns a finding as a result. rule is the index of its rule.
func sarifResult(f ownership.LintFinding, rule int) *sarif.Result {
	name := qualifiedName(f.Object)
	return sarif.NewResult().
		WithRuleID(string(f.Rule)).WithRuleIndex(rule).WithLevel(sarifLevels[f.Severity]).
		WithMessage(sarif.NewTextMessage(strings.Join([]string{name + ": " + f.Message + ".", f.Consequence, f.Remedy}, " "))).
		AddLocation(sarif.NewLocation().WithLogicalLocations([]*sarif.LogicalLocation{
			sarif.NewLogicalLocation().WithName(f.Object.Name).WithFullyQualifiedName(name).WithKind("resource"),
		})).
		// The fingerprint identifies a finding from run to run, even if its message changes.
		WithPartialFingerprints(map[string]string{"object/v1": string(f.Object.UID) + "/" + string(f.Rule)})
}

// qualifiedName identifies an object in the cluster: version, namespace, kind and name.
func qualifiedName(ref ownership.ObjectReference) string {
	parts := []string{ref.APIVersion}
	if ref.Namespace != "" {
		parts = append(parts, "namespaces", ref.Namespace)
	}
	return strings.Join(append(parts, ref.Kind, ref.Name), "/")
}
