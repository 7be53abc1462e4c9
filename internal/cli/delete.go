// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/term"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// deletion is a command line of "kindred delete".
type deletion struct {
	connection
	cascade, selector, output string
	allNamespaces             bool
	preview, yes, all, wait   bool
}

func newDelete() *cobra.Command {
	var d deletion
	cmd := &cobra.Command{
		Use:   "delete (TYPE/NAME... | TYPE --selector LABELS)",
		Short: "Show what a deletion takes along, and delete",
		Long: `Shows what becomes of all that depends on the objects: what goes with them, what stays
without an owner, what stays because of another owner, and what a finalizer or a dependent
holds up. Several objects are shown, and deleted, together. Then it asks, and deletes what it
has shown. If the deletion would take more along by then, or something else, it stops and says
what has changed. With --preview it only shows.

The deletion of a namespace takes all that is in it along, that of a
CustomResourceDefinition all its custom resources.`,
		Example: `  kindred delete --preview deployment/web
  kindred delete --preview namespace/shop
  kindred delete pods -l app=web --cascade foreground`,
		Args: cobra.MinimumNArgs(1),
		RunE: d.run,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return d.complete(cmd, args, toComplete)
		},
	}
	d.addFlags(cmd, "the cluster")
	flags := cmd.Flags()
	flags.BoolVar(&d.preview, "preview", false, "only show what the deletion would do")
	flags.StringVar(&d.cascade, "cascade", "background", `what happens to dependents: they go after their owner ("background"), before it ("foreground"), or stay ("orphan")`)
	flags.StringVarP(&d.selector, "selector", "l", "", "delete the objects of the type that have these labels")
	flags.BoolVarP(&d.allNamespaces, "all-namespaces", "A", false, "with --selector: in all namespaces")
	flags.BoolVarP(&d.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&d.wait, "wait", true, "wait until the objects are gone")
	flags.BoolVar(&d.all, "all", false, "show each object, also where there are many of the same")
	flags.StringVarP(&d.output, "output", "o", "", `"wide" to cut nothing; with --preview: "json" or "yaml" for a form that programs can read`)
	_ = cmd.RegisterFlagCompletionFunc("cascade", cobra.FixedCompletions([]string{"background", "foreground", "orphan"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"wide", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// policies are the values of --cascade, which are kubectl's.
var policies = map[string]metav1.DeletionPropagation{
	"background": metav1.DeletePropagationBackground,
	"foreground": metav1.DeletePropagationForeground,
	"orphan":     metav1.DeletePropagationOrphan,
}

// check finds what makes no sense before anything is asked of a cluster.
func (d *deletion) check(cmd *cobra.Command) error {
	_, known := policies[d.cascade]
	switch {
	case !known:
		return usagef("--cascade is %q, it can only be background, foreground or orphan", d.cascade)
	case d.allNamespaces && d.selector == "":
		return usagef("--all-namespaces goes with --selector")
	case !slices.Contains([]string{"", "wide", "json", "yaml"}, d.output):
		return usagef("--output is %q, it can only be wide, json or yaml", d.output)
	case d.output != "" && d.output != "wide" && !d.preview:
		return usagef("--output goes with --preview, unless it is wide")
	case !d.preview && !d.yes && !term.IsTerminal(cmd.InOrStdin()):
		return usagef("nobody can be asked whether to delete: give --yes to delete, or --preview to see what would happen")
	}
	return nil
}

func (d *deletion) run(cmd *cobra.Command, args []string) error {
	if err := d.check(cmd); err != nil {
		return err
	}
	r, err := d.reviewer(cmd)
	if err != nil {
		return err
	}
	targets, err := d.targets(r, args)
	if err != nil {
		return err
	}
	spec := ownership.DeletionPreviewSpec{Targets: targets, PropagationPolicy: new(policies[d.cascade])}
	preview, err := askPreview(cmd.Context(), r, spec)
	if err != nil {
		return err
	}
	if err := d.print(cmd, preview); err != nil || d.preview {
		return err
	}
	if len(targetsOf(preview.Status)) == 0 {
		return nil
	}
	if !d.yes && !confirmed(cmd, "\nDelete this") {
		printf(cmd, "nothing was deleted\n")
		return nil
	}
	return d.delete(cmd, r, preview.Status)
}

// targets says what is to be deleted.
func (d *deletion) targets(r *reviewer, args []string) ([]ownership.DeletionTarget, error) {
	if d.selector != "" {
		return d.selected(r, args)
	}
	objects, err := r.objects(args)
	if err != nil {
		return nil, err
	}
	var targets []ownership.DeletionTarget
	for _, o := range objects {
		targets = append(targets, ownership.DeletionTarget{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
	}
	return targets, nil
}

func (d *deletion) selected(r *reviewer, args []string) ([]ownership.DeletionTarget, error) {
	if len(args) > 1 || strings.Contains(args[0], "/") {
		return nil, usagef("--selector goes with one type, and no names")
	}
	selector, err := metav1.ParseToLabelSelector(d.selector)
	if err != nil {
		return nil, usagef("--selector: %w", err)
	}
	kind, err := r.kind(args[0])
	if err != nil {
		return nil, err
	}
	if d.allNamespaces {
		kind.Namespace = ""
	}
	return []ownership.DeletionTarget{{APIVersion: kind.APIVersion, Kind: kind.Kind, Namespace: kind.Namespace, Selector: selector}}, nil
}

func askPreview(ctx context.Context, r *reviewer, spec ownership.DeletionPreviewSpec) (*ownership.DeletionPreview, error) {
	preview := &ownership.DeletionPreview{Spec: spec}
	err := r.ask(ctx, "deletionpreviews", preview)
	preview.SetGroupVersionKind(ownership.SchemeGroupVersion.WithKind("DeletionPreview"))
	return preview, err
}

func (d *deletion) print(cmd *cobra.Command, preview *ownership.DeletionPreview) error {
	switch d.output {
	case "json":
		return printJSON(cmd, preview)
	case "yaml":
		return printYAML(cmd, preview)
	}
	printPreview(cmd, preview, d.all)
	return nil
}

// printPreview prints one table. If there are several targets, a star marks each.
func printPreview(cmd *cobra.Command, preview *ownership.DeletionPreview, all bool) {
	s := preview.Status
	if len(s.Objects) == 0 {
		printf(cmd, "%s\n", sentence("nothing would be deleted", hiddenNote(s.Hidden)))
		printWarnings(cmd, s.Warnings)
		return
	}
	several := len(targetsOf(s)) > 1
	f := forest{heads: []string{"OBJECT", "OUTCOME", "NOTES"}, all: all}
	for _, o := range s.Objects {
		b := previewBranch(o, usualNamespace(s.Objects[0].ObjectReference), all)
		if several && o.Target {
			b.mark = " *" + b.mark
		}
		f.branches = append(f.branches, b)
	}
	printf(cmd, "%s", f.render(newPainter(cmd)))
	printf(cmd, "\n%s\n", summary(s))
	printWarnings(cmd, s.Warnings)
}

// usualNamespace is where objects are if nothing else is said of them.
func usualNamespace(first ownership.ObjectReference) string {
	if first.Kind == "Namespace" && first.APIVersion == "v1" {
		return first.Name
	}
	return first.Namespace
}

// inNamespace says which namespace an object is in, unless it is the usual one.
func inNamespace(ref ownership.ObjectReference, usual string) string {
	if ref.Namespace == usual || ref.Namespace == "" {
		return ""
	}
	return " in " + ref.Namespace
}

// calledIn names an object among others in the usual namespace.
func calledIn(ref ownership.ObjectReference, usual string) string {
	return called(ref) + inNamespace(ref, usual)
}

func previewBranch(o ownership.PreviewedObject, namespace string, all bool) branch {
	return branch{
		id: o.UID, ref: o.ObjectReference, mark: inNamespace(o.ObjectReference, namespace), above: parents(o.Owners),
		cells:   []string{strings.ToLower(string(o.Outcome))},
		colours: []colour{outcomeColour(o)},
		notes:   func(at position) []string { return previewNotes(o, at.above, all) },
	}
}

func outcomeColour(o ownership.PreviewedObject) colour {
	switch {
	case len(o.BlockedBy) > 0 || o.Outcome == ownership.OutcomeBlocked:
		return yellow
	case o.Outcome == ownership.OutcomeDeleted:
		return red
	}
	return green
}

func previewNotes(o ownership.PreviewedObject, above types.UID, all bool) []string {
	var begun string
	if o.Deleting {
		begun = "being deleted already"
	}
	var keepers []string
	for _, owner := range o.KeptBy {
		keepers = append(keepers, owner.Kind+"/"+owner.Name+standingNote(owner.Standing))
	}
	return slices.Concat(said(begun), blockNotes(o.BlockedBy, above, all), said(notedAll("kept by %s", "kept by %s", keepers, all)))
}

// standingNote says why an owner that is not there keeps an object.
func standingNote(s ownership.Standing) string {
	switch s {
	case ownership.StandingUnresolved:
		return " (cannot be resolved)"
	case ownership.StandingPending:
		return " (has to be looked up)"
	}
	return ""
}

func summary(s ownership.DeletionPreviewStatus) string {
	parts := []string{fmt.Sprintf("would be deleted: %d", s.Deleted)}
	for _, p := range []struct {
		count int32
		word  string
	}{{s.Orphaned, "orphaned"}, {s.Kept, "kept"}, {s.Blocked, "held up"}} {
		if p.count > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", p.word, p.count))
		}
	}
	return sentence(append(parts, hiddenNote(s.Hidden))...)
}

// targetsOf are the objects that are to be deleted, as they were shown.
func targetsOf(s ownership.DeletionPreviewStatus) []ownership.PreviewedObject {
	var targets []ownership.PreviewedObject
	for _, o := range s.Objects {
		if o.Target {
			targets = append(targets, o)
		}
	}
	return targets
}
