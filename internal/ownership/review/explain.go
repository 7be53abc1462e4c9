// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

func validateExplanation(review *ownership.OwnershipExplanation) field.ErrorList {
	return validateObject(review.Spec.Object, field.NewPath("spec", "object"))
}

// explain tells why an object is there, or gone.
func (q *question) explain(ctx context.Context, ref ownership.ObjectReference) (ownership.OwnershipExplanationStatus, error) {
	r, err := q.served(ref.APIVersion, ref.Kind)
	if err != nil {
		return ownership.OwnershipExplanationStatus{}, err
	}
	// Refusals come before anything is looked for: whether an object ever was is told to
	// those alone who may get it.
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

// explanation is one that is being given.
type explanation struct {
	*question
	resource graph.Resource
	ref      ownership.ObjectReference
	status   ownership.OwnershipExplanationStatus
}

// living explains an object that is there.
func (e *explanation) living(ctx context.Context, object graph.Object) (ownership.OwnershipExplanationStatus, error) {
	e.status.Object, e.status.State = referenceOf(object), ownership.StateLiving
	e.status.Owners = e.owners(ctx, object.Namespace, object.Owners)
	records, err := e.recorded(ctx, e.resource, object.Namespace, object.Name)
	if err != nil {
		return e.status, err
	}
	begun := ownership.ExplainedDeletion{Object: e.status.Object, By: ownership.DeletionAgent{Kind: ownership.AgentUnknown}}
	for _, r := range records {
		if r.UID == object.UID {
			begun = e.deletion(e.resource, r)
			continue
		}
		e.status.Earlier = append(e.status.Earlier, e.deletion(e.resource, r))
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

// gone explains an object that is not there any more.
func (e *explanation) gone(ctx context.Context) (ownership.OwnershipExplanationStatus, error) {
	ended, err := e.endings(ctx, e.resource, e.ref)
	if err != nil {
		return e.status, err
	}
	if len(ended) == 0 {
		unknown := apierrors.NewNotFound(e.resource.GroupResource(), e.ref.Name)
		unknown.ErrStatus.Message += ", and nothing is known of one that was deleted"
		return e.status, unknown
	}
	e.status.Object, e.status.State, e.status.Earlier = ended[0].Object, ownership.StateGone, ended[1:]
	return e.status, e.follow(ctx, ended[0])
}

// endings are the deletions of those that a reference may mean, the latest first: what is
// recorded, or else what the history shows.
func (e *explanation) endings(ctx context.Context, r graph.Resource, ref ownership.ObjectReference) ([]ownership.ExplainedDeletion, error) {
	records, err := e.recorded(ctx, r, ref.Namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	var found []ownership.ExplainedDeletion
	for _, record := range records {
		if ref.UID == "" || ref.UID == record.UID {
			found = append(found, e.deletion(r, record))
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	end, err := e.History.LastDeletion(ctx, r.GroupResource(), ref.Namespace, ref.Name)
	if apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) || err == nil && ref.UID != "" && ref.UID != end.Object.GetUID() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []ownership.ExplainedDeletion{e.unrecorded(r, end)}, nil
}

// recorded returns the records of the objects that had a name: of each the first, which is of
// whoever began the deletion; those of the latest object first.
func (e *explanation) recorded(ctx context.Context, r graph.Resource, namespace, name string) ([]deletion.Record, error) {
	records, err := e.Records.Of(ctx, r.GroupResource(), namespace, name)
	if err != nil {
		return nil, err
	}
	met := map[types.UID]bool{}
	var first []deletion.Record
	for _, record := range slices.Backward(records) {
		if !met[record.UID] {
			met[record.UID] = true
			first = append(first, record)
		}
	}
	slices.Reverse(first)
	return first, nil
}

// chainLimit is how many deletions are told of at most.
const chainLimit = 100

// follow tells of a deletion, and of those that led to it.
func (e *explanation) follow(ctx context.Context, first ownership.ExplainedDeletion) error {
	e.status.Deletions = []ownership.ExplainedDeletion{first}
	met := map[ownership.ObjectReference]bool{first.Object: true}
	for i := 0; i < len(e.status.Deletions) && i < chainLimit; i++ {
		for _, cause := range e.status.Deletions[i].Because {
			if met[cause] {
				continue
			}
			met[cause] = true
			if err := e.followTo(ctx, cause); err != nil {
				return err
			}
		}
	}
	return nil
}

// followTo tells of the deletion of a cause, if the caller may read it.
func (e *explanation) followTo(ctx context.Context, cause ownership.ObjectReference) error {
	unknown := ownership.ExplainedDeletion{Object: cause, By: ownership.DeletionAgent{Kind: ownership.AgentUnknown}}
	r, err := e.served(cause.APIVersion, cause.Kind)
	if err != nil {
		e.status.Deletions = append(e.status.Deletions, unknown)
		return nil
	}
	if !e.access.mayGet(ctx, r, cause.Namespace, cause.Name) {
		e.status.Hidden++
		return nil
	}
	ended, err := e.endings(ctx, r, cause)
	if err != nil {
		return err
	}
	ended = append(ended, unknown)
	e.status.Deletions = append(e.status.Deletions, ended[0])
	return nil
}
