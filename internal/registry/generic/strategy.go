// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// strategy implements creation, update and deletion of objects of any kind, by the kind's
// declaration and the API conventions.
type strategy[T Object] struct {
	rest.DeclarativeValidation
	names.NameGenerator
	kind *Kind[T]
	// declared holds the features that declared validations depend on.
	declared map[string]bool
	gangs    bool
	// versions holds the versions of the kind, for GetResetFields.
	versions []schema.GroupVersion
}

var (
	_ rest.RESTCreateUpdateStrategy        = strategy[*metav1.PartialObjectMetadata]{}
	_ rest.RESTGracefulDeleteStrategy      = strategy[*metav1.PartialObjectMetadata]{}
	_ rest.GarbageCollectionDeleteStrategy = strategy[*metav1.PartialObjectMetadata]{}
	_ rest.ResetFieldsStrategy             = strategy[*metav1.PartialObjectMetadata]{}
)

func (s strategy[T]) NamespaceScoped() bool                    { return !s.kind.ClusterScoped }
func (s strategy[T]) AllowCreateOnUpdate(context.Context) bool { return s.kind.CreateOnUpdate }
func (s strategy[T]) AllowUnconditionalUpdate(context.Context) bool {
	return !s.kind.RequireResourceVersion
}
func (s strategy[T]) Canonicalize(runtime.Object) {}

// prepare calls the kind's Prepare.
func (s strategy[T]) prepare(ctx context.Context, prepare func(ctx context.Context, obj, old T), obj, old T) {
	if prepare == nil {
		return
	}
	if s.gangs {
		ctx = WithGangs(ctx)
	}
	prepare(ctx, obj, old)
}

func (s strategy[T]) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	o := obj.(T)
	if s.kind.Status != nil && !s.kind.CreatedWithStatus {
		setZero(s.kind.Status(o))
	}
	if s.kind.countsGenerations() {
		o.SetGeneration(1)
	}
	var none T
	s.prepare(ctx, s.kind.Prepare, o, none)
}

func (s strategy[T]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	o, before := obj.(T), old.(T)
	if s.kind.Status != nil {
		assign(s.kind.Status(o), s.kind.Status(before))
	}
	s.prepare(ctx, s.kind.Prepare, o, before)
	if s.kind.countsGenerations() && s.desireChanged(o, before) {
		o.SetGeneration(before.GetGeneration() + 1)
	}
}

func (k *Kind[T]) countsGenerations() bool {
	return k.Spec != nil && k.Generation != NoGeneration
}

// desireChanged reports whether a change increments the generation.
func (s strategy[T]) desireChanged(obj, old T) bool {
	if !apiequality.Semantic.DeepEqual(s.kind.Spec(obj), s.kind.Spec(old)) {
		return true
	}
	return s.kind.Generation == SpecAndAnnotations &&
		!apiequality.Semantic.DeepEqual(obj.GetAnnotations(), old.GetAnnotations())
}

func (s strategy[T]) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	c, o := &check.Checker{}, obj.(T)
	s.validateMeta(ctx, c, o)
	if s.kind.Validate != nil {
		s.kind.Validate(ctx, c, o)
	}
	return c.Errors()
}

func (s strategy[T]) looseMetadata(ctx context.Context) bool {
	return s.kind.Metadata.Loose != nil && s.kind.Metadata.Loose(ctx)
}

func (s strategy[T]) validateMeta(ctx context.Context, c *check.Checker, obj T) {
	if s.looseMetadata(ctx) {
		return // rest.BeforeCreate has checked the name
	}
	validName := s.kind.Metadata.ValidName
	if validName == nil {
		validName = validation.NameIsDNSSubdomain
	}
	c.Add(validation.ValidateObjectMetaAccessor(obj, !s.kind.ClusterScoped, validName, field.NewPath("metadata"))...)
	s.validateFinalizers(ctx, c, obj)
}

// validateMetaUpdate leaves the immutable fields of metadata to rest.BeforeUpdate, which checks
// them for every kind.
func (s strategy[T]) validateMetaUpdate(ctx context.Context, c *check.Checker, obj T) {
	if s.kind.Metadata.ValidateAsNew {
		s.validateMeta(ctx, c, obj)
		return
	}
	s.validateFinalizers(ctx, c, obj)
}

func (s strategy[T]) validateFinalizers(ctx context.Context, c *check.Checker, obj T) {
	if s.kind.Metadata.AnyFinalizer || s.looseMetadata(ctx) {
		return
	}
	for i, name := range obj.GetFinalizers() {
		c.FinalizerDomain(field.NewPath("metadata", "finalizers").Index(i), name)
	}
}

func (s strategy[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	c, o := &check.Checker{}, obj.(T)
	s.validateMetaUpdate(ctx, c, o)
	switch {
	case s.kind.ValidateUpdate != nil:
		s.kind.ValidateUpdate(ctx, c, o, old.(T))
	case s.kind.Validate != nil:
		s.kind.Validate(ctx, c, o)
	}
	return c.Errors()
}

func (s strategy[T]) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	var none T
	return s.warnings(ctx, obj.(T), none)
}

func (s strategy[T]) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	return s.warnings(ctx, obj.(T), old.(T))
}

func (s strategy[T]) warnings(ctx context.Context, obj, old T) []string {
	if s.kind.Warnings == nil {
		return nil
	}
	return s.kind.Warnings(ctx, obj, old)
}

func (s strategy[T]) DefaultGarbageCollectionPolicy(ctx context.Context) rest.GarbageCollectionPolicy {
	switch {
	case s.kind.Deletion.Unowned:
		return rest.Unsupported
	case s.kind.orphansByDefault(RequestVersion(ctx)):
		return rest.OrphanDependents
	}
	return rest.DeleteDependents
}

func (s strategy[T]) CheckGracefulDelete(ctx context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	return s.kind.Deletion.Grace != nil && s.kind.Deletion.Grace(ctx, obj.(T), options)
}

func (s strategy[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	names := s.kind.Resets
	if s.kind.Status != nil {
		names = append([]string{"status"}, names...)
	}
	if len(names) == 0 {
		return nil
	}
	return resetFields(s.versions, names...)
}

// updateStrategy is the strategy of a subresource that changes a part of the object.
type updateStrategy[T Object] struct {
	strategy[T]
	update Update[T]
}

func (s updateStrategy[T]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	s.prepare(ctx, s.update.Prepare, obj.(T), old.(T))
}

func (s updateStrategy[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	c, o := &check.Checker{}, obj.(T)
	s.validateFinalizers(ctx, c, o)
	if s.update.Validate != nil {
		s.update.Validate(ctx, c, o, old.(T))
	}
	return c.Errors()
}

func (s updateStrategy[T]) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	if s.update.Warnings == nil {
		return nil
	}
	return s.update.Warnings(ctx, obj.(T), old.(T))
}

// fields returns the fields that server-side apply may own through the subresource.
func (s updateStrategy[T]) fields() map[fieldpath.APIVersion]fieldpath.Filter {
	return fieldpath.NewExcludeFilterSetMap(resetFields(s.versions, s.update.Resets...))
}

// statusUpdate returns the declared StatusUpdate, extended to restore the spec.
func (k *Kind[T]) statusUpdate() Update[T] {
	update := k.StatusUpdate
	if k.Spec != nil {
		update.Resets = append([]string{"spec"}, update.Resets...)
	}
	update.Prepare = func(ctx context.Context, obj, old T) {
		if k.Spec != nil {
			assign(k.Spec(obj), k.Spec(old))
		}
		if k.StatusUpdate.Prepare != nil {
			k.StatusUpdate.Prepare(ctx, obj, old)
		}
	}
	return update
}

func resetFields(versions []schema.GroupVersion, names ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	set := fieldpath.NewSet()
	for _, name := range names {
		var path []any
		for part := range strings.SplitSeq(name, ".") {
			path = append(path, part)
		}
		set.Insert(fieldpath.MakePathOrDie(path...))
	}
	out := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, version := range versions {
		out[fieldpath.APIVersion(version.String())] = set
	}
	return out
}

// DeclarativeValidationConfig implements rest.DeclarativeValidationStrategy.
func (s strategy[T]) DeclarativeValidationConfig(context.Context, runtime.Object, runtime.Object) rest.DeclarativeValidationConfig {
	return rest.DeclarativeValidationConfig{Options: s.declared, ShortCircuitMismatch: s.kind.ShortCircuits}
}
