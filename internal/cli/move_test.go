// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kindred-project/kindred/internal/ownership/move"
)

func TestMoveUsage(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	t.Setenv("KUBECONFIG", "")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"deployment/web"}, 2, "no target given: use --to with its kubeconfig, or --to-directory"},
		{[]string{"--to", "x"}, 2, "no root given: name the objects to move as TYPE/NAME"},
		{[]string{"deployment/web", "--to", "x", "--to-directory", "y"}, 2, "--to and --to-directory cannot be used together"},
		{[]string{"--from-directory", "x", "--to-directory", "y"}, 2, "--from-directory needs a cluster to move to: use --to"},
		{[]string{"--from-directory", "x", "--to", "y", "deployment/web"}, 2, "takes no roots"},
		{[]string{"--from-directory", "x", "--to", "y", "-n", "z"}, 2, "cannot be used with"},
		{[]string{"deployment/web", "--to", "x", "-o", "xml"}, 2, `--output is "xml", it must be wide, json or yaml`},
		{[]string{"deployment/web", "--to", "x"}, 2, "cannot ask for confirmation without a terminal: use --yes to move, or --dry-run to see the plan"},
		{[]string{"deployment/web", "--to", "x", "-o", "json"}, 2, "cannot ask for confirmation"},
		{[]string{"deployment/web", "--to", absent, "--yes"}, 1, "error: the target: "},
		{[]string{"deployment/web", "--to-directory", absent, "--data-dir", absent}, 1, "error: no cluster has run in " + absent},
		{[]string{"--from-directory", absent, "--to", absent, "--yes"}, 1, "error: the target: "},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			out, errOut, code := run(t, append([]string{"move"}, tt.args...)...)
			if code != tt.code || !strings.Contains(errOut, tt.want) || strings.Count(errOut, "\n") != 1 || out != "" {
				t.Errorf("exit status %d, want %d\n%s%swant %s", code, tt.code, out, errOut, tt.want)
			}
		})
	}
}

// TestPlanFits: a table has at most 100 columns, whatever the names.
func TestPlanFits(t *testing.T) {
	t.Setenv("COLUMNS", strconv.Itoa(tableWidth))
	long := strings.Repeat("long-", 40)
	plan := &move.Plan{
		From: "the source", To: "the target", Stage: move.Copying, Namespaces: []string{long},
		Objects: []move.Planned{
			{APIVersion: "apps/v1", Kind: "Deployment", Namespace: long, Name: long, Action: move.Moved, Copied: true, Keep: "x", Hold: "paused, no replicas"},
			{APIVersion: "v1", Kind: "Pod", Namespace: "a", Name: "1", Action: move.Remade},
			{APIVersion: "v1", Kind: "Pod", Namespace: "a", Name: "2", Action: move.Remade},
		},
		Notes: []string{strings.Repeat("a note of many words ", 20)}, Problems: []string{"a problem"},
	}
	for _, row := range planRows(plan, tableWidth) {
		if n := len([]rune(row)); n > tableWidth {
			t.Errorf("%d columns: %s", n, row)
		}
	}
	if rows := strings.Join(planRows(plan, tableWidth), "\n"); !strings.Contains(rows, "2, by their controllers") || strings.Count(rows, "pod") != 1 {
		t.Errorf("pods are not counted:\n%s", rows)
	}
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	plan.Namespaces = nil
	printPlan(cmd, plan)
	for line := range strings.Lines(out.String()) {
		if len([]rune(strings.TrimSuffix(line, "\n"))) > tableWidth {
			t.Errorf("too wide: %s", line)
		}
	}
	for _, want := range []string{"note: a note of many", "\n      ", "problem: a problem\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
