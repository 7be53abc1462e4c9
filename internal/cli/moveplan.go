// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred/internal/ownership/move"
)

// printPlan prints a plan as a table.
func printPlan(cmd *cobra.Command, plan *move.Plan) {
	printf(cmd, "From  %s\nTo    %s\n", plan.From, plan.To)
	switch plan.Stage {
	case move.Removing:
		printf(cmd, "Resumes after an interruption: all copies are verified; removing the objects at the source.\n")
	case move.Releasing:
		printf(cmd, "Resumes after an interruption: releasing the copies.\n")
	}
	printf(cmd, "\n")
	for _, row := range planRows(plan, pageWidth(cmd)) {
		printf(cmd, "%s\n", row)
	}
	if len(plan.Namespaces) > 0 {
		printWrapped(cmd, "\n", "creates: ", "namespace "+strings.Join(plan.Namespaces, ", "))
	}
	between := "\n"
	for _, note := range plan.Notes {
		printWrapped(cmd, between, "note: ", note)
		between = ""
	}
	between = "\n"
	for _, problem := range plan.Problems {
		printWrapped(cmd, between, "problem: ", problem)
		between = ""
	}
}

// planRows returns the rows of the table: each object that moves, and then the number of objects
// that controllers recreate.
func planRows(plan *move.Plan, width int) []string {
	rows := [][]string{{"OBJECT", "NAMESPACE", "ACTION", "DETAILS"}}
	type group struct{ kind, namespace string }
	var groups []group
	remade := map[group]int{}
	for _, object := range plan.Objects {
		kind := strings.ToLower(schema.FromAPIVersionAndKind(object.APIVersion, object.Kind).GroupKind().String())
		if object.Action != move.Remade {
			rows = append(rows, []string{kind + "/" + object.Name, object.Namespace, "move", details(object)})
			continue
		}
		of := group{kind, object.Namespace}
		if remade[of] == 0 {
			groups = append(groups, of)
		}
		remade[of]++
	}
	for _, of := range groups {
		rows = append(rows, []string{of.kind, of.namespace, "recreate", fmt.Sprintf("%d, by their controllers", remade[of])})
	}
	return layOut(width, rows, 48, 16, 6)
}

func details(object move.Planned) string {
	var words []string
	if object.Copied {
		words = append(words, "copied")
	}
	if object.Keep != "" {
		words = append(words, "not removed at the source")
	}
	if object.Hold != "" {
		words = append(words, "held: "+object.Hold)
	}
	return strings.Join(words, "; ")
}

// printWrapped prints a text beside a label, wrapped for the terminal.
func printWrapped(cmd *cobra.Command, before, label, text string) {
	lines := wrap([]string{text}, proseWidth(cmd.OutOrStdout())-len(label))
	printf(cmd, "%s%s%s\n", before, label, strings.Join(lines, "\n"+strings.Repeat(" ", len(label))))
}

func printReport(cmd *cobra.Command, plan *move.Plan, report *move.Report) {
	for _, kept := range report.Kept {
		printWrapped(cmd, "", "stays: ", kept.Object+": "+kept.Reason)
	}
	copied := report.Copied
	if copied == 0 {
		copied = len(plan.Objects)
	}
	printf(cmd, "\n%d objects are in %s, %d were removed at the source\n", copied, plan.To, report.Removed)
}
