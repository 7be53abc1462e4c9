// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	client "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	listers "k8s.io/client-go/listers/flowcontrol/v1"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// mandatoryFlowSchema returns the mandatory object of this name, or nil.
func mandatoryFlowSchema(name string) *flowcontrolv1.FlowSchema {
	return named(bootstrap.MandatoryFlowSchemas, name, SetObjectDefaults_FlowSchema)
}

// mandatoryLevel returns the mandatory object of this name, or nil.
func mandatoryLevel(name string) *flowcontrolv1.PriorityLevelConfiguration {
	return named(bootstrap.MandatoryPriorityLevelConfigurations, name, SetObjectDefaults_PriorityLevelConfiguration)
}

// named returns a copy, with defaults, of the object of this name in k8s.io/apiserver.
func named[T generic.Object](objects []T, name string, setDefaults func(T)) T {
	for _, object := range objects {
		if object.GetName() == name {
			out := object.DeepCopyObject().(T)
			setDefaults(out)
			return out
		}
	}
	var none T
	return none
}

// manager is the field manager of the objects.
const manager = "api-priority-and-fairness-config-producer-v1"

// Ensure reconciles the mandatory and suggested objects, as upstream does: it creates missing objects,
// restores mandatory ones, updates suggested ones unless a user has changed them, which the
// annotation apf.kubernetes.io/autoupdate-spec records, and deletes those of earlier releases.
func Ensure(ctx context.Context, to client.FlowcontrolV1Interface, schemas listers.FlowSchemaLister, levels listers.PriorityLevelConfigurationLister) error {
	levelOps := objects[*flowcontrolv1.PriorityLevelConfiguration]{
		writer: to.PriorityLevelConfigurations(), list: levels.List, setDefaults: SetObjectDefaults_PriorityLevelConfiguration,
		same:   sameLevel,
		assign: func(to, from *flowcontrolv1.PriorityLevelConfiguration) { to.Spec = from.Spec },
	}
	schemaOps := objects[*flowcontrolv1.FlowSchema]{
		writer: to.FlowSchemas(), list: schemas.List, setDefaults: SetObjectDefaults_FlowSchema,
		same:   func(a, b *flowcontrolv1.FlowSchema) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) },
		assign: func(to, from *flowcontrolv1.FlowSchema) { to.Spec = from.Spec },
	}
	// A schema takes effect once its level exists.
	if err := levelOps.ensure(ctx, bootstrap.SuggestedPriorityLevelConfigurations, bootstrap.MandatoryPriorityLevelConfigurations); err != nil {
		return err
	}
	return schemaOps.ensure(ctx, bootstrap.SuggestedFlowSchemas, bootstrap.MandatoryFlowSchemas)
}

// sameLevel compares the fields that the server owns: administrators may change how much the exempt
// level lends.
func sameLevel(wanted, current *flowcontrolv1.PriorityLevelConfiguration) bool {
	spec := wanted.Spec.DeepCopy()
	if wanted.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
		if current.Spec.Exempt == nil {
			return false
		}
		spec.Exempt = current.Spec.Exempt
	}
	return equality.Semantic.DeepEqual(*spec, current.Spec)
}

// writer is the part of a typed client that bootstrapping needs.
type writer[T any] interface {
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// objects reconciles the objects of one kind.
type objects[T generic.Object] struct {
	writer      writer[T]
	list        func(labels.Selector) ([]T, error)
	setDefaults func(T)
	same        func(wanted, current T) bool
	assign      func(to, from T)
}

func (o objects[T]) ensure(ctx context.Context, suggested, mandatory []T) error {
	found, err := o.list(labels.Everything())
	if err != nil {
		return err
	}
	current := map[string]T{}
	for _, object := range found {
		current[object.GetName()] = object
	}
	writes, writing := errgroup.WithContext(ctx) // in parallel, because each waits for fsync
	for i, wanted := range slices.Concat(suggested, mandatory) {
		now, exists := current[wanted.GetName()]
		delete(current, wanted.GetName())
		writes.Go(func() error {
			var err error
			if exists {
				err = o.update(writing, wanted, now, i >= len(suggested))
			} else {
				_, err = o.writer.Create(writing, wanted, metav1.CreateOptions{FieldManager: manager})
			}
			if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) { // the next call to Ensure checks both again
				return fmt.Errorf("write %s: %w", wanted.GetName(), err)
			}
			return nil
		})
	}
	if err := writes.Wait(); err != nil {
		return err
	}
	return o.remove(ctx, current)
}

// update restores an object and its annotation apf.kubernetes.io/autoupdate-spec.
func (o objects[T]) update(ctx context.Context, wanted, current T, mandatory bool) error {
	wanted = wanted.DeepCopyObject().(T)
	o.setDefaults(wanted)
	ours := mandatory || isOurs(current)
	marked, known := annotated(current)
	changes := ours && !o.same(wanted, current)
	if !changes && known && marked == ours {
		return nil
	}
	revised := current.DeepCopyObject().(T)
	if changes {
		o.assign(revised, wanted)
	}
	annotations := map[string]string{}
	for key, value := range current.GetAnnotations() {
		annotations[key] = value
	}
	annotations[flowcontrolv1.AutoUpdateAnnotationKey] = strconv.FormatBool(ours)
	revised.SetAnnotations(annotations)
	_, err := o.writer.Update(ctx, revised, metav1.UpdateOptions{FieldManager: manager})
	return err
}

// remove deletes unchanged objects of earlier releases.
func (o objects[T]) remove(ctx context.Context, left map[string]T) error {
	for name, object := range left {
		if ours, _ := annotated(object); !ours {
			continue
		}
		if err := o.writer.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s: %w", name, err)
		}
	}
	return nil
}

// isOurs reports whether the server updates a suggested object. Without the annotation, it does so if
// the object is unchanged.
func isOurs(object metav1.Object) bool {
	if ours, known := annotated(object); known {
		return ours
	}
	return object.GetGeneration() == 1
}

func annotated(object metav1.Object) (ours, known bool) {
	ours, err := strconv.ParseBool(object.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	return ours, err == nil
}
