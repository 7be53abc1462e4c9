// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// Exit statuses of lint, as of other linters, distinguish findings from errors.
const (
	exitFound   = 1
	exitFailure = 2
)

// linting has the flags of "kindred lint".
type linting struct {
	connection
	allNamespaces, fix, dryRun, list bool
	rules                            []string
	failOn, output, profile          string
}

func newLint(version string) *cobra.Command {
	var l linting
	cmd := &cobra.Command{
		Use:   "lint [TYPE/NAME]",
		Short: "Find owner references that are missing or wrong, and repair them",
		Long: `Checks the owner references of the objects in a namespace, in all namespaces, or of one
object and its dependents. Each finding has its consequence and a remedy. With --fix it repairs
the findings that have a safe repair, provided that the objects have not changed since the check,
and prints the result of each; with --fix --dry-run it sends the changes as dry runs.

The exit status is 0 without findings of the severity --fail-on or above, or if all of them
were repaired, 1 with such findings, and 2 if the check failed.`,
		Example: `  kindred lint -A
  kindred lint cluster/one --fix --dry-run
  kindred lint -n shop --rule lost-reference,stale-version --fix
  kindred lint -A --profile cluster-api
  kindred lint -A --fail-on error -o sarif > ownership.sarif`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := l.run(cmd, args, version)
			var own exitStatus
			var usage usageError
			if err == nil || errors.As(err, &own) || errors.As(err, &usage) {
				return err
			}
			return exitStatus{exitFailure, err}
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return l.complete(cmd, args, toComplete)
		},
	}
	l.addFlags(cmd, "the cluster")
	flags := cmd.Flags()
	flags.BoolVarP(&l.allNamespaces, "all-namespaces", "A", false, "check all namespaces and cluster-scoped objects")
	flags.StringSliceVar(&l.rules, "rule", nil, "check only this rule; may be repeated")
	flags.StringVar(&l.profile, "profile", "", `check only the objects of a project, and compare their owners with its table: "cluster-api"`)
	flags.BoolVar(&l.list, "rules", false, "list the rules, and check nothing")
	flags.BoolVar(&l.fix, "fix", false, "repair the findings that have a safe repair")
	flags.BoolVar(&l.dryRun, "dry-run", false, "with --fix: show the changes without making them")
	flags.StringVar(&l.failOn, "fail-on", "warning", `least severity of findings for exit status 1: "info", "warning", "error" or "never"`)
	flags.StringVarP(&l.output, "output", "o", "", `"json", "yaml" or "sarif"`)
	for flag, values := range map[string][]string{"fail-on": {"info", "warning", "error", "never"}, "output": {"json", "yaml", "sarif"}, "rule": ruleNames(), "profile": profileNames()} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func ruleNames() []string {
	var names []string
	for _, d := range ownership.LintRules() {
		names = append(names, string(d.Rule))
	}
	return names
}

func profileNames() []string {
	var names []string
	for _, p := range ownership.LintProfiles() {
		names = append(names, string(p))
	}
	return names
}

// severities are the values of --fail-on, in increasing order.
var severities = []ownership.LintSeverity{ownership.SeverityInfo, ownership.SeverityWarning, ownership.SeverityError, "Never"}

// badness orders severities.
func badness(s ownership.LintSeverity) int {
	return slices.IndexFunc(severities, func(known ownership.LintSeverity) bool { return strings.EqualFold(string(known), string(s)) })
}

// check validates the flags before any request is made.
func (l *linting) check(args []string) error {
	for _, rule := range l.rules {
		if !slices.Contains(ruleNames(), rule) {
			return usagef("--rule is %q, which is not a rule; --rules lists the rules", rule)
		}
	}
	switch {
	case l.profile != "" && !slices.Contains(profileNames(), l.profile):
		return usagef("--profile is %q, it must be %s", l.profile, strings.Join(profileNames(), " or "))
	case badness(ownership.LintSeverity(l.failOn)) < 0:
		return usagef("--fail-on is %q, it must be info, warning, error or never", l.failOn)
	case !slices.Contains([]string{"", "json", "yaml", "sarif"}, l.output):
		return usagef("--output is %q, it must be json, yaml or sarif", l.output)
	case l.dryRun && !l.fix:
		return usagef("--dry-run needs --fix")
	case l.fix && l.output == "sarif":
		return usagef("--output sarif cannot be used with --fix")
	case l.allNamespaces && len(args) > 0:
		return usagef("--all-namespaces cannot be used with an object")
	case l.list && l.output == "sarif":
		return usagef("--rules can be printed as a list, json or yaml")
	}
	return nil
}

func (l *linting) run(cmd *cobra.Command, args []string, version string) error {
	if err := l.check(args); err != nil {
		return err
	}
	if l.list {
		return l.printRules(cmd)
	}
	r, err := l.reviewer(cmd)
	if err != nil {
		return err
	}
	spec, err := l.spec(r, args)
	if err != nil {
		return err
	}
	lint := &ownership.OwnershipLint{Spec: spec}
	if err := r.create(cmd.Context(), "ownershiplints", lint); err != nil {
		return err
	}
	lint.SetGroupVersionKind(ownership.SchemeGroupVersion.WithKind("OwnershipLint"))
	if l.fix {
		return l.repair(cmd, r, lint)
	}
	if err := l.print(cmd, lint, version); err != nil {
		return err
	}
	return l.verdict(lint.Status.Findings)
}

// spec returns the spec of the review.
func (l *linting) spec(r *reviewer, args []string) (ownership.OwnershipLintSpec, error) {
	spec := ownership.OwnershipLintSpec{Namespace: r.namespace, Profile: ownership.LintProfile(l.profile)}
	for _, rule := range l.rules {
		spec.Rules = append(spec.Rules, ownership.LintRule(rule))
	}
	if l.allNamespaces {
		spec.Namespace = ""
	}
	if len(args) == 0 {
		return spec, nil
	}
	object, err := r.object(args, "lint checks one object and its dependents, or a namespace")
	spec.Namespace, spec.Object = "", &object
	return spec, err
}

// repair repairs the findings, provided that the objects have not changed since.
func (l *linting) repair(cmd *cobra.Command, r *reviewer, lint *ownership.OwnershipLint) error {
	repair := &ownership.OwnershipRepair{}
	repair.SetGroupVersionKind(ownership.SchemeGroupVersion.WithKind("OwnershipRepair"))
	repair.Spec = ownership.OwnershipRepairSpec{OwnershipLintSpec: lint.Spec, DryRun: l.dryRun, Preconditions: preconditions(lint.Status.Findings)}
	if err := l.createRepair(cmd.Context(), r, lint, repair); err != nil {
		return err
	}
	if err := l.printRepair(cmd, repair); err != nil {
		return err
	}
	var left []ownership.LintFinding
	for _, result := range repair.Status.Results {
		if result.Outcome != ownership.RepairApplied {
			left = append(left, result.LintFinding)
		}
	}
	return l.verdict(left)
}

// createRepair requests a repair only if there are findings to repair: a repair without
// preconditions would repair anything that it finds.
func (l *linting) createRepair(ctx context.Context, r *reviewer, lint *ownership.OwnershipLint, repair *ownership.OwnershipRepair) error {
	if len(repair.Spec.Preconditions) > 0 {
		err := r.create(ctx, "ownershiprepairs", repair)
		repair.SetGroupVersionKind(ownership.SchemeGroupVersion.WithKind("OwnershipRepair"))
		return err
	}
	repair.Status = ownership.OwnershipRepairStatus{Checked: lint.Status.Checked, Hidden: lint.Status.Hidden, Warnings: lint.Status.Warnings}
	for _, f := range lint.Status.Findings {
		repair.Status.Skipped++
		repair.Status.Results = append(repair.Status.Results, ownership.RepairResult{
			LintFinding: f, Outcome: ownership.RepairSkipped, Reason: f.Unfixed(),
		})
	}
	return nil
}

func preconditions(findings []ownership.LintFinding) []ownership.RepairPrecondition {
	var all []ownership.RepairPrecondition
	for _, f := range findings {
		if f.Fix == nil {
			continue
		}
		p := ownership.RepairPrecondition{UID: f.Object.UID, ResourceVersion: f.Fix.ResourceVersion}
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// verdict returns the exit status.
func (l *linting) verdict(findings []ownership.LintFinding) error {
	least := badness(ownership.LintSeverity(l.failOn))
	if slices.ContainsFunc(findings, func(f ownership.LintFinding) bool { return badness(f.Severity) >= least }) {
		return exitStatus{code: exitFound}
	}
	return nil
}
