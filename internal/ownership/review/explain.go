// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

func validateExplanation(review *ownership.OwnershipExplanation) field.ErrorList {
	object, path := review.Spec.Object, field.NewPath("spec", "object")
	if review.Spec.Type == "" {
		return validateObject(object, path)
	}
	var errs field.ErrorList
	if object.APIVersion != "" {
		errs = append(errs, field.Forbidden(path.Child("apiVersion"), "must not be set together with type"))
	}
	if object.Kind != "" {
		errs = append(errs, field.Forbidden(path.Child("kind"), "must not be set together with type"))
	}
	if object.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	return errs
}

// explain explains why an object exists or was deleted.
func (q *question) explain(ctx context.Context, spec *ownership.OwnershipExplanationSpec) (ownership.OwnershipExplanationStatus, error) {
	r, err := q.explained(ctx, spec)
	if err != nil {
		return ownership.OwnershipExplanationStatus{}, err
	}
	ref := spec.Object
	if spec.Type != "" {
		ref.APIVersion, ref.Kind = r.GroupVersion().String(), r.Kind
		if !r.Namespaced {
			ref.Namespace = ""
		}
	}
	if !r.Watched {
		return q.unserved(ctx, r, ref)
	}
	// Check access before reading: only callers who may get an object may learn whether it ever
	// existed.
	object, err := q.find(ctx, ref)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return ownership.OwnershipExplanationStatus{}, err
	}
	e := &explanation{question: q, resource: r, ref: ref}
	if err != nil {
		return e.gone(ctx)
	}
	return e.living(ctx, object)
}

// unserved explains an object of a kind whose definition was deleted.
func (q *question) unserved(ctx context.Context, r graph.Resource, ref ownership.ObjectReference) (ownership.OwnershipExplanationStatus, error) {
	if err := inPlace(r, ref.Namespace, true); err != nil {
		return ownership.OwnershipExplanationStatus{}, err
	}
	if err := q.access.require(ctx, "get", r, ref.Namespace, ref.Name); err != nil {
		return ownership.OwnershipExplanationStatus{}, err
	}
	e := &explanation{question: q, resource: r, ref: ref}
	return e.gone(ctx)
}

// explanation is an explanation in progress.
type explanation struct {
	*question
	resource graph.Resource
	ref      ownership.ObjectReference
	status   ownership.OwnershipExplanationStatus
	hidden   map[ownership.ObjectReference]bool
}

// hide counts an object that the caller may not read.
func (e *explanation) hide(ref ownership.ObjectReference) {
	if e.hidden == nil {
		e.hidden = map[ownership.ObjectReference]bool{}
	}
	e.hidden[ref] = true
	e.status.Hidden = int32(len(e.hidden))
}

// living explains an object that exists.
func (e *explanation) living(ctx context.Context, object graph.Object) (ownership.OwnershipExplanationStatus, error) {
	e.status.Object, e.status.State = referenceOf(object), ownership.StateLiving
	e.status.Owners = e.owners(ctx, object.Namespace, object.Owners)
	hold, err := e.holdOf(ctx, object)
	if err != nil {
		return e.status, err
	}
	e.status.Hold = hold
	endings, err := e.endings(ctx, e.resource, e.ref.Namespace, e.ref.Name, "")
	if err != nil {
		return e.status, err
	}
	begun := ownership.ExplainedDeletion{Object: e.status.Object, By: ownership.DeletionAgent{Kind: ownership.AgentUnknown}}
	for _, ending := range endings {
		if ending.Record.UID == object.UID {
			begun = e.ended(ctx, e.resource, ending)
			continue
		}
		e.status.Earlier = append(e.status.Earlier, e.ended(ctx, e.resource, ending))
	}
	if !object.Deleting {
		return e.status, nil
	}
	e.status.State = ownership.StateTerminating
	if err := e.waits(ctx, object); err != nil {
		return e.status, err
	}
	return e.status, e.follow(ctx, begun)
}

// gone explains an object that was deleted.
func (e *explanation) gone(ctx context.Context) (ownership.OwnershipExplanationStatus, error) {
	endings, err := e.endings(ctx, e.resource, e.ref.Namespace, e.ref.Name, e.ref.UID)
	if err != nil {
		return e.status, err
	}
	if len(endings) == 0 {
		unknown := apierrors.NewNotFound(e.resource.GroupResource(), e.ref.Name)
		unknown.ErrStatus.Message += ", and no deleted object of this name is known"
		return e.status, unknown
	}
	for _, earlier := range endings[1:] {
		e.status.Earlier = append(e.status.Earlier, e.ended(ctx, e.resource, earlier))
	}
	last := e.ended(ctx, e.resource, endings[0])
	e.status.Object, e.status.State = last.Object, ownership.StateGone
	return e.status, e.follow(ctx, last)
}

// endings returns the deletions of the objects that had a name, the latest first. If the history
// cannot be read, it returns the recorded ones, and adds a message that there may be more.
func (e *explanation) endings(ctx context.Context, r graph.Resource, namespace, name string, uid types.UID) ([]deletion.Ending, error) {
	at := deletion.Place{Resource: r.GroupResource(), Namespace: namespace, Name: name}
	endings, err := deletion.Endings(ctx, e.Records, e.History, at, uid)
	switch {
	case apierrors.IsBadRequest(err): // Another API server stores the kind, or it is no longer served.
		return endings, nil
	case err != nil && len(endings) > 0 && ctx.Err() == nil:
		e.status.Messages = append(e.status.Messages, fmt.Sprintf("it is not known whether another %s %s was deleted later: %v", r.Kind, name, err))
		return endings, nil
	}
	return endings, err
}

// chainLimit is the maximum number of deletions in an explanation.
const chainLimit = 100

// follow adds a deletion and the chain of deletions that caused it.
func (e *explanation) follow(ctx context.Context, first ownership.ExplainedDeletion) error {
	e.status.Deletions = []ownership.ExplainedDeletion{first}
	seen := map[ownership.ObjectReference]bool{first.Object: true}
	for i := 0; i < len(e.status.Deletions) && i < chainLimit; i++ {
		for _, cause := range e.status.Deletions[i].Because {
			if seen[cause] {
				continue
			}
			seen[cause] = true
			if err := e.followTo(ctx, cause); err != nil {
				return err
			}
		}
	}
	inTurn(e.status.Deletions)
	return nil
}

// inTurn corrects the times of unrecorded deletions, which are known only to the minute: a deletion
// cannot be earlier than its cause. Causes come after their effects in deletions.
func inTurn(deletions []ownership.ExplainedDeletion) {
	times := map[ownership.ObjectReference]*metav1.MicroTime{}
	for i := range slices.Backward(deletions) {
		d := &deletions[i]
		for _, cause := range d.Because {
			if began := times[cause]; d.By.Kind == ownership.AgentUnknown && began != nil && (d.Time == nil || d.Time.Before(began)) {
				d.Time = began
			}
		}
		times[d.Object] = d.Time
	}
}

// followTo adds the deletion of a cause, if the caller may read the object.
func (e *explanation) followTo(ctx context.Context, cause ownership.ObjectReference) error {
	explained := ownership.ExplainedDeletion{Object: cause, By: ownership.DeletionAgent{Kind: ownership.AgentUnknown}}
	r, err := e.servedOrFormer(ctx, cause.APIVersion, cause.Kind)
	if err != nil {
		e.status.Deletions = append(e.status.Deletions, explained)
		return nil
	}
	if !e.access.mayGet(ctx, r, cause.Namespace, cause.Name) {
		e.hide(cause)
		return nil
	}
	endings, err := e.endings(ctx, r, cause.Namespace, cause.Name, cause.UID)
	if err != nil {
		return err
	}
	if len(endings) > 0 {
		explained = e.ended(ctx, r, endings[0])
	}
	e.status.Deletions = append(e.status.Deletions, explained)
	return nil
}
