// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// Hooks are called around a write, for resources that are allocated before a write and
// released after it. A Begin hook runs before the object is validated. It returns a function
// to call with the outcome of the write, or nil.
//
// The hooks of k8s.io/apiserver report success of an update that has only been validated. A
// Finish gets the answer of the store instead. A write that is retried after a conflict
// finishes the first attempt as Refused and begins again.
type Hooks[T Object] struct {
	BeginCreate func(ctx context.Context, obj T, dryRun bool) (Finish, error)
	BeginUpdate func(ctx context.Context, obj, old T, dryRun bool) (Finish, error)
	AfterDelete func(obj T, dryRun bool)
	// Decorate adds fields that are not stored to an object that is read.
	Decorate func(obj T)
}

// Finish ends what a Begin hook began.
type Finish func(ctx context.Context, outcome Outcome)

// Outcome is the outcome of a write.
type Outcome int

const (
	// Refused: nothing was written.
	Refused Outcome = iota
	// Written: the object was stored.
	Written
	// Unknown: the store gave no answer, as after a timeout. The object may have been
	// stored, so what was allocated for it must be kept.
	Unknown
)

// outcomeOf returns the outcome for the error of a write. A client error or a conflict means
// Refused; a server error may have occurred after the write.
func outcomeOf(err error) Outcome {
	if err == nil {
		return Written
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Unknown
	}
	if code := status.Status().Code; code >= http.StatusBadRequest && code < http.StatusInternalServerError {
		return Refused
	}
	return Unknown
}

// begun holds the Finish of the latest attempt of a write.
type begun struct{ finish Finish }

type begunKey struct{}

func (b *begun) settle(ctx context.Context, outcome Outcome) {
	if b.finish != nil {
		b.finish(ctx, outcome)
		b.finish = nil
	}
}

// begin runs a Begin hook for one attempt of the write that ctx belongs to.
func begin(ctx context.Context, hook func() (Finish, error)) (registry.FinishFunc, error) {
	nothing := func(context.Context, bool) {}
	attempt, ok := ctx.Value(begunKey{}).(*begun)
	if !ok {
		return nil, apierrors.NewInternalError(errors.New("a hook was called outside of a write"))
	}
	attempt.settle(ctx, Refused)
	finish, err := hook()
	attempt.finish = finish
	return nothing, err
}

// Create creates an object and finishes its hooks.
func (s *Store) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	attempt := &begun{}
	ctx = context.WithValue(ctx, begunKey{}, attempt)
	out, err := s.Store.Create(ctx, obj, validate, options)
	attempt.settle(ctx, outcomeOf(err))
	return out, err
}

// Update updates an object and finishes its hooks.
func (s *Store) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	attempt := &begun{}
	ctx = context.WithValue(ctx, begunKey{}, attempt)
	out, created, err := s.Store.Update(ctx, name, info, createValidation, updateValidation, forceAllowCreate, options)
	attempt.settle(ctx, outcomeOf(err))
	return out, created, err
}

func (h Hooks[T]) install(store *registry.Store) {
	if h.BeginCreate != nil {
		store.BeginCreate = func(ctx context.Context, obj runtime.Object, options *metav1.CreateOptions) (registry.FinishFunc, error) {
			return begin(ctx, func() (Finish, error) { return h.BeginCreate(ctx, obj.(T), dryrun.IsDryRun(options.DryRun)) })
		}
	}
	if h.BeginUpdate != nil {
		store.BeginUpdate = func(ctx context.Context, obj, old runtime.Object, options *metav1.UpdateOptions) (registry.FinishFunc, error) {
			return begin(ctx, func() (Finish, error) {
				return h.BeginUpdate(ctx, obj.(T), old.(T), dryrun.IsDryRun(options.DryRun))
			})
		}
	}
	if h.AfterDelete != nil {
		store.AfterDelete = func(obj runtime.Object, options *metav1.DeleteOptions) {
			h.AfterDelete(obj.(T), dryrun.IsDryRun(options.DryRun))
		}
	}
	if h.Decorate != nil {
		store.Decorator = func(object runtime.Object) { decorate(object, h.Decorate) }
	}
}

// decorate calls complete for an object, or for each object of a list.
func decorate[T Object](object runtime.Object, complete func(T)) {
	if obj, ok := object.(T); ok {
		complete(obj)
		return
	}
	if !meta.IsListType(object) {
		return
	}
	_ = meta.EachListItem(object, func(item runtime.Object) error {
		if obj, ok := item.(T); ok {
			complete(obj)
		}
		return nil
	})
}
