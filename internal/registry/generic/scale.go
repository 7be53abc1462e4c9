// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"
	"fmt"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// Scale maps a kind to the scale subresource.
type Scale[T Object] struct {
	// Replicas returns a pointer to spec.replicas. A nil value there counts as 1.
	Replicas func(obj T) **int32
	// Current returns status.replicas.
	Current func(obj T) int32
	// Selector returns spec.selector.
	Selector func(obj T) *metav1.LabelSelector
}

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// scaleStore serves Scale through the kind's main endpoint, so that a change of
// replicas passes the kind's strategy and admission.
type scaleStore[T Object] struct {
	main   *Store
	kind   *Kind[T]
	parent schema.GroupVersion
	// versions are all versions of the kind.
	versions []schema.GroupVersion
	scheme   *runtime.Scheme
	rest.TableConvertor
}

// scaleTable returns the table of `kubectl get --subresource=scale`.
func scaleTable(c clock.PassiveClock) rest.TableConvertor {
	return newTableConvertor(&Kind[*autoscalingv1.Scale]{Columns: []Column[*autoscalingv1.Scale]{
		{Name: "Desired", Type: "integer", Description: autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"], Cell: func(s *autoscalingv1.Scale) any { return int64(s.Spec.Replicas) }},
		{Name: "Available", Type: "integer", Description: autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"], Cell: func(s *autoscalingv1.Scale) any { return int64(s.Status.Replicas) }},
	}}, c)
}

var (
	_ rest.Patcher                  = &scaleStore[*metav1.PartialObjectMetadata]{}
	_ rest.GroupVersionKindProvider = &scaleStore[*metav1.PartialObjectMetadata]{}
)

func (s *scaleStore[T]) New() runtime.Object { return &autoscalingv1.Scale{} }
func (s *scaleStore[T]) Destroy()            {}

// GroupVersionKind returns autoscaling/v1, or the version's own Scale, which versions before apps/v1
// have.
func (s *scaleStore[T]) GroupVersionKind(gv schema.GroupVersion) schema.GroupVersionKind {
	if own := gv.WithKind(scaleKind.Kind); s.scheme.Recognizes(own) {
		return own
	}
	return scaleKind
}

func (s *scaleStore[T]) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := s.main.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return s.scaleOf(obj.(T))
}

func (s *scaleStore[T]) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	obj, _, err := s.main.Update(ctx, name, scaleUpdate[T]{s, info},
		func(ctx context.Context, obj runtime.Object) error {
			scale, err := s.scaleOf(obj.(T))
			if err != nil {
				return err
			}
			return createValidation(ctx, scale)
		},
		func(ctx context.Context, obj, old runtime.Object) error {
			scale, err := s.scaleOf(obj.(T))
			if err != nil {
				return err
			}
			before, err := s.scaleOf(old.(T))
			if err != nil {
				return err
			}
			return updateValidation(ctx, scale, before)
		}, false, options)
	if err != nil {
		return nil, false, err
	}
	scale, err := s.scaleOf(obj.(T))
	return scale, false, err
}

func (s *scaleStore[T]) scaleOf(obj T) (*autoscalingv1.Scale, error) {
	selector, err := metav1.LabelSelectorAsSelector(s.kind.Scale.Selector(obj))
	if err != nil {
		return nil, fmt.Errorf("selector of %s %s: %w", s.kind.Name, obj.GetName(), err)
	}
	replicas := int32(1)
	if r := *s.kind.Scale.Replicas(obj); r != nil {
		replicas = *r
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
			ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: replicas},
		Status: autoscalingv1.ScaleStatus{Replicas: s.kind.Scale.Current(obj), Selector: selector.String()},
	}, nil
}

// scaleUpdate applies an update of a Scale to the scaled object.
type scaleUpdate[T Object] struct {
	store *scaleStore[T]
	info  rest.UpdatedObjectInfo
}

func (u scaleUpdate[T]) Preconditions() *metav1.Preconditions { return u.info.Preconditions() }

func (u scaleUpdate[T]) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	obj := old.DeepCopyObject().(T)
	fields := managedfields.NewScaleHandler(obj.GetManagedFields(), u.store.requested(ctx), u.store.replicasPath())
	before, err := u.store.scaleOf(obj)
	if err != nil {
		return nil, err
	}
	if before.ManagedFields, err = fields.ToSubresource(); err != nil {
		return nil, err
	}
	updated, err := u.info.UpdatedObject(ctx, before)
	if err != nil {
		return nil, err
	}
	scale, ok := updated.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a Scale, got %T", updated))
	}
	c := &check.Checker{}
	if validateScale(c, scale); len(c.Errors()) > 0 {
		return nil, apierrors.NewInvalid(scaleKind.GroupKind(), obj.GetName(), c.Errors())
	}
	if scale.UID != "" && scale.UID != obj.GetUID() {
		return nil, apierrors.NewConflict(u.store.resource(), obj.GetName(),
			//lint:ignore ST1005 the message of the storage layer
			fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", scale.UID, obj.GetUID()))
	}
	*u.store.kind.Scale.Replicas(obj) = &scale.Spec.Replicas
	if scale.ResourceVersion != "" {
		obj.SetResourceVersion(scale.ResourceVersion)
	}
	entries, err := fields.ToParent(scale.ManagedFields)
	if err != nil {
		return nil, err
	}
	obj.SetManagedFields(entries)
	return obj, nil
}

// validateScale ignores other metadata, which has no effect.
func validateScale(c *check.Checker, scale *autoscalingv1.Scale) {
	c.Add(metav1validation.ValidateManagedFields(scale.ManagedFields, field.NewPath("metadata", "managedFields"))...)
	if replicas := scale.Spec.Replicas; replicas < 0 {
		c.Add(field.Invalid(field.NewPath("spec", "replicas"), replicas, apivalidation.IsNegativeErrorMsg).WithOrigin("minimum"))
	}
}

func (s *scaleStore[T]) resource() schema.GroupResource {
	return schema.GroupResource{Group: s.parent.Group, Resource: s.kind.Plural + "/scale"}
}

func (s *scaleStore[T]) replicasPath() managedfields.ResourcePathMappings {
	paths := managedfields.ResourcePathMappings{}
	for _, gv := range s.versions {
		paths[gv.String()] = fieldpath.MakePathOrDie("spec", "replicas")
	}
	return paths
}

// requested returns the version of the scaled object in whose name a client owns the replicas.
func (s *scaleStore[T]) requested(ctx context.Context) schema.GroupVersion {
	if gv := RequestVersion(ctx); slices.Contains(s.versions, gv) {
		return gv
	}
	return s.parent
}
