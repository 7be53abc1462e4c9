// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

func newTree() *cobra.Command {
	var c connection
	var output string
	var depth int32
	var all bool
	cmd := &cobra.Command{
		Use:   "tree TYPE/NAME",
		Short: "Show who owns an object, and what it owns",
		Long: `Shows an object, marked with a star, below those that own it and above those that it
owns, directly or not, of any kind: how ready they are, how old, and what is worth a note:
finalizers, further owners, owners that do not exist, and for what is being deleted what it
waits for. Objects are shown below the owner that controls them.`,
		Example: `  kindred tree deployment/web
  kindred tree -n prod cluster/one -o mermaid`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			render, err := treeOutput(cmd, output, all)
			if err != nil {
				return err
			}
			r, err := c.reviewer(cmd)
			if err != nil {
				return err
			}
			object, err := r.object(args, "a tree is of one object")
			if err != nil {
				return err
			}
			tree := &ownership.OwnershipTree{Spec: ownership.OwnershipTreeSpec{Object: object}}
			if cmd.Flags().Changed("depth") {
				tree.Spec.Depth = &depth
			}
			if err := r.ask(cmd.Context(), "ownershiptrees", tree); err != nil {
				return err
			}
			tree.SetGroupVersionKind(ownership.SchemeGroupVersion.WithKind("OwnershipTree"))
			return render(tree)
		},
		ValidArgsFunction: c.complete,
	}
	c.addFlags(cmd, "the cluster")
	cmd.Flags().Int32Var(&depth, "depth", 0, "how many levels of dependents to show (default all)")
	cmd.Flags().BoolVar(&all, "all", false, "show each object, also where there are many of the same")
	cmd.Flags().StringVarP(&output, "output", "o", "", `"json", "yaml", "dot" (Graphviz) or "mermaid"`)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml", "dot", "mermaid"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// treeOutput finds how a tree is to be printed.
func treeOutput(cmd *cobra.Command, output string, all bool) (func(*ownership.OwnershipTree) error, error) {
	switch output {
	case "":
		return func(t *ownership.OwnershipTree) error { printTree(cmd, t, all, clock.RealClock{}); return nil }, nil
	case "json":
		return func(t *ownership.OwnershipTree) error { return printJSON(cmd, t) }, nil
	case "yaml":
		return func(t *ownership.OwnershipTree) error { return printYAML(cmd, t) }, nil
	case "dot":
		return func(t *ownership.OwnershipTree) error { printf(cmd, "%s", dot(t)); return nil }, nil
	case "mermaid":
		return func(t *ownership.OwnershipTree) error { printf(cmd, "%s", mermaid(t)); return nil }, nil
	}
	return nil, usagef("--output is %q, it can only be json, yaml, dot or mermaid", output)
}

// members are all objects of a tree, owners first.
func members(t *ownership.OwnershipTree) []ownership.TreeObject {
	owners := slices.Clone(t.Status.Owners)
	slices.Reverse(owners)
	return append(owners, t.Status.Objects...)
}

func printTree(cmd *cobra.Command, t *ownership.OwnershipTree, all bool, clock clock.PassiveClock) {
	f := forest{heads: []string{"OBJECT", "CONTROLLED", "READINESS", "AGE", "NOTES"}, all: all}
	for _, o := range members(t) {
		f.branches = append(f.branches, treeBranch(t, o, clock))
	}
	if namespace := t.Status.Object.Namespace; namespace != "" {
		printf(cmd, "Namespace %s\n", namespace)
	}
	printf(cmd, "%s", f.render(newPainter(cmd.OutOrStdout())))
	printWarnings(cmd, append(t.Status.Warnings, hiddenNote(t.Status.Hidden)))
}

func printWarnings(cmd *cobra.Command, warnings []string) {
	for _, w := range warnings {
		if w != "" {
			printf(cmd, "%s\n", strings.Join(wrap([]string{w}, tableWidth), "\n"))
		}
	}
}

func treeBranch(t *ownership.OwnershipTree, o ownership.TreeObject, clock clock.PassiveClock) branch {
	b := branch{id: o.UID, kind: o.Kind, label: called(o.ObjectReference)}
	if o.UID == t.Status.Object.UID {
		b.label += " *"
	}
	if o.Namespace != t.Status.Object.Namespace && o.Namespace != "" {
		b.label += " in " + o.Namespace
	}
	for _, owner := range parents(o.Owners) {
		b.above = append(b.above, owner.UID)
	}
	b.cells = []string{controlled(o.Owners), string(o.Readiness), duration.HumanDuration(clock.Since(o.CreationTimestamp.Time))}
	b.colours = []colour{plain, readinessColour(o.Readiness)}
	b.notes = func(above types.UID) []string { return treeNotes(o, above, clock) }
	return b
}

// controlled tells whether one of the owners controls the object.
func controlled(owners []ownership.OwnerReference) string {
	switch {
	case len(owners) == 0:
		return ""
	case slices.ContainsFunc(owners, func(o ownership.OwnerReference) bool { return o.Controller != nil && *o.Controller }):
		return "yes"
	}
	return "no"
}

func readinessColour(r ownership.Readiness) colour {
	switch r {
	case ownership.ReadinessReady:
		return green
	case ownership.ReadinessFailed:
		return red
	case ownership.ReadinessInProgress, ownership.ReadinessTerminating:
		return yellow
	}
	return faint
}

func treeNotes(o ownership.TreeObject, above types.UID, clock clock.PassiveClock) []string {
	var notes []string
	if o.DeletionTimestamp != nil {
		notes = append(notes, deletionNote(*o.DeletionTimestamp, clock))
	}
	if o.Hold != nil {
		notes = append(notes, "on hold: "+o.Hold.Remedy)
	}
	for _, b := range o.WaitsFor {
		notes = append(notes, blockNote(b))
	}
	if o.DeletionTimestamp == nil {
		for _, f := range o.Finalizers {
			notes = append(notes, "finalizer "+f)
		}
	}
	if o.Readiness == ownership.ReadinessInProgress || o.Readiness == ownership.ReadinessFailed {
		notes = append(notes, o.Message)
	}
	return append(notes, ownerNotes(o.Owners, string(above))...)
}

// deletionNote tells of a timestamp that is as late as the grace period ends.
func deletionNote(t metav1.Time, clock clock.PassiveClock) string {
	if since := clock.Since(t.Time); since >= 0 {
		return "being deleted for " + duration.HumanDuration(since)
	}
	return "being deleted within " + duration.HumanDuration(-clock.Since(t.Time))
}

// dot draws a tree in the language of Graphviz. Bold lines are controllers'.
func dot(t *ownership.OwnershipTree) string {
	var out strings.Builder
	out.WriteString("digraph ownership {\n  node [shape=box];\n")
	objects := members(t)
	for _, o := range objects {
		fmt.Fprintf(&out, "  %q [label=\"%s\\n%s\"];\n", o.UID, dotText(o.Kind), dotText(o.Name))
	}
	eachEdge(objects, func(owner, dependent types.UID, controls bool) {
		style := "dashed"
		if controls {
			style = "bold"
		}
		fmt.Fprintf(&out, "  %q -> %q [style=%s];\n", owner, dependent, style)
	})
	out.WriteString("}\n")
	return out.String()
}

func dotText(text string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) }

// mermaid draws a tree as a flowchart. Thick arrows are controllers'.
func mermaid(t *ownership.OwnershipTree) string {
	var out strings.Builder
	out.WriteString("flowchart TD\n")
	objects, names := members(t), map[types.UID]string{}
	for i, o := range objects {
		names[o.UID] = fmt.Sprintf("o%d", i)
		fmt.Fprintf(&out, "  %s[\"%s<br/>%s\"]\n", names[o.UID], mermaidText(o.Kind), mermaidText(o.Name))
	}
	eachEdge(objects, func(owner, dependent types.UID, controls bool) {
		arrow := "-.->"
		if controls {
			arrow = "==>"
		}
		fmt.Fprintf(&out, "  %s %s %s\n", names[owner], arrow, names[dependent])
	})
	return out.String()
}

func mermaidText(text string) string { return strings.ReplaceAll(text, `"`, "#quot;") }

// eachEdge calls f for each reference whose owner is one of the objects.
func eachEdge(objects []ownership.TreeObject, f func(owner, dependent types.UID, controls bool)) {
	there := map[types.UID]bool{}
	for _, o := range objects {
		there[o.UID] = true
	}
	for _, o := range objects {
		for _, owner := range o.Owners {
			if there[owner.UID] {
				f(owner.UID, o.UID, owner.Controller != nil && *owner.Controller)
			}
		}
	}
}
