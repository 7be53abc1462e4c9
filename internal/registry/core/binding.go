// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// bindingStore serves pods/binding: it assigns a pod to a node, once.
type bindingStore struct {
	pods *generic.Store
}

var (
	_                       rest.NamedCreater                   = &bindingStore{}
	_                       rest.SubresourceObjectMetaPreserver = &bindingStore{}
	podResource, podBinding                                     = corev1.Resource("pods"), corev1.Resource("pods/binding")
)

func (s *bindingStore) New() runtime.Object   { return &corev1.Binding{} }
func (s *bindingStore) Destroy()              {}
func (s *bindingStore) NamespaceScoped() bool { return true }

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps UID and
// resourceVersion of the request, which are preconditions here.
func (s *bindingStore) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

func (s *bindingStore) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %#v", obj))
	}
	if name != binding.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := check.Run(func(c *check.Checker) { podspec.ValidatePodBinding(c, binding) }); len(errs) > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), binding.Name, errs)
	}
	if validate != nil {
		if err := validate(ctx, binding.DeepCopy()); err != nil {
			return nil, err
		}
	}
	if err := s.assign(ctx, binding, dryrun.IsDryRun(options.DryRun)); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

func (s *bindingStore) assign(ctx context.Context, binding *corev1.Binding, dryRun bool) error {
	key, err := s.pods.KeyFunc(ctx, binding.Name)
	if err != nil {
		return err
	}
	preconditions := &storage.Preconditions{}
	if binding.UID != "" {
		preconditions.UID = &binding.UID
	}
	if binding.ResourceVersion != "" {
		preconditions.ResourceVersion = &binding.ResourceVersion
	}
	err = s.pods.Storage.GuaranteedUpdate(ctx, key, &corev1.Pod{}, false, preconditions,
		storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			return bind(obj.(*corev1.Pod), binding, s.pods.Clock.Now())
		}), dryRun, nil)
	if err == nil {
		return nil
	}
	err = storeerrors.InterpretUpdateError(storeerrors.InterpretGetError(err, podResource, binding.Name), podResource, binding.Name)
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return err
	}
	return apierrors.NewConflict(podBinding, binding.Name, err)
}

// bind assigns the pod to the node, or refuses.
func bind(p *corev1.Pod, binding *corev1.Binding, now time.Time) (runtime.Object, error) {
	switch {
	case p.DeletionTimestamp != nil:
		return nil, fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", p.Name)
	case p.Spec.NodeName != "":
		return nil, fmt.Errorf("pod %v is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) != 0:
		return nil, fmt.Errorf("pod %v has non-empty .spec.schedulingGates", p.Name)
	}
	p.Spec.NodeName = binding.Target.Name
	p.Status.NominatedNodeName = ""
	p.Annotations = merge(p.Annotations, binding.Annotations)
	p.Labels = merge(p.Labels, binding.Labels)
	setScheduled(&p.Status, now)
	return p, nil
}

func merge(into, from map[string]string) map[string]string {
	if into == nil && len(from) > 0 {
		into = map[string]string{}
	}
	maps.Copy(into, from)
	return into
}

// setScheduled sets the condition PodScheduled to true, and its time if it was not true before.
func setScheduled(status *corev1.PodStatus, now time.Time) {
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}
	for i := range status.Conditions {
		old := &status.Conditions[i]
		if old.Type != corev1.PodScheduled {
			continue
		}
		if old.Status == corev1.ConditionTrue {
			scheduled.LastTransitionTime = old.LastTransitionTime
		}
		*old = scheduled
		return
	}
	status.Conditions = append(status.Conditions, scheduled)
}

// legacyBindingStore serves the older form of the request: POST to the collection of bindings.
type legacyBindingStore struct{ *bindingStore }

var _ rest.Creater = legacyBindingStore{}

func (s legacyBindingStore) GetSingularName() string { return "binding" }

func (s legacyBindingStore) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %T", obj))
	}
	return s.bindingStore.Create(ctx, binding.Name, obj, validate, options)
}
