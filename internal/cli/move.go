// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	kubectlcompletion "k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/term"
	"sigs.k8s.io/yaml"

	"github.com/kindred-project/kindred/internal/ownership/move"
)

// moveFlags are the words of one command line.
type moveFlags struct {
	kubeconfig, context, namespace string
	to, toContext                  string
	toDirectory, fromDirectory     string
	dryRun, yes                    bool
	output                         string
	move.Consent
}

func newMove() *cobra.Command {
	var f moveFlags
	cmd := &cobra.Command{
		Use:   "move --to KUBECONFIG ROOT...",
		Short: "Move objects and all that they own to another cluster",
		Long: `Moves objects, and all that they own, to another cluster, which may be any
Kubernetes: with owners, references by UID and status. A ROOT is TYPE/NAME, or TYPE and
NAMEs. It shows a plan, tries it at the target as a dry run, asks, copies, verifies every
copy, and only then removes what has moved at the source. While that goes on, workloads
are kept from running at the target. If it is interrupted, the same command goes on.

The source is the cluster of the data directory, unless --kubeconfig or, where no
--data-dir is given, the environment variable KUBECONFIG names another. --to-directory
writes the graph to files and leaves the source as it is; --from-directory reads it.

The exit status is 0 if everything was moved, and 1 if something stayed or the plan was
refused.`,
		Example: `  kindred move deployment/web --to other.kubeconfig --dry-run
  kindred move -n prod databases/one databases/two --to other.kubeconfig --yes
  kindred move deployment/web --to-directory ./web
  kindred move --from-directory ./web --to other.kubeconfig`,
		Args: func(_ *cobra.Command, args []string) error { return f.check(args) },
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return f.complete(cmd, args, toComplete)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the source")
	flags.StringVar(&f.context, "context", "", "context of the source")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace of the roots (default that of the context)")
	flags.StringVar(&f.to, "to", "", "kubeconfig of the target")
	flags.StringVar(&f.toContext, "to-context", "", "context of the target")
	flags.StringVar(&f.toDirectory, "to-directory", "", "write the graph to this new directory; the source keeps it")
	flags.StringVar(&f.fromDirectory, "from-directory", "", "read the graph from this directory instead of a cluster")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the plan, and what the target says to it, and change nothing")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	flags.StringVarP(&f.output, "output", "o", "", `"json" or "yaml" for a form that programs can read`)
	flags.BoolVar(&f.DropOutsideOwners, "drop-outside-owners", false, "drop references to owners that do not move")
	flags.BoolVar(&f.DropFinalizers, "drop-finalizers", false, "take finalizers off what is removed at the source, so that controllers there do not clean up what has moved")
	flags.BoolVar(&f.KeepSource, "keep-source", false, "copy, and remove nothing at the source")
	for _, flag := range []string{"to-directory", "from-directory"} {
		_ = cmd.MarkFlagDirname(flag)
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// check finds what makes no sense before anything is asked of a cluster.
func (f *moveFlags) check(args []string) error {
	switch {
	case f.toDirectory != "" && (f.to != "" || f.toContext != ""):
		return errors.New("--to and --to-directory exclude each other")
	case f.to == "" && f.toContext == "" && f.toDirectory == "":
		return errors.New("no target given: use --to with its kubeconfig, or --to-directory")
	case f.fromDirectory != "" && f.toDirectory != "":
		return errors.New("--from-directory needs a cluster to move to: use --to")
	case f.fromDirectory != "" && len(args) > 0:
		return errors.New("--from-directory moves all that is in the directory: name no roots")
	case f.fromDirectory != "" && (f.kubeconfig != "" || f.context != "" || f.namespace != ""):
		return errors.New("--from-directory is the source: --kubeconfig, --context and --namespace have no meaning")
	case f.fromDirectory == "" && len(args) == 0:
		return errors.New("no root given: name what is to move, as TYPE/NAME")
	case !slices.Contains([]string{"", "json", "yaml"}, f.output):
		return fmt.Errorf("--output is %q, it can only be json or yaml", f.output)
	default:
		return nil
	}
}

func (f *moveFlags) run(cmd *cobra.Command, args []string) error {
	asks := !f.dryRun && !f.yes && f.toDirectory == ""
	if asks && (f.output != "" || !term.IsTerminal(cmd.InOrStdin())) {
		return usagef("nobody can be asked whether to go on: give --yes to move, or --dry-run to see the plan")
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
	if f.output == "" {
		printPlan(cmd, plan)
	}
	if f.dryRun || len(plan.Problems) > 0 {
		return errors.Join(f.print(cmd, plan, nil), refusal(plan))
	}
	if asks && !confirmed(cmd, plan) {
		printf(cmd, "nothing was changed\n")
		return nil
	}
	report, err := mover.Run(cmd.Context())
	progress.clear()
	if err != nil {
		return fmt.Errorf("%w; nothing is lost: when that is mended, the same command goes on", err)
	}
	if err := f.print(cmd, plan, report); err != nil {
		return err
	}
	if f.output == "" {
		printReport(cmd, plan, report)
	}
	return stayed(report)
}

// options finds both ends.
func (f *moveFlags) options(cmd *cobra.Command, args []string) (move.Options, error) {
	options := move.Options{Consent: f.Consent, FromDirectory: f.fromDirectory, ToDirectory: f.toDirectory}
	if f.toDirectory == "" {
		loader := loaderOf(f.to, f.toContext, "")
		target, err := clusterAt(loader, "the target")
		if err != nil {
			return options, err
		}
		options.Target = target
	}
	if f.fromDirectory != "" {
		return options, nil
	}
	loader, err := f.sourceLoader(cmd)
	if err != nil {
		return options, err
	}
	if options.Source, err = clusterAt(loader, "the source"); err != nil {
		return options, err
	}
	options.Roots, err = rootsAt(loader, args)
	return options, err
}

// sourceLoader finds the source as "kindred kubectl" does.
func (f *moveFlags) sourceLoader(cmd *cobra.Command) (clientcmd.ClientConfig, error) {
	path := f.kubeconfig
	if path == "" && (cmd.Flags().Changed(dataDirFlag) || os.Getenv("KUBECONFIG") == "") {
		layout, err := layoutOf(cmd)
		if err != nil {
			return nil, err
		}
		path = layout.Kubeconfig()
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("no cluster has run in %s; start one with \"kindred up\", or name another with --%s or --kubeconfig", layout.Root, dataDirFlag)
		}
	}
	return loaderOf(path, f.context, f.namespace), nil
}

// loaderOf reads a kubeconfig; without a path, as kubectl does.
func loaderOf(path, context, namespace string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{
		CurrentContext: context, Context: clientcmdapi.Context{Namespace: namespace},
	})
}

func clusterAt(loader clientcmd.ClientConfig, role string) (*move.Cluster, error) {
	config, err := configOf(loader)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	return move.NewCluster(fmt.Sprintf("%s (%s)", role, config.Host), config)
}

func configOf(loader clientcmd.ClientConfig) (*rest.Config, error) {
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, err
	}
	// The server's advice on what it is sent is not about what the user typed.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return config, nil
}

// rootsAt reads ROOT arguments as kubectl does: TYPE/NAME..., or TYPE NAME...
func rootsAt(loader clientcmd.ClientConfig, args []string) ([]move.Ref, error) {
	config, err := configOf(loader)
	if err != nil {
		return nil, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(client)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, err
	}
	named, err := splitRoots(args)
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

// splitRoots gives pairs of type and name.
func splitRoots(args []string) ([][2]string, error) {
	var roots [][2]string
	if !strings.Contains(args[0], "/") {
		if len(args) == 1 {
			return nil, usagef("%q names no object: use TYPE/NAME, or TYPE NAME", args[0])
		}
		for _, name := range args[1:] {
			if name == "" || strings.Contains(name, "/") {
				return nil, usagef("%q after a type is no name: give either TYPE NAME... or TYPE/NAME...", name)
			}
			roots = append(roots, [2]string{args[0], name})
		}
		return roots, nil
	}
	for _, arg := range args {
		kind, name, found := strings.Cut(arg, "/")
		if !found || kind == "" || name == "" || strings.Contains(name, "/") {
			return nil, usagef("%q is not TYPE/NAME", arg)
		}
		roots = append(roots, [2]string{kind, name})
	}
	return roots, nil
}

// mappingOf finds a type by any of its names, also as type.version.group, in the version
// that its group prefers if none is given.
func mappingOf(mapper meta.RESTMapper, text string) (*meta.RESTMapping, error) {
	full, resource := schema.ParseResourceArg(text)
	if full != nil {
		if kind, err := mapper.KindFor(*full); err == nil {
			return mapper.RESTMapping(kind.GroupKind(), kind.Version)
		}
	}
	kind, err := mapper.KindFor(resource.WithVersion(""))
	if meta.IsNoMatchError(err) {
		// kubectl takes the name of a kind as well.
		if mapping, err := mapper.RESTMapping(schema.ParseGroupKind(text)); err == nil {
			return mapping, nil
		}
		return nil, fmt.Errorf("the source has no resource type %q", text)
	}
	if err != nil {
		return nil, fmt.Errorf("the source: %w", err)
	}
	return mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

// complete offers types, and names of the source's objects.
func (f *moveFlags) complete(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	loader, err := f.sourceLoader(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	flags := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(config *rest.Config) *rest.Config {
		if found, err := configOf(loader); err == nil {
			return found
		}
		return config
	})
	if namespace, _, err := loader.Namespace(); err == nil {
		flags.Namespace = &namespace
	}
	factory := cmdutil.NewFactory(flags)
	return kubectlcompletion.ResourceTypeAndNameCompletionFunc(factory)(cmd, args, toComplete)
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

// stayed is an error if the source still has something that was to go.
func stayed(report *move.Report) error {
	if len(report.Kept) == 0 {
		return nil
	}
	return fmt.Errorf("%d objects stay at the source: what was copied is complete at the target, but see why they stay", len(report.Kept))
}

func confirmed(cmd *cobra.Command, plan *move.Plan) bool {
	question := "Move this"
	if plan.Stage != move.Copying {
		question = "Go on with this"
	}
	printf(cmd, "\n%s? [y/N] ", question)
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// print prints plan and report for programs, if that is what was asked for.
func (f *moveFlags) print(cmd *cobra.Command, plan *move.Plan, report *move.Report) error {
	outcome := struct {
		*move.Plan
		Report *move.Report `json:"report,omitempty"`
	}{plan, report}
	switch f.output {
	case "json":
		return printJSON(cmd, outcome)
	case "yaml":
		text, err := yaml.Marshal(outcome)
		if err != nil {
			return err
		}
		printf(cmd, "%s", text)
	}
	return nil
}

// progressLine is a line on a terminal that is written over. Elsewhere there is none.
type progressLine struct {
	out io.Writer
	on  bool
}

func newProgressLine(out io.Writer) *progressLine { return &progressLine{out, term.IsTerminal(out)} }

func (p *progressLine) show(doing string) {
	if p.on {
		_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", cut(doing, tableWidth))
	}
}

func (p *progressLine) clear() {
	if p.on {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// tableWidth is what a table may take of a terminal.
const tableWidth = 100

// printPlan prints a plan for people.
func printPlan(cmd *cobra.Command, plan *move.Plan) {
	printf(cmd, "From  %s\nTo    %s\n", plan.From, plan.To)
	switch plan.Stage {
	case move.Removing:
		printf(cmd, "Goes on where it was interrupted: all copies are verified; the source is cleared.\n")
	case move.Releasing:
		printf(cmd, "Goes on where it was interrupted: the copies are being released.\n")
	}
	printf(cmd, "\n")
	for _, row := range planRows(plan) {
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

// planRows are the table: each object that moves, and after them, of what is made anew, how
// many.
func planRows(plan *move.Plan) []string {
	rows := [][4]string{{"OBJECT", "NAMESPACE", "ACTION", "DETAILS"}}
	type group struct{ kind, namespace string }
	var groups []group
	remade := map[group]int{}
	for _, object := range plan.Objects {
		kind := strings.ToLower(schema.FromAPIVersionAndKind(object.APIVersion, object.Kind).GroupKind().String())
		if object.Action != move.Remade {
			rows = append(rows, [4]string{kind + "/" + object.Name, object.Namespace, "move", details(object)})
			continue
		}
		of := group{kind, object.Namespace}
		if remade[of] == 0 {
			groups = append(groups, of)
		}
		remade[of]++
	}
	for _, of := range groups {
		rows = append(rows, [4]string{of.kind, of.namespace, "remake", fmt.Sprintf("%d, by their controllers", remade[of])})
	}
	return layOut(rows, [4]int{48, 16, 6, 27})
}

func details(object move.Planned) string {
	var words []string
	if object.Copied {
		words = append(words, "copied")
	}
	if object.Keep != "" {
		words = append(words, "stays at source too")
	}
	if object.Hold != "" {
		words = append(words, "held: "+object.Hold)
	}
	return strings.Join(words, "; ")
}

// layOut makes columns as wide as they must be, and no wider than they may. The last takes
// what is left.
func layOut(rows [][4]string, limits [4]int) []string {
	var widths [4]int
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = min(max(widths[i], len([]rune(cell))), limits[i])
		}
	}
	widths[3] = tableWidth - widths[0] - widths[1] - widths[2] - 6
	lines := make([]string, len(rows))
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", widths[j], cut(cell, widths[j]))
		}
		lines[i] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

// cut shortens a text to so many runes.
func cut(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:width-1]) + "…"
}

// printWrapped prints a text in lines of at most tableWidth, but for words that are longer.
func printWrapped(cmd *cobra.Command, before, label, text string) {
	printf(cmd, "%s", before)
	indent := strings.Repeat(" ", len(label))
	line := label
	for _, word := range strings.Fields(text) {
		if len(line)+len(word) > tableWidth && strings.TrimSpace(line) != "" && line != label {
			printf(cmd, "%s\n", strings.TrimRight(line, " "))
			line = indent
		}
		line += word + " "
	}
	printf(cmd, "%s\n", strings.TrimRight(line, " "))
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
