// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package review implements the reviews of ownership.kindred.dev: previews of deletions, trees,
// explanations, lint and repair, undeletions and the history of deletions.
//
// Reviews are answered from the garbage collector's graph. A preview predicts what the collector
// will do, because it applies the same rules to the same observations. If a review needs more
// than metadata, such as a status, it reads the objects from the API.
//
// The collector can read everything; the caller cannot. So a review shows an object only if the
// caller may get it, and an error about an object that the spec names is the error that a GET of
// the object would return.
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

// Collector gives access to the garbage collector's graph.
type Collector interface {
	// View calls f with the graph, which is locked during the call.
	View(f func(*graph.Graph))
	// Lookup performs a Lookup action of the graph.
	Lookup(ctx context.Context, action graph.Action) graph.Outcome
}

// The user agents of writes on behalf of callers.
const (
	repairAgent   = "ownership-repair"
	undeleteAgent = "ownership-undelete"
)

// Sources are the data sources of reviews. Metadata, Objects and Discovery may read everything.
type Sources struct {
	Collector Collector
	Metadata  metadata.Interface
	Objects   dynamic.Interface
	Discovery discovery.ServerResourcesInterface
	// Records and History have the deletions and the past states of objects.
	Records deletion.Records
	History deletion.History
	// ConfigFor returns a client configuration that acts as the caller, with a user agent that
	// identifies the review in the audit log.
	ConfigFor func(caller user.Info, agent string) *clientrest.Config
	// Seen reports whether the controllers' caches have reached a resource version of a kind.
	// From then on, no controller recreates an object only because its cache lacks it. known is
	// false for a kind that no controller caches; such a kind counts as seen.
	Seen  func(kind schema.GroupKind, resourceVersion string) (seen, known bool)
	Clock clock.WithTicker
}

// Reviews answers reviews once it is connected to its sources. A nil Reviews refuses all.
type Reviews struct {
	sources atomic.Pointer[Sources]
}

// Connect sets the sources. Call it when the collector has listed all objects. The API is served
// before that; until then, reviews are refused.
func (r *Reviews) Connect(s Sources) { r.sources.Store(&s) }

// Disconnect refuses reviews from now on: the collector stops.
func (r *Reviews) Disconnect() { r.sources.Store(nil) }

func (r *Reviews) connected() *Sources {
	if r == nil {
		return nil
	}
	return r.sources.Load()
}

// Policy decides what the caller may read, and the default propagation policy of deletions.
type Policy struct {
	Authorizer authorizer.Authorizer
	// Orphans reports whether deletions of a resource's objects orphan dependents by default, which
	// may depend on the version.
	Orphans func(resource schema.GroupVersionResource) bool
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
		return nil, apierrors.NewServiceUnavailable("the cluster is starting, and the garbage collector has not listed all objects yet; try again")
	}
	q := &question{Sources: *sources, policy: e.policy, access: newAccess(e.policy.Authorizer, caller)}
	q.dryRun = options != nil && len(options.DryRun) > 0
	return review, e.answer(ctx, q, review)
}

// question is a review in progress.
type question struct {
	Sources
	policy Policy
	access *access
	// dryRun is true if the request itself is a dry run.
	dryRun bool
	// former caches the kinds whose definitions were deleted; it is read on first use.
	former struct {
		read  bool
		kinds []formerKind
	}
}
