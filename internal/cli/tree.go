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
		Short: "Show the owners and the dependents of an object",
		Long: `Shows an object, marked with a star, below its owners and above its dependents, direct
and indirect, of any kind, with their readiness and age. The notes name finalizers, further
owners, owners that do not exist, and what a deletion in progress waits for.

Each object is shown once, below the owner that controls it; its other owners are in the
notes. "(cycle)" marks an owner that is itself below the object. Siblings are sorted by kind
and name. Rows too deep to be indented have the number of their level instead.

Of a Cluster of Cluster API, the infrastructure, the control plane and the workers come first,
with their versions and machines, and the conditions that are not as they should be.

The table is as wide as the terminal. In pipes and files, and with -o wide, text is neither
truncated nor wrapped.`,
		Example: `  kindred tree deployment/web
  kindred tree -n prod cluster/one
  kindred tree statefulset/db -o mermaid`,
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
			object, err := r.object(args, "tree shows one object")
			if err != nil {
				return err
			}
			tree := &ownership.OwnershipTree{Spec: ownership.OwnershipTreeSpec{Object: object}}
			if cmd.Flags().Changed("depth") {
				tree.Spec.Depth = &depth
			}
			if err := r.create(cmd.Context(), "ownershiptrees", tree); err != nil {
				return err
			}
			tree.SetGroupVersionKind(ownership.SchemeGroupVersion.WithKind("OwnershipTree"))
			return render(tree)
		},
		ValidArgsFunction: c.complete,
	}
	c.addFlags(cmd, "the cluster")
	cmd.Flags().Int32Var(&depth, "depth", 0, "how many levels of dependents to show (default all)")
	cmd.Flags().BoolVar(&all, "all", false, "show each object and each owner, also if many are alike")
	cmd.Flags().StringVarP(&output, "output", "o", "", `"wide", "json", "yaml", "dot" (Graphviz) or "mermaid"`)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"wide", "json", "yaml", "dot", "mermaid"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// treeOutput returns the function that prints a tree.
func treeOutput(cmd *cobra.Command, output string, all bool) (func(*ownership.OwnershipTree) error, error) {
	switch output {
	case "", "wide":
		return func(t *ownership.OwnershipTree) error {
			treePrinter{all, clock.RealClock{}}.print(cmd, t)
			return nil
		}, nil
	case "json":
		return func(t *ownership.OwnershipTree) error { return printJSON(cmd, t) }, nil
	case "yaml":
		return func(t *ownership.OwnershipTree) error { return printYAML(cmd, t) }, nil
	case "dot":
		return func(t *ownership.OwnershipTree) error { printf(cmd, "%s", dot(t)); return nil }, nil
	case "mermaid":
		return func(t *ownership.OwnershipTree) error { printf(cmd, "%s", mermaid(t)); return nil }, nil
	}
	return nil, usagef("--output is %q, it must be wide, json, yaml, dot or mermaid", output)
}

// members returns all objects of a tree, each once, owners first. An object that is both an owner
// and a dependent of the root counts as a dependent.
func members(t *ownership.OwnershipTree) []ownership.TreeObject {
	met := map[types.UID]bool{}
	for _, o := range t.Status.Objects {
		met[o.UID] = true
	}
	var all []ownership.TreeObject
	for _, o := range t.Status.Owners {
		if !met[o.UID] {
			met[o.UID] = true
			all = append(all, o)
		}
	}
	slices.SortStableFunc(all, func(a, b ownership.TreeObject) int { return a.Compare(b.ObjectReference) })
	return append(all, t.Status.Objects...)
}

// treePrinter prints trees as tables.
type treePrinter struct {
	all   bool
	clock clock.PassiveClock
}

func (p treePrinter) print(cmd *cobra.Command, t *ownership.OwnershipTree) {
	if namespace := t.Status.Object.Namespace; namespace != "" {
		printf(cmd, "Namespace %s\n", namespace)
	}
	printf(cmd, "%s", p.table(t).render(newPainter(cmd)))
	printWarnings(cmd, append(t.Status.Warnings, hiddenNote(t.Status.Hidden)))
}

func (p treePrinter) table(t *ownership.OwnershipTree) *forest {
	f := &forest{heads: []string{"OBJECT", "CONTROLLED", "READINESS", "AGE", "NOTES"}, all: p.all}
	for _, o := range members(t) {
		f.branches = append(f.branches, p.branch(t, o))
	}
	return f
}

func printWarnings(cmd *cobra.Command, warnings []string) {
	for _, w := range nonEmpty(warnings...) {
		printWrapped(cmd, "", "", w)
	}
}

func (p treePrinter) branch(t *ownership.OwnershipTree, o ownership.TreeObject) branch {
	b := branch{id: o.UID, ref: o.ObjectReference, rank: rankOf(o.ClusterPart), above: parents(o.Owners)}
	if o.UID == t.Status.Object.UID {
		b.mark += " *"
	}
	b.mark += inNamespace(o.ObjectReference, t.Status.Object.Namespace)
	b.cells = []string{controlled(o.Owners), string(o.Readiness), duration.HumanDuration(p.clock.Since(o.CreationTimestamp.Time))}
	b.colours = []colour{plain, readinessColour(o.Readiness)}
	b.notes = func(at position) []string { return p.notes(o, at) }
	return b
}

// controlled returns "yes" if one of the owners is the controller.
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

func (p treePrinter) notes(o ownership.TreeObject, at position) []string {
	var notes []string
	if o.DeletionTimestamp != nil {
		notes = append(notes, deletionNote(*o.DeletionTimestamp, p.clock))
	}
	if o.Hold != nil {
		notes = append(notes, "on hold: "+o.Hold.Remedy)
	}
	notes = append(notes, blockNotes(o.WaitsFor, "", p.all)...)
	if o.DeletionTimestamp == nil {
		for _, f := range o.Finalizers {
			if o.ClusterPart == nil || !isUsual(f) {
				notes = append(notes, "finalizer "+f)
			}
		}
	}
	switch {
	case o.ClusterPart != nil:
		notes = slices.Concat([]string{roleNote(o.ClusterPart)}, conditionNotes(o.ClusterPart), notes)
	case o.Readiness == ownership.ReadinessInProgress, o.Readiness == ownership.ReadinessFailed:
		notes = append(notes, o.Message)
	}
	return append(nonEmpty(notes...), ownerNotes(o.Owners, at, p.all)...)
}

// deletionNote describes a deletion timestamp, which is the end of the grace period.
func deletionNote(t metav1.Time, clock clock.PassiveClock) string {
	if since := clock.Since(t.Time); since >= 0 {
		return "being deleted for " + duration.HumanDuration(since)
	}
	return "being deleted within " + duration.HumanDuration(-clock.Since(t.Time))
}

// dot draws a tree in the DOT language of Graphviz. Edges from controllers are bold.
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

// mermaid draws a tree as a flowchart. Edges from controllers are thick.
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

// eachEdge calls f once for each pair of objects of which one owns the other.
func eachEdge(objects []ownership.TreeObject, f func(owner, dependent types.UID, controls bool)) {
	there := map[types.UID]bool{}
	for _, o := range objects {
		there[o.UID] = true
	}
	for _, o := range objects {
		drawn := map[types.UID]bool{}
		for _, owner := range o.Owners {
			if there[owner.UID] && !drawn[owner.UID] {
				drawn[owner.UID] = true
				f(owner.UID, o.UID, owner.Controller != nil && *owner.Controller)
			}
		}
	}
}
