// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/deletion"
)

// generations is the number of levels of owners in which cascade searches. Usually the direct owner
// is being deleted, because operators proceed from owners to dependents.
const generations = 4

// cascade returns the nearest owners that were being deleted when a client, rather than the garbage
// collector, deleted an object: the client deleted it because of them.
func (e *explanation) cascade(ctx context.Context, record deletion.Record) []metav1.OwnerReference {
	seen := map[types.UID]bool{}
	owners := record.References
	for range generations {
		var begun, above []metav1.OwnerReference
		for _, ref := range owners {
			if seen[ref.UID] {
				continue
			}
			seen[ref.UID] = true
			was := e.before(ctx, ref, record)
			if was.begun && record.Follows(was.policy) {
				begun = append(begun, ref)
			}
			above = append(above, was.owners...)
		}
		if len(begun) > 0 {
			return begun
		}
		owners = above
	}
	return nil
}

// formerOwner is the state of an owner when a dependent was deleted.
type formerOwner struct {
	// begun is true if the owner was deleted or being deleted, with the given policy.
	begun  bool
	policy metav1.DeletionPropagation
	owners []metav1.OwnerReference
}

// before returns the state of an owner just before a recorded deletion.
func (e *explanation) before(ctx context.Context, ref metav1.OwnerReference, record deletion.Record) formerOwner {
	r, err := e.servedOrFormer(ctx, ref.APIVersion, ref.Kind)
	if err != nil {
		return formerOwner{}
	}
	at := deletion.Place{Resource: r.GroupResource(), Namespace: record.Namespace, Name: ref.Name}
	if !r.Namespaced {
		at.Namespace = ""
	}
	known, err := deletion.Recorded(ctx, e.Records, at, ref.UID)
	if err == nil && len(known) > 0 && known[0].Record.Precedes(record) {
		return formerOwner{begun: true, policy: known[0].Record.Policy}
	}
	was, err := e.History.At(ctx, at.Resource, at.Namespace, at.Name, record.Revision-1)
	switch {
	case apierrors.IsNotFound(err) || err == nil && was.GetUID() != ref.UID:
		return formerOwner{begun: true} // The owner was deleted before the collector handled the object.
	case err != nil:
		return formerOwner{}
	}
	return formerOwner{begun: was.GetDeletionTimestamp() != nil, policy: deletion.PolicyOf(was.GetFinalizers()), owners: was.GetOwnerReferences()}
}
