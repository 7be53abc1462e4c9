// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubectl/pkg/util/term"

	"github.com/kindred-project/kindred/internal/ownership/move"
)

// moveFlags has the flags of "kindred move".
type moveFlags struct {
	connection
	to, toContext              string
	toDirectory, fromDirectory string
	dryRun, yes                bool
	output                     string
	move.Consent
}

func newMove() *cobra.Command {
	var f moveFlags
	cmd := &cobra.Command{
		Use:   "move --to KUBECONFIG ROOT...",
		Short: "Move objects and everything that they own to another cluster",
		Long: `Moves objects and everything that they own to another cluster, which may run any
Kubernetes, with their owner references, references by UID and status. A ROOT is TYPE/NAME, or
TYPE and NAMEs. It shows a plan, tries it at the target as a dry run, asks for confirmation,
copies the objects, verifies every copy, and only then removes the objects at the source.
Meanwhile workloads do not run at the target. To resume after an interruption, run the same
command again.

The source is the cluster of the data directory, unless --kubeconfig or, where no
--data-dir is given, the environment variable KUBECONFIG names another. --as and
--as-group impersonate at both ends. --to-directory writes the objects to files and does not
change the source; --from-directory reads them.

The exit status is 0 if everything was moved, and 1 if an object was not removed at the source
or the plan was refused.`,
		Example: `  kindred move deployment/web --to other.kubeconfig --dry-run
  kindred move -n prod databases/one databases/two --to other.kubeconfig --yes
  kindred move deployment/web --to-directory ./web
  kindred move --from-directory ./web --to other.kubeconfig`,
		Args:              func(_ *cobra.Command, args []string) error { return f.check(args) },
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
		ValidArgsFunction: f.complete,
	}
	flags := cmd.Flags()
	f.addFlags(cmd, "the source")
	flags.StringVar(&f.to, "to", "", "kubeconfig of the target")
	flags.StringVar(&f.toContext, "to-context", "", "context of the target")
	flags.StringVar(&f.toDirectory, "to-directory", "", "write the objects to this new directory and keep them at the source")
	flags.StringVar(&f.fromDirectory, "from-directory", "", "read the objects from this directory instead of a cluster")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the plan and whether the target accepts it, and change nothing")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
	flags.StringVarP(&f.output, "output", "o", "", `"wide" for a table without truncation, "json" or "yaml"`)
	flags.BoolVar(&f.DropOutsideOwners, "drop-outside-owners", false, "drop references to owners that are not moved")
	flags.BoolVar(&f.DropFinalizers, "drop-finalizers", false, "remove finalizers at the source, so that controllers there do not clean up after the moved objects")
	flags.BoolVar(&f.KeepSource, "keep-source", false, "copy the objects and remove nothing at the source")
	for _, flag := range []string{"to-directory", "from-directory"} {
		_ = cmd.MarkFlagDirname(flag)
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"wide", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// check validates the flags before any request is made.
func (f *moveFlags) check(args []string) error {
	switch {
	case f.toDirectory != "" && (f.to != "" || f.toContext != ""):
		return errors.New("--to and --to-directory cannot be used together")
	case f.to == "" && f.toContext == "" && f.toDirectory == "":
		return errors.New("no target given: use --to with its kubeconfig, or --to-directory")
	case f.fromDirectory != "" && f.toDirectory != "":
		return errors.New("--from-directory needs a cluster to move to: use --to")
	case f.fromDirectory != "" && len(args) > 0:
		return errors.New("--from-directory moves everything in the directory and takes no roots")
	case f.fromDirectory != "" && (f.kubeconfig != "" || f.context != "" || f.namespace != ""):
		return errors.New("--from-directory cannot be used with --kubeconfig, --context or --namespace")
	case f.fromDirectory == "" && len(args) == 0:
		return errors.New("no root given: name the objects to move as TYPE/NAME")
	case !slices.Contains([]string{"", "wide", "json", "yaml"}, f.output):
		return fmt.Errorf("--output is %q, it must be wide, json or yaml", f.output)
	default:
		return nil
	}
}

// forPrograms reports whether plan and report are printed as JSON or YAML.
func (f *moveFlags) forPrograms() bool { return f.output == "json" || f.output == "yaml" }

func (f *moveFlags) run(cmd *cobra.Command, args []string) error {
	asks := !f.dryRun && !f.yes && f.toDirectory == ""
	if asks && (f.forPrograms() || !term.IsTerminal(cmd.InOrStdin())) {
		return usagef("cannot ask for confirmation without a terminal: use --yes to move, or --dry-run to see the plan")
	}
	progress := newProgressLine(cmd.ErrOrStderr())
	defer progress.clear()
	options, err := f.options(cmd, args)
	if err != nil {
		return err
	}
	options.Progress = progress.show
	mover, err := move.New(options)
	if err != nil {
		return err
	}
	plan, err := mover.Plan(cmd.Context())
	progress.clear()
	if err != nil {
		return err
	}
	if !f.forPrograms() {
		printPlan(cmd, plan)
	}
	if f.dryRun || len(plan.Problems) > 0 {
		return errors.Join(f.print(cmd, plan, nil), refusal(plan))
	}
	if asks && !confirmMove(cmd, plan) {
		printf(cmd, "nothing was changed\n")
		return nil
	}
	report, err := mover.Run(cmd.Context())
	progress.clear()
	if err != nil {
		return fmt.Errorf("%w; nothing is lost: after correcting the problem, run the same command again to continue", err)
	}
	if err := f.print(cmd, plan, report); err != nil {
		return err
	}
	if !f.forPrograms() {
		printReport(cmd, plan, report)
	}
	return stayed(report)
}

// options returns the options of the move, with source and target.
func (f *moveFlags) options(cmd *cobra.Command, args []string) (move.Options, error) {
	options := move.Options{Consent: f.Consent, FromDirectory: f.fromDirectory, ToDirectory: f.toDirectory}
	if f.toDirectory == "" {
		loader, err := f.loaderOf(cmd, f.to, f.toContext, "")
		if err != nil {
			return options, err
		}
		target, err := clusterAt(loader, "the target")
		if err != nil {
			return options, err
		}
		options.Target = target
	}
	if f.fromDirectory != "" {
		return options, nil
	}
	loader, err := f.loader(cmd)
	if err != nil {
		return options, err
	}
	if options.Source, err = clusterAt(loader, "the source"); err != nil {
		return options, err
	}
	options.Roots, err = rootsAt(loader, args)
	return options, err
}

func clusterAt(loader clientcmd.ClientConfig, role string) (*move.Cluster, error) {
	config, err := configOf(loader)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	return move.NewCluster(fmt.Sprintf("%s (%s)", role, config.Host), config)
}

// rootsAt reads ROOT arguments as kubectl does: TYPE/NAME..., or TYPE NAME...
func rootsAt(loader clientcmd.ClientConfig, args []string) ([]move.Ref, error) {
	config, err := configOf(loader)
	if err != nil {
		return nil, err
	}
	mapper, err := mapperOf(config)
	if err != nil {
		return nil, err
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, err
	}
	named, err := splitObjects(args)
	if err != nil {
		return nil, err
	}
	var roots []move.Ref
	for _, root := range named {
		mapping, err := mappingOf(mapper, root[0])
		if err != nil {
			return nil, err
		}
		ref := move.Ref{GroupVersionKind: mapping.GroupVersionKind, Name: root[1]}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			ref.Namespace = namespace
		}
		roots = append(roots, ref)
	}
	return roots, nil
}

func refusal(plan *move.Plan) error {
	switch len(plan.Problems) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: %s", move.ErrRefused, plan.Problems[0])
	default:
		return fmt.Errorf("%w: it has %d problems", move.ErrRefused, len(plan.Problems))
	}
}

// stayed returns an error if objects were not removed at the source.
func stayed(report *move.Report) error {
	if len(report.Kept) == 0 {
		return nil
	}
	return fmt.Errorf("%d objects were not removed at the source, for the reasons above; their copies at the target are complete", len(report.Kept))
}

// confirmMove asks for confirmation.
func confirmMove(cmd *cobra.Command, plan *move.Plan) bool {
	question := "Move this"
	if plan.Stage != move.Copying {
		question = "Continue this move"
	}
	return confirmed(cmd, "\n"+question)
}

// print prints plan and report as JSON or YAML if that was requested.
func (f *moveFlags) print(cmd *cobra.Command, plan *move.Plan, report *move.Report) error {
	outcome := struct {
		*move.Plan
		Report *move.Report `json:"report,omitempty"`
	}{plan, report}
	switch f.output {
	case "json":
		return printJSON(cmd, outcome)
	case "yaml":
		return printYAML(cmd, outcome)
	}
	return nil
}
