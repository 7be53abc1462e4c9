// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// deleting carries out a deletion that was previewed, as long as the preview holds.
//
// The API has no transactions across objects, so the preview is requested again: right before
// the first target is deleted, and before a later one if the last check is at least as long ago
// as it took. Checks therefore take at most half of the time, for any number of targets.
// Other clients can still change the affected objects between a check and the deletions that
// follow it.
type deleting struct {
	shown  ownership.DeletionPreviewStatus
	policy metav1.DeletionPropagation

	// preview returns what the deletion would do now.
	preview func(context.Context, ownership.DeletionPreviewSpec) (ownership.DeletionPreviewStatus, error)
	// remove deletes one target, if it is still the object that was shown.
	remove func(context.Context, ownership.ObjectReference, metav1.DeleteOptions) error
	// progress is called before each target is deleted.
	progress func(ref ownership.ObjectReference, number, of int)
	clock    clock.PassiveClock

	begun   bool // a target was deleted
	checked time.Time
	took    time.Duration
}

// stopped is the error of a deletion that would have had another result than its preview.
type stopped struct {
	changes     []previewChange
	deleted, of int
}

func (s *stopped) Error() string {
	what := "nothing was deleted"
	if s.deleted > 0 {
		what = fmt.Sprintf("only %d of %s were deleted", s.deleted, plural(s.of, "object"))
	}
	return what + ": the preview has changed since it was shown; look at it again before you delete"
}

// run deletes the targets in the order in which they were shown. The targets of a preview come
// owners first: see ownership.DeletionPreviewStatus.
func (d *deleting) run(ctx context.Context) error {
	targets := targetsOf(d.shown)
	for i, target := range targets {
		if !d.begun || d.clock.Since(d.checked) >= d.took {
			changes, err := d.check(ctx)
			if err != nil {
				return d.interrupted(err, i, len(targets))
			}
			if len(changes) > 0 {
				return &stopped{changes, i, len(targets)}
			}
		}
		d.progress(target.ObjectReference, i+1, len(targets))
		// The resourceVersion is not a precondition: a new dependent does not change it, and a
		// status update must not end the deletion.
		err := d.remove(ctx, target.ObjectReference, metav1.DeleteOptions{
			PropagationPolicy: &d.policy, Preconditions: &metav1.Preconditions{UID: &target.UID},
		})
		if err != nil {
			return d.interrupted(err, i, len(targets))
		}
		d.begun = true
	}
	return nil
}

func (d *deleting) interrupted(err error, deleted, of int) error {
	if of == 1 {
		return err
	}
	return fmt.Errorf("%d of %s were deleted, then: %w", deleted, plural(of, "object"), err)
}

// check compares what the deletion would do now with what was shown. It includes targets that
// are already deleted, because their dependents may still exist.
func (d *deleting) check(ctx context.Context) ([]previewChange, error) {
	begin := d.clock.Now()
	spec := ownership.DeletionPreviewSpec{PropagationPolicy: &d.policy}
	for _, t := range targetsOf(d.shown) {
		spec.Targets = append(spec.Targets, ownership.DeletionTarget{
			APIVersion: t.APIVersion, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, UID: t.UID,
		})
	}
	now, err := d.preview(ctx, spec)
	d.checked = d.clock.Now()
	d.took = d.checked.Sub(begin)
	if err != nil {
		return nil, fmt.Errorf("cannot check that the deletion still does what was shown: %w", err)
	}
	return previewChanges(d.shown, now, d.begun), nil
}

// previewChange is an object whose outcome differs from the preview, or several such objects
// that the caller may not read.
type previewChange struct {
	object     *ownership.ObjectReference
	hidden     int32
	shown, now string
}

// loss orders outcomes by how much of an object is lost. A blocked object is being deleted, and
// whether its deletion completes may change while the targets are deleted one by one.
var loss = map[ownership.DeletionOutcome]int{
	"": 0, ownership.OutcomeKept: 0, ownership.OutcomeOrphaned: 1, ownership.OutcomeBlocked: 2, ownership.OutcomeDeleted: 2,
}

// previewChanges compares outcomes with those that were shown. An object that is gone or no longer
// affected is not a change. After the first target was deleted, outcomes are in transition,
// and only a greater loss is a change.
func previewChanges(shown, now ownership.DeletionPreviewStatus, begun bool) []previewChange {
	before := map[types.UID]ownership.DeletionOutcome{}
	for _, o := range shown.Objects {
		before[o.UID] = o.Outcome
	}
	var changes []previewChange
	for _, o := range now.Objects {
		was, known := before[o.UID]
		if loss[o.Outcome] > loss[was] || !begun && known && o.Outcome != was {
			changes = append(changes, previewChange{object: &o.ObjectReference, shown: strings.ToLower(string(was)), now: strings.ToLower(string(o.Outcome))})
		}
	}
	if more := now.Hidden - shown.Hidden; more > 0 {
		changes = append(changes, previewChange{hidden: more})
	}
	return changes
}

// printChanges prints the differences as a table.
func printChanges(cmd *cobra.Command, shown ownership.DeletionPreviewStatus, changes []previewChange) {
	rows := [][]string{{"CHANGED", "SHOWN", "NOW"}}
	hidden := ""
	for _, c := range changes {
		if c.object == nil {
			hidden = hiddenNote(c.hidden)
			continue
		}
		was := c.shown
		if was == "" {
			was = "-"
		}
		rows = append(rows, []string{kindAndNameIn(*c.object, usualNamespace(shown.Objects[0].ObjectReference)), was, c.now})
	}
	printf(cmd, "\n")
	if len(rows) > 1 {
		for _, line := range layOut(pageWidth(cmd), rows, tableWidth-24, 10) {
			printf(cmd, "%s\n", line)
		}
	}
	if hidden != "" {
		printf(cmd, "%s\n", hidden)
	}
}

// delete deletes the targets that were shown, and waits until they are gone.
func (d *deletion) delete(cmd *cobra.Command, r *reviewer, shown ownership.DeletionPreviewStatus) error {
	client, err := metadata.NewForConfig(r.config)
	if err != nil {
		return err
	}
	progress := newProgressLine(cmd.ErrOrStderr())
	defer progress.clear()
	run := &deleting{
		shown: shown, policy: policies[d.cascade], clock: clock.RealClock{},
		preview: func(ctx context.Context, spec ownership.DeletionPreviewSpec) (ownership.DeletionPreviewStatus, error) {
			review, err := createPreview(ctx, r, spec)
			return review.Status, err
		},
		remove: func(ctx context.Context, ref ownership.ObjectReference, options metav1.DeleteOptions) error {
			return r.remove(ctx, client, ref, options)
		},
		progress: func(ref ownership.ObjectReference, number, of int) {
			progress.show(fmt.Sprintf("deleting %s (%d of %d)", kindAndName(ref), number, of))
		},
	}
	err = run.run(cmd.Context())
	var changed *stopped
	if errors.As(err, &changed) {
		progress.clear()
		printChanges(cmd, shown, changed.changes)
	}
	if err != nil || !d.wait {
		return err
	}
	targets := targetsOf(shown)
	for _, target := range targets {
		if err := r.awaitGone(cmd.Context(), client, target.ObjectReference, progress); err != nil {
			return err
		}
	}
	progress.clear()
	printf(cmd, "%s gone\n", plural(len(targets), "object"))
	return nil
}

// remove deletes an object. It is no error if the object is already gone, even if another object
// has its name.
func (r *reviewer) remove(ctx context.Context, client metadata.Interface, ref ownership.ObjectReference, options metav1.DeleteOptions) error {
	objects, err := r.resource(client, ref)
	if err != nil {
		return err
	}
	err = objects.Delete(ctx, ref.Name, options)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if apierrors.IsConflict(err) {
		if same, getErr := getSame(ctx, objects, ref); getErr == nil && same == nil {
			return nil
		}
	}
	return err
}

// resource returns the client for the resource and namespace of ref.
func (r *reviewer) resource(client metadata.Interface, ref ownership.ObjectReference) (metadata.ResourceInterface, error) {
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	return client.Resource(mapping.Resource).Namespace(ref.Namespace), nil
}

// awaitGone waits until an object is gone, or another one has its name.
func (r *reviewer) awaitGone(ctx context.Context, client metadata.Interface, ref ownership.ObjectReference, progress *progressLine) error {
	objects, err := r.resource(client, ref)
	if err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		object, err := getSame(ctx, objects, ref)
		if object != nil {
			progress.show(fmt.Sprintf("waiting for %s to go%s", kindAndName(ref), finalizersNote(object.Finalizers)))
		}
		return object == nil && err == nil, err
	})
}

// getSame returns the object with the UID of ref, or nil if it is gone.
func getSame(ctx context.Context, objects metadata.ResourceInterface, ref ownership.ObjectReference) (*metav1.PartialObjectMetadata, error) {
	object, err := objects.Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && object.UID != ref.UID {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return object, nil
}

func finalizersNote(finalizers []string) string {
	if len(finalizers) == 0 {
		return ""
	}
	return ": " + strings.Join(finalizers, ", ")
}
