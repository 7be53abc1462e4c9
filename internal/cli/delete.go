// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/term"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// deletion has the flags of "kindred delete".
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
		Short: "Preview and delete objects with their dependents",
		Long: `Shows the outcome for every dependent of the objects: deleted with them, orphaned, kept by
another owner, or blocked by a finalizer or a dependent. Several objects are previewed and
deleted together. Then asks for confirmation and deletes the objects. If the preview has changed
meanwhile, it stops and shows the changes. With --preview it deletes nothing.

Deleting a namespace deletes everything in it; deleting a CustomResourceDefinition deletes its
custom resources.`,
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
	flags.BoolVar(&d.preview, "preview", false, "show what the deletion would do, and delete nothing")
	flags.StringVar(&d.cascade, "cascade", "background", `what happens to dependents: they are deleted after their owner ("background"), before it ("foreground"), or kept ("orphan")`)
	flags.StringVarP(&d.selector, "selector", "l", "", "delete the objects of the type that have these labels")
	flags.BoolVarP(&d.allNamespaces, "all-namespaces", "A", false, "with --selector: in all namespaces")
	flags.BoolVarP(&d.yes, "yes", "y", false, "do not ask for confirmation")
	flags.BoolVar(&d.wait, "wait", true, "wait until the objects are gone")
	flags.BoolVar(&d.all, "all", false, "show each object, also if many are alike")
	flags.StringVarP(&d.output, "output", "o", "", `"wide" for a table without truncation; with --preview also "json" or "yaml"`)
	_ = cmd.RegisterFlagCompletionFunc("cascade", cobra.FixedCompletions([]string{"background", "foreground", "orphan"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"wide", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// policies maps the values of --cascade, which are the same as kubectl's.
var policies = map[string]metav1.DeletionPropagation{
	"background": metav1.DeletePropagationBackground,
	"foreground": metav1.DeletePropagationForeground,
	"orphan":     metav1.DeletePropagationOrphan,
}

// check validates the flags before any request is made.
func (d *deletion) check(cmd *cobra.Command) error {
	_, known := policies[d.cascade]
	switch {
	case !known:
		return usagef("--cascade is %q, it must be background, foreground or orphan", d.cascade)
	case d.allNamespaces && d.selector == "":
		return usagef("--all-namespaces needs --selector")
	case !slices.Contains([]string{"", "wide", "json", "yaml"}, d.output):
		return usagef("--output is %q, it must be wide, json or yaml", d.output)
	case d.output != "" && d.output != "wide" && !d.preview:
		return usagef("--output json and yaml need --preview")
	case !d.preview && !d.yes && !term.IsTerminal(cmd.InOrStdin()):
		return usagef("cannot ask for confirmation without a terminal: use --yes to delete, or --preview to see what would happen")
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
	preview, err := createPreview(cmd.Context(), r, spec)
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

// targets returns the objects to delete.
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
		return nil, usagef("--selector needs one type and no names")
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

func createPreview(ctx context.Context, r *reviewer, spec ownership.DeletionPreviewSpec) (*ownership.DeletionPreview, error) {
	preview := &ownership.DeletionPreview{Spec: spec}
	err := r.create(ctx, "deletionpreviews", preview)
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

// usualNamespace returns the namespace that rows do not repeat.
func usualNamespace(first ownership.ObjectReference) string {
	if first.Kind == "Namespace" && first.APIVersion == "v1" {
		return first.Name
	}
	return first.Namespace
}

// inNamespace returns " in NAMESPACE", or "" for an object in the usual namespace.
func inNamespace(ref ownership.ObjectReference, usual string) string {
	if ref.Namespace == usual || ref.Namespace == "" {
		return ""
	}
	return " in " + ref.Namespace
}

// kindAndNameIn names an object, with its namespace unless that is the usual one.
func kindAndNameIn(ref ownership.ObjectReference, usual string) string {
	return kindAndName(ref) + inNamespace(ref, usual)
}

func previewBranch(o ownership.PreviewedObject, namespace string, all bool) branch {
	return branch{
		id: o.UID, ref: o.ObjectReference, mark: inNamespace(o.ObjectReference, namespace), above: previewParents(o),
		cells:   []string{strings.ToLower(string(o.Outcome))},
		colours: []colour{outcomeColour(o)},
		notes:   func(at position) []string { return previewNotes(o, at.above, all) },
	}
}

// previewParents returns what an object may be shown below: its owners, or what a controller deletes it with.
func previewParents(o ownership.PreviewedObject) []types.UID {
	above := parents(o.Owners)
	if o.DeletedWith != nil {
		above = append(above, o.DeletedWith.UID)
	}
	return above
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
		begun = "already being deleted"
	}
	var with string
	if o.DeletedWith != nil {
		with = "a controller deletes it with " + kindAndName(*o.DeletedWith)
	}
	var keepers []string
	for _, owner := range o.KeptBy {
		keepers = append(keepers, owner.Kind+"/"+owner.Name+standingNote(owner.Standing))
	}
	return slices.Concat(nonEmpty(begun), nonEmpty(with), blockNotes(o.BlockedBy, above, all), nonEmpty(notedAll("kept by %s", "kept by %s", keepers, all)), nonEmpty(volumeNote(o.Volume)))
}

// volumeNote says what happens to the data of a deleted claim. It does not name the volume, so that claims that are
// alike are shown together.
func volumeNote(v *ownership.ClaimedVolume) string {
	switch {
	case v == nil:
		return ""
	case v.ReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return "its volume is deleted too, with the data"
	case v.ReclaimPolicy == "":
		return "its volume may be deleted too, with the data: you may not read its reclaim policy"
	}
	return fmt.Sprintf("its volume is kept, with the data (reclaim policy %s)", v.ReclaimPolicy)
}

// standingNote explains why an owner that does not exist keeps an object.
func standingNote(s ownership.Standing) string {
	switch s {
	case ownership.StandingUnresolved:
		return " (cannot be resolved)"
	case ownership.StandingPending:
		return " (not looked up yet)"
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

// targetsOf returns the objects to delete, as they were shown.
func targetsOf(s ownership.DeletionPreviewStatus) []ownership.PreviewedObject {
	var targets []ownership.PreviewedObject
	for _, o := range s.Objects {
		if o.Target {
			targets = append(targets, o)
		}
	}
	return targets
}
