// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package review answers the reviews of ownership.kindred.dev: what a deletion would do, who
// owns whom, which owner references are wrong, and why an object is there, or gone; repairs
// what a review found; and brings back what was deleted.
//
// What is known comes from the garbage collector's graph: a review says what the collector
// would do, because it asks the same rules about the same observations. Objects that an
// answer needs more of than metadata (their status) are read from the API.
//
// The collector sees everything; the caller may not. So each object is shown only to those
// who may get it themselves, and an object that a question names is answered as the API would
// answer its GET.
package review

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// Collector is what the garbage collector knows.
type Collector interface {
	// View calls f with the graph, which is locked meanwhile.
	View(f func(*graph.Graph))
	// Lookup performs a Lookup of the graph's.
	Lookup(ctx context.Context, action graph.Action) graph.Outcome
}

// The user agents of what is written on behalf of callers.
const (
	repairAgent   = "ownership-repair"
	undeleteAgent = "ownership-undelete"
)

// Sources are what answers are made from. Metadata, Objects and Discovery read as one who may
// read everything.
type Sources struct {
	Collector Collector
	Metadata  metadata.Interface
	Objects   dynamic.Interface
	Discovery discovery.ServerResourcesInterface
	// Records and History tell of what is gone.
	Records deletion.Records
	History deletion.History
	// ConfigFor is how a caller reaches the API by an agent: what is written is written as who
	// asked for it, and an audit tells by the user agent what was asked for.
	ConfigFor func(caller user.Info, agent string) *clientrest.Config
	// Seen tells whether the controllers' caches show what was written of a kind up to a
	// resource version: from then on, no controller makes anew what it has not seen yet.
	// Known is false of a kind that no controller keeps; such a kind counts as seen.
	Seen  func(kind schema.GroupKind, resourceVersion string) (seen, known bool)
	Clock clock.WithTicker
}

// Reviews answers reviews, once it was given what answers are made from. Nil refuses all.
type Reviews struct {
	sources atomic.Pointer[Sources]
}

// Connect gives the Reviews what answers are made from. The API is served before, and
// reviews are refused until then.
func (r *Reviews) Connect(s Sources) { r.sources.Store(&s) }

func (r *Reviews) connected() *Sources {
	if r == nil {
		return nil
	}
	return r.sources.Load()
}

// Policy decides what the caller may see, and what a deletion does that names no policy.
type Policy struct {
	Authorizer authorizer.Authorizer
	// Orphans tells whether a deletion lets the dependents of a resource's objects go unless
	// it asks for something else.
	Orphans func(ctx context.Context, resource schema.GroupResource) bool
}

// DeletionPreviews is the endpoint of deletionpreviews.
func (r *Reviews) DeletionPreviews(p Policy) rest.Storage {
	return &endpoint[*ownership.DeletionPreview]{
		reviews: r, policy: p, singular: "deletionpreview",
		empty:    func() *ownership.DeletionPreview { return &ownership.DeletionPreview{} },
		validate: validatePreview,
		answer: func(ctx context.Context, q *question, review *ownership.DeletionPreview) (err error) {
			review.Status, err = q.preview(ctx, &review.Spec)
			return err
		},
	}
}

// OwnershipTrees is the endpoint of ownershiptrees.
func (r *Reviews) OwnershipTrees(p Policy) rest.Storage {
	return &endpoint[*ownership.OwnershipTree]{
		reviews: r, policy: p, singular: "ownershiptree",
		empty:    func() *ownership.OwnershipTree { return &ownership.OwnershipTree{} },
		validate: validateTree,
		answer: func(ctx context.Context, q *question, review *ownership.OwnershipTree) (err error) {
			review.Status, err = q.tree(ctx, &review.Spec)
			return err
		},
	}
}

// OwnershipExplanations is the endpoint of ownershipexplanations.
func (r *Reviews) OwnershipExplanations(p Policy) rest.Storage {
	return &endpoint[*ownership.OwnershipExplanation]{
		reviews: r, policy: p, singular: "ownershipexplanation",
		empty:    func() *ownership.OwnershipExplanation { return &ownership.OwnershipExplanation{} },
		validate: validateExplanation,
		answer: func(ctx context.Context, q *question, review *ownership.OwnershipExplanation) (err error) {
			review.Status, err = q.explain(ctx, &review.Spec)
			return err
		},
	}
}

// OwnershipLints is the endpoint of ownershiplints.
func (r *Reviews) OwnershipLints(p Policy) rest.Storage {
	return &endpoint[*ownership.OwnershipLint]{
		reviews: r, policy: p, singular: "ownershiplint",
		empty:    func() *ownership.OwnershipLint { return &ownership.OwnershipLint{} },
		validate: validateLint,
		answer: func(ctx context.Context, q *question, review *ownership.OwnershipLint) (err error) {
			review.Status, err = q.lint(ctx, &review.Spec)
			return err
		},
	}
}

// OwnershipRepairs is the endpoint of ownershiprepairs.
func (r *Reviews) OwnershipRepairs(p Policy) rest.Storage {
	return &endpoint[*ownership.OwnershipRepair]{
		reviews: r, policy: p, singular: "ownershiprepair",
		empty:    func() *ownership.OwnershipRepair { return &ownership.OwnershipRepair{} },
		validate: validateRepair,
		answer: func(ctx context.Context, q *question, review *ownership.OwnershipRepair) (err error) {
			review.Status, err = q.repair(ctx, &review.Spec)
			return err
		},
	}
}

// Undeletions is the endpoint of undeletions.
func (r *Reviews) Undeletions(p Policy) rest.Storage {
	return &endpoint[*ownership.Undeletion]{
		reviews: r, policy: p, singular: "undeletion",
		empty:    func() *ownership.Undeletion { return &ownership.Undeletion{} },
		validate: validateUndeletion,
		answer: func(ctx context.Context, q *question, review *ownership.Undeletion) (err error) {
			review.Status, err = q.undelete(ctx, &review.Spec)
			return err
		},
	}
}

// DeletionHistories is the endpoint of deletionhistories.
func (r *Reviews) DeletionHistories(p Policy) rest.Storage {
	return &endpoint[*ownership.DeletionHistory]{
		reviews: r, policy: p, singular: "deletionhistory",
		empty:    func() *ownership.DeletionHistory { return &ownership.DeletionHistory{} },
		validate: validateHistory,
		answer: func(ctx context.Context, q *question, review *ownership.DeletionHistory) (err error) {
			review.Status, err = q.history(ctx, &review.Spec)
			return err
		},
	}
}

// endpoint answers one kind of review.
type endpoint[T runtime.Object] struct {
	reviews  *Reviews
	policy   Policy
	singular string
	empty    func() T
	validate func(T) field.ErrorList
	// answer fills in the status.
	answer func(ctx context.Context, q *question, review T) error
}

var _ rest.Creater = &endpoint[*ownership.DeletionPreview]{}

func (e *endpoint[T]) New() runtime.Object     { return e.empty() }
func (e *endpoint[T]) Destroy()                {}
func (e *endpoint[T]) NamespaceScoped() bool   { return false }
func (e *endpoint[T]) GetSingularName() string { return e.singular }

func (e *endpoint[T]) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	review, ok := obj.(T)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a review of this kind: %T", obj))
	}
	if errs := e.validate(review); len(errs) > 0 {
		return nil, apierrors.NewInvalid(review.GetObjectKind().GroupVersionKind().GroupKind(), "", errs)
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	sources := e.reviews.connected()
	if sources == nil {
		return nil, apierrors.NewServiceUnavailable("the garbage collector has not started yet, and nothing is known of owners")
	}
	q := &question{Sources: *sources, policy: e.policy, access: newAccess(e.policy.Authorizer, caller)}
	q.dryRun = options != nil && len(options.DryRun) > 0
	return review, e.answer(ctx, q, review)
}

// question is a review that is being answered.
type question struct {
	Sources
	policy Policy
	access *access
	// dryRun tells that the request itself is one: it must change nothing.
	dryRun bool
	// former are the kinds that were served once; they are read when they are asked for.
	former struct {
		read  bool
		kinds []formerKind
	}
}
