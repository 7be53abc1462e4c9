// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

func newWhy() *cobra.Command {
	var c connection
	var output, uid string
	cmd := &cobra.Command{
		Use:   "why TYPE/NAME",
		Short: "Explain why an object exists, or why it is gone",
		Long: `Explains which owners keep an existing object, what the deletion of a terminating object
waits for, and who deleted an object that is gone, when, and through which owners, back to the
first deletion. Deletion records expire ("up --deletion-records").`,
		Example: `  kindred why pod/web-x
  kindred why -n prod cluster/one -o yaml`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			render, err := whyOutput(cmd, output)
			if err != nil {
				return err
			}
			r, err := c.reviewer(cmd)
			if err != nil {
				return err
			}
			spec, err := whySpec(r, args)
			if err != nil {
				return err
			}
			spec.Object.UID = types.UID(uid)
			why := &ownership.OwnershipExplanation{Spec: spec}
			if err := r.create(cmd.Context(), "ownershipexplanations", why); err != nil {
				return err
			}
			why.SetGroupVersionKind(ownership.SchemeGroupVersion.WithKind("OwnershipExplanation"))
			return render(why)
		},
		ValidArgsFunction: c.complete,
	}
	c.addFlags(cmd, "the cluster")
	cmd.Flags().StringVar(&uid, "uid", "", "UID, if several objects had the name (default the existing one, or the last)")
	cmd.Flags().StringVarP(&output, "output", "o", "", `"json" or "yaml"`)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// whySpec returns the spec of the review. A type that the cluster does not serve may have been
// served before: the server knows deleted CustomResourceDefinitions.
func whySpec(r *reviewer, args []string) (ownership.OwnershipExplanationSpec, error) {
	object, err := r.object(args, "why explains one object")
	var unknown unknownTypeError
	if !errors.As(err, &unknown) {
		return ownership.OwnershipExplanationSpec{Object: object}, err
	}
	named, err := splitObjects(args)
	if err != nil {
		return ownership.OwnershipExplanationSpec{}, err
	}
	if len(named) > 1 {
		return ownership.OwnershipExplanationSpec{}, unknown
	}
	return ownership.OwnershipExplanationSpec{
		Type: string(unknown), Object: ownership.ObjectReference{Namespace: r.namespace, Name: named[0][1]},
	}, nil
}

// whyOutput returns the function that prints an explanation.
func whyOutput(cmd *cobra.Command, output string) (func(*ownership.OwnershipExplanation) error, error) {
	switch output {
	case "":
		return func(e *ownership.OwnershipExplanation) error {
			for _, s := range sentences(&e.Status, clock.RealClock{}) {
				printWrapped(cmd, "", "", s)
			}
			return nil
		}, nil
	case "json":
		return func(e *ownership.OwnershipExplanation) error { return printJSON(cmd, e) }, nil
	case "yaml":
		return func(e *ownership.OwnershipExplanation) error { return printYAML(cmd, e) }, nil
	}
	return nil, usagef("--output is %q, it must be json or yaml", output)
}

// sentences describes an explanation in sentences.
func sentences(s *ownership.OwnershipExplanationStatus, now clock.PassiveClock) []string {
	var all []string
	switch s.State {
	case ownership.StateLiving:
		all = append(all, keptSentence(s))
	case ownership.StateTerminating:
		all = append(all, waitSentences(s)...)
	}
	for i := range s.Deletions {
		all = append(all, deletionPhrase(&s.Deletions[i], s.State == ownership.StateTerminating && i == 0, now)+".")
	}
	if s.Hold != nil {
		all = append(all, inFull(s.Object)+" is on hold: "+s.Hold.Message+"; "+s.Hold.Remedy+".")
	}
	for _, m := range s.Messages {
		all = append(all, sentenceOf(m))
	}
	for i := range s.Earlier {
		all = append(all, fmt.Sprintf("Before, %s (--uid %s).", deletionPhrase(&s.Earlier[i], false, now), s.Earlier[i].Object.UID))
	}
	if note := hiddenNote(s.Hidden); note != "" {
		all = append(all, "Also involved: "+note+".")
	}
	return all
}

func sentenceOf(message string) string {
	return strings.ToUpper(message[:1]) + strings.TrimSuffix(message[1:], ".") + "."
}

// inFull names an object in a sentence.
func inFull(ref ownership.ObjectReference) string {
	if ref.Namespace == "" {
		return ref.Kind + " " + ref.Name
	}
	return ref.Kind + " " + ref.Namespace + "/" + ref.Name
}

// keptSentence describes the owners of an existing object.
func keptSentence(s *ownership.OwnershipExplanationStatus) string {
	name := inFull(s.Object)
	if len(s.Owners) == 0 {
		return name + " exists and has no owner: it stays until it is deleted."
	}
	byStanding := map[ownership.Standing][]string{}
	for _, o := range s.Owners {
		owner := "its owner " + o.Kind + " " + o.Name
		if o.Controller != nil && *o.Controller {
			owner = "its controller " + o.Kind + " " + o.Name
		}
		byStanding[o.Standing] = append(byStanding[o.Standing], owner)
	}
	var parts []string
	for _, known := range []struct {
		standing ownership.Standing
		says     string
	}{
		{ownership.StandingSolid, "%s exists"},
		{ownership.StandingWaiting, "%s is being deleted and waits for it"},
		{ownership.StandingDangling, "%s does not exist"},
		{ownership.StandingUnresolved, "%s cannot be resolved, so it is not garbage collected"},
		{ownership.StandingPending, "%s has not been looked up yet"},
		{ownership.StandingHidden, "you may not read %s"},
	} {
		for _, owner := range byStanding[known.standing] {
			parts = append(parts, fmt.Sprintf(known.says, owner))
		}
	}
	text := name + " exists: " + strings.Join(parts, "; ")
	if len(byStanding[ownership.StandingSolid]) > 0 {
		text += "; it is garbage collected when none of its owners exists"
	}
	return text + "."
}

// waitSentences describes what a deletion waits for.
func waitSentences(s *ownership.OwnershipExplanationStatus) []string {
	name := inFull(s.Object)
	if len(s.WaitsFor) == 0 {
		return []string{name + " is being deleted."}
	}
	var all []string
	for _, w := range s.WaitsFor {
		sentence := name + " is being deleted, and " + blockNote(w.DeletionBlock)
		switch {
		case w.Message != "":
			sentence += ": " + w.Message
		case w.Finalizer != "":
			sentence += ": the controller that added it must remove it"
		}
		all = append(all, sentence+".")
	}
	return all
}

// deletionPhrase describes who deleted an object, when and why.
func deletionPhrase(d *ownership.ExplainedDeletion, begun bool, now clock.PassiveClock) string {
	if d.Time == nil && d.By.Kind == ownership.AgentUnknown && causePhrase(d) == "" {
		return "It is not known how " + inFull(d.Object) + " was deleted"
	}
	verb := " was deleted"
	if begun {
		verb = ": deletion requested"
	}
	text := inFull(d.Object) + verb
	if d.Time != nil {
		text += " " + duration.HumanDuration(now.Since(d.Time.Time)) + " ago"
	}
	text += agentPhrase(d.By)
	if d.PropagationPolicy != "" && d.By.Kind != ownership.AgentGarbageCollector {
		text += " with policy " + string(d.PropagationPolicy)
	}
	return text + causePhrase(d)
}

func agentPhrase(by ownership.DeletionAgent) string {
	program, _, _ := strings.Cut(by.UserAgent, "/")
	switch by.Kind {
	case ownership.AgentGarbageCollector:
		return " by the garbage collector"
	case ownership.AgentServer:
		return " by the API server"
	case ownership.AgentController:
		return " by controller " + by.User[strings.LastIndex(by.User, ":")+1:]
	case ownership.AgentNode:
		return " by node " + by.User[strings.LastIndex(by.User, ":")+1:]
	case ownership.AgentUnknown:
		return " (user not recorded)"
	case ownership.AgentServiceAccount:
		return " by service account " + strings.Replace(strings.TrimPrefix(by.User, "system:serviceaccount:"), ":", "/", 1) + inParentheses(program)
	}
	return " by " + by.User + inParentheses(program)
}

func inParentheses(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// causePhrase describes the deletions that caused one.
func causePhrase(d *ownership.ExplainedDeletion) string {
	text := ownersPhrase(d)
	for _, o := range d.InvalidOwners {
		if text != "" {
			text += ";"
		} else {
			text = ", because"
		}
		text += " its reference to " + o.Kind + " " + o.Name + " is invalid, because the owner is in another namespace"
	}
	return text
}

// ownersPhrase describes which owners were gone or being deleted when an object was deleted.
func ownersPhrase(d *ownership.ExplainedDeletion) string {
	switch {
	case d.By.Kind == ownership.AgentServer && len(d.Because) > 0:
		return ", because its definition was deleted"
	case d.By.Kind == ownership.AgentController && len(d.Because) > 0 && d.Because[0].Kind == "Namespace":
		return ", because its namespace was deleted"
	}
	reason, end := "because", "gone"
	if d.By.Kind != ownership.AgentGarbageCollector && d.By.Kind != ownership.AgentUnknown {
		reason, end = "while", "being deleted"
	}
	var owners []string
	for _, c := range d.Because {
		owners = append(owners, c.Kind+" "+c.Name)
	}
	if d.Hidden > 0 && len(owners) > 0 {
		owners = append(owners, hiddenNote(d.Hidden))
	}
	switch {
	case len(owners) == 0 && d.Hidden == 0:
		return ""
	case len(owners) == 0:
		return fmt.Sprintf(", %s %s that you may not read %s %s", reason, plural(int(d.Hidden), "owner"), wasOrWere(int(d.Hidden)), end)
	case len(owners) == 1:
		return fmt.Sprintf(", %s its owner %s was %s", reason, owners[0], end)
	}
	return fmt.Sprintf(", %s its owners %s were %s", reason, strings.Join(owners, " and "), end)
}

func wasOrWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}
