// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// undeletion has the flags of "kindred undelete".
type undeletion struct {
	connection
	uid, at, output             string
	dryRun, list, allNamespaces bool
	all                         bool
	foreseen                    foreseen
}

func newUndelete() *cobra.Command {
	var u undeletion
	cmd := &cobra.Command{
		Use:   "undelete TYPE/NAME...",
		Short: "Restore deleted objects and everything that was deleted with them",
		Long: `Restores a deleted object and everything that was deleted with it, as they were just before
the deletion, from the history that the cluster keeps ("up --history-retention",
"--history-size"). Objects get new UIDs, and references between them are updated. Dependents that
still exist get their owner back. Nothing is overwritten: if an object of the same name exists,
the undeletion is refused.

Restored objects are on hold until all of them exist, so that controllers create no duplicates.
To resume an interrupted undeletion, run the same command again.`,
		Example: `  kindred undelete deployment/web
  kindred undelete --dry-run namespace/shop
  kindred undelete --list -A
  kindred undelete --at 10m deployment/web`,
		RunE:              func(cmd *cobra.Command, args []string) error { return u.run(cmd, args) },
		ValidArgsFunction: u.complete,
	}
	u.addFlags(cmd, "the cluster")
	flags := cmd.Flags()
	flags.BoolVar(&u.list, "list", false, "list deletions that can be undone, and undo none")
	flags.BoolVarP(&u.allNamespaces, "all-namespaces", "A", false, "with --list: in all namespaces")
	flags.BoolVar(&u.dryRun, "dry-run", false, "show what would be restored, and change nothing")
	flags.StringVar(&u.at, "at", "", `restore the state at a time before the deletion: "10m" ago, or "2006-01-02T15:04:05Z"`)
	flags.StringVar(&u.uid, "uid", "", "UID, if several objects had the name (default the last)")
	flags.BoolVar(&u.all, "all", false, "show each object, also if many are alike")
	flags.StringVarP(&u.output, "output", "o", "", `"wide" for a table without truncation, "json" or "yaml"`)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"wide", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// check validates the flags before any request is made.
func (u *undeletion) check(args []string) error {
	switch {
	case !slices.Contains([]string{"", "wide", "json", "yaml"}, u.output):
		return usagef("--output is %q, it must be wide, json or yaml", u.output)
	case !u.list && len(args) == 0:
		return usagef("name the objects to undelete as TYPE/NAME; --list lists deletions that can be undone")
	case u.list && (u.dryRun || u.at != "" || u.uid != ""):
		return usagef("--list can only be used with --namespace, --all-namespaces and --output")
	case u.allNamespaces && !u.list:
		return usagef("--all-namespaces needs --list")
	}
	return nil
}

func (u *undeletion) run(cmd *cobra.Command, args []string) error {
	if err := u.check(args); err != nil {
		return err
	}
	at, err := timeOf(u.at, clock.RealClock{})
	if err != nil {
		return err
	}
	r, err := u.reviewer(cmd)
	if err != nil {
		return err
	}
	if u.list {
		return u.printHistory(cmd, r, args)
	}
	objects, err := r.objects(args)
	if err != nil {
		return err
	}
	if u.uid != "" && len(objects) > 1 {
		return usagef("--uid needs exactly one object")
	}
	u.foreseen = foreseen{}
	for _, object := range objects {
		object.UID = types.UID(u.uid)
		review := &ownership.Undeletion{Spec: ownership.UndeletionSpec{Object: object, At: at, DryRun: u.dryRun}}
		if err := u.undelete(cmd, r, review); err != nil {
			return err
		}
	}
	return nil
}

// timeOf parses a time, or a duration before now.
func timeOf(text string, now clock.PassiveClock) (*metav1.Time, error) {
	if text == "" {
		return nil, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return &metav1.Time{Time: now.Now().Add(-ago)}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, usagef("--at is %q, which is neither a duration such as 10m nor a time such as 2006-01-02T15:04:05Z", text)
	}
	return &metav1.Time{Time: at}, nil
}

// undelete sends requests until everything is restored or a problem prevents it.
func (u *undeletion) undelete(cmd *cobra.Command, r *reviewer, review *ownership.Undeletion) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	progress := newProgress(cmd.ErrOrStderr(), clock.RealClock{})
	defer progress.end()
	work := undeleting{
		send: func(ctx context.Context, review *ownership.Undeletion) error {
			return r.create(ctx, "undeletions", review)
		},
		show: progress.show, clock: clock.RealClock{},
	}
	err := work.run(ctx, review)
	progress.end()
	if err != nil {
		return err
	}
	u.foreseen.follow(review)
	review.SetGroupVersionKind(ownership.SchemeGroupVersion.WithKind("Undeletion"))
	if err := u.print(cmd, review); err != nil {
		return err
	}
	return verdictOf(&review.Status)
}

// verdictOf returns the error of an undeletion.
func verdictOf(s *ownership.UndeletionStatus) error {
	switch s.Phase {
	case ownership.UndeletionRefused:
		return errors.New("the undeletion is refused, and nothing was changed")
	case ownership.UndeletionIncomplete:
		if len(s.Problems) == 0 {
			return fmt.Errorf("the undeletion has made no progress for %s, and the restored objects are on hold; run the same command again to continue", duration.HumanDuration(stuckAfter))
		}
		return errors.New("the undeletion is incomplete, and the restored objects are on hold; run the same command again to continue")
	}
	return nil
}

func (u *undeletion) print(cmd *cobra.Command, review *ownership.Undeletion) error {
	switch u.output {
	case "json":
		return printJSON(cmd, review)
	case "yaml":
		return printYAML(cmd, review)
	}
	printUndeletion(cmd, review, u.all, clock.RealClock{})
	return nil
}

func printUndeletion(cmd *cobra.Command, review *ownership.Undeletion, all bool, now clock.PassiveClock) {
	s := &review.Status
	if s.Deletion != nil {
		printWrapped(cmd, "", "", deletionPhrase(s.Deletion, false, now)+".")
		printf(cmd, "\n")
	}
	if len(s.Results) > 0 {
		f := forest{heads: []string{"OBJECT", "OUTCOME", "NOTES"}, all: all}
		namespace := usualNamespace(review.Spec.Object)
		for _, result := range s.Results {
			f.branches = append(f.branches, undeletionBranch(s.Phase, result, namespace))
		}
		printf(cmd, "%s\n", f.render(newPainter(cmd)))
	}
	for _, problem := range s.Problems {
		printWrapped(cmd, "", "problem: ", problem)
	}
	if s.Waiting != "" {
		printWrapped(cmd, "", "waiting: ", s.Waiting)
	}
	printf(cmd, "%s\n", tallyOf(s))
	printWarnings(cmd, s.Warnings)
}

func undeletionBranch(phase ownership.UndeletionPhase, result ownership.UndeletionResult, namespace string) branch {
	return branch{
		id: result.FormerUID, ref: result.Object, mark: inNamespace(result.Object, namespace), above: result.Owners,
		cells:   []string{outcomeCell(phase, result.Outcome)},
		colours: []colour{undeletionColour(result.Outcome)},
		notes:   func(position) []string { return nonEmpty(result.Reason) },
	}
}

// outcomeCell names an outcome. In a refused undeletion nothing is pending.
func outcomeCell(phase ownership.UndeletionPhase, outcome ownership.UndeletionOutcome) string {
	if phase == ownership.UndeletionRefused {
		switch outcome {
		case ownership.UndeletionPending:
			return "not restored"
		case ownership.UndeletionAdopted:
			return "not adopted"
		}
	}
	return strings.ToLower(string(outcome))
}

func undeletionColour(outcome ownership.UndeletionOutcome) colour {
	switch outcome {
	case ownership.UndeletionRestored, ownership.UndeletionAdopted:
		return green
	case ownership.UndeletionUnchanged:
		return plain
	}
	return yellow
}

// tallyOf counts outcomes. If nothing was changed, pending objects count as those that would be
// restored.
func tallyOf(s *ownership.UndeletionStatus) string {
	form := "%s: %d"
	restored, pending := s.Restored, s.Pending
	switch s.Phase {
	case ownership.UndeletionRefused:
		restored, pending = restored+pending, 0
		fallthrough
	case ownership.UndeletionPlanned:
		form = "would be %s: %d"
	}
	var parts []string
	for _, p := range []struct {
		word  string
		count int32
	}{{"restored", restored}, {"adopted", s.Adopted}, {"left", s.Left}, {"denied", s.Denied}, {"pending", pending}} {
		if p.count > 0 || p.word == "restored" {
			parts = append(parts, fmt.Sprintf(form, p.word, p.count))
			form = "%s: %d"
		}
	}
	return sentence(parts...)
}

// printHistory lists what can be undeleted.
func (u *undeletion) printHistory(cmd *cobra.Command, r *reviewer, args []string) error {
	history, err := u.history(cmd.Context(), r, args)
	if err != nil {
		return err
	}
	switch u.output {
	case "json":
		return printJSON(cmd, history)
	case "yaml":
		return printYAML(cmd, history)
	}
	printDeletions(cmd, &history.Status, u.allNamespaces, clock.RealClock{})
	return nil
}

func (u *undeletion) history(ctx context.Context, r *reviewer, args []string) (*ownership.DeletionHistory, error) {
	history := &ownership.DeletionHistory{Spec: ownership.DeletionHistorySpec{Namespace: r.namespace}}
	if u.allNamespaces {
		history.Spec.Namespace = ""
	}
	if len(args) > 0 {
		object, err := r.object(args, "--list takes one object at most")
		if err != nil {
			return nil, err
		}
		history.Spec.Namespace, history.Spec.Object = object.Namespace, &object
	}
	err := r.create(ctx, "deletionhistories", history)
	history.SetGroupVersionKind(ownership.SchemeGroupVersion.WithKind("DeletionHistory"))
	return history, err
}

// printDeletions prints a line for each deletion.
func printDeletions(cmd *cobra.Command, s *ownership.DeletionHistoryStatus, everywhere bool, now clock.PassiveClock) {
	rows := [][]string{{"AGE", "OBJECT", "POLICY", "BY"}}
	for i := range s.Deletions {
		d := &s.Deletions[i]
		object := kindAndName(d.Object)
		if everywhere && d.Object.Namespace != "" {
			object = d.Object.Kind + "/" + d.Object.Namespace + "/" + d.Object.Name
		}
		age := ""
		if d.Time != nil {
			age = duration.HumanDuration(now.Since(d.Time.Time))
		}
		rows = append(rows, []string{age, object, strings.ToLower(string(d.PropagationPolicy)), strings.TrimPrefix(strings.TrimSpace(agentPhrase(d.By)), "by ")})
	}
	if len(s.Deletions) > 0 {
		for _, line := range layOut(pageWidth(cmd), rows, 6, 52, 10) {
			printf(cmd, "%s\n", line)
		}
		printf(cmd, "\n")
	}
	since := ""
	if s.Since != nil {
		since = " since " + s.Since.UTC().Format(time.RFC3339)
	}
	printf(cmd, "%s\n", sentence(plural(len(s.Deletions), "deletion")+since+" can be undone", hiddenNote(s.Hidden)))
}
