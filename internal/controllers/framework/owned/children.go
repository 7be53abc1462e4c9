// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Children finds the children of one kind: list, overlay, claim.
type Children[T client.Object] struct {
	// Kind is the owner's kind, as controller references name it.
	Kind schema.GroupVersionKind
	// Matches, if set, is a condition beside the selector of the owner.
	Matches func(T) bool
	// Finalizer, if set, is a finalizer of all children.
	Finalizer string
	// Client writes; Live reads from the API.
	Client client.Client
	Live   client.Reader
	// Ledger holds the writes that are laid over the cached list.
	Ledger *Ledger[T]
	// List lists objects of the children's kind, whose cache has ControllerIndex.
	List func(context.Context, client.Reader, ...client.ListOption) ([]T, error)
}

// Find returns the children of an owner after adoption and release. They must not be modified.
func (c Children[T]) Find(ctx context.Context, owner client.Object, selector labels.Selector) ([]T, error) {
	found, err := c.Candidates(ctx, owner, selector)
	if err != nil {
		return nil, err
	}
	return c.Claim(ctx, owner, selector, found)
}

// Candidates returns the objects that the owner controls and the orphans that it selects,
// as fresh as the controller's last write.
func (c Children[T]) Candidates(ctx context.Context, owner client.Object, selector labels.Selector) ([]T, error) {
	return c.Ledger.Read(owner, func() ([]T, error) {
		controlled, err := c.List(ctx, c.Client, By(owner.GetNamespace(), string(owner.GetUID()))...)
		if err != nil {
			return nil, err
		}
		orphans, err := c.List(ctx, c.Client, append(By(owner.GetNamespace(), Orphan), client.MatchingLabelsSelector{Selector: selector})...)
		return append(controlled, orphans...), err
	})
}

// Claim adopts and releases candidates, and returns those that belong to the owner.
func (c Children[T]) Claim(ctx context.Context, owner client.Object, selector labels.Selector, candidates []T) ([]T, error) {
	return ControllerRefManager[T]{
		Controller: owner, Kind: c.Kind, Selector: selector, Matches: c.Matches, Finalizer: c.Finalizer,
		Client: c.Client, Live: c.Live, Ledger: c.Ledger,
		Copy: func(child T) T { return child.DeepCopyObject().(T) },
	}.Claim(ctx, candidates)
}

// Pointers returns pointers to the items of a list.
func Pointers[E any](items []E) []*E {
	out := make([]*E, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
