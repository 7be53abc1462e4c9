// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// evictionStore serves pods/eviction: it deletes a pod if its PodDisruptionBudget
// allows, and counts the disruption there first. That write to the budget makes
// concurrent evictions safe: the second one gets a conflict and checks again.
type evictionStore struct {
	pods    *generic.Store
	budgets policyclient.PodDisruptionBudgetsGetter
}

var (
	_ rest.NamedCreater             = &evictionStore{}
	_ rest.GroupVersionKindProvider = &evictionStore{}
	_ rest.GroupVersionAcceptor     = &evictionStore{}
)

var (
	evictionKind = policyv1.SchemeGroupVersion.WithKind("Eviction")
	// Conflicting objects are written a few times a second at most.
	evictionRetry = wait.Backoff{Steps: 20, Duration: 500 * time.Millisecond, Factor: 1, Jitter: 0.1}
)

func (s *evictionStore) New() runtime.Object   { return &policyv1.Eviction{} }
func (s *evictionStore) Destroy()              {}
func (s *evictionStore) NamespaceScoped() bool { return true }

func (s *evictionStore) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return evictionKind
}

// AcceptsGroupVersion also accepts the version of older clients.
func (s *evictionStore) AcceptsGroupVersion(gv schema.GroupVersion) bool {
	return gv == policyv1.SchemeGroupVersion || gv == policyv1beta1.SchemeGroupVersion
}

// addEvictions adds Evictions of both versions; they have the same fields.
func addEvictions(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(policyv1.SchemeGroupVersion, &policyv1.Eviction{})
	scheme.AddKnownTypes(policyv1beta1.SchemeGroupVersion, &policyv1beta1.Eviction{})
	scheme.AddKnownTypes(schema.GroupVersion{Group: policyv1.GroupName, Version: runtime.APIVersionInternal}, &policyv1.Eviction{})
	return scheme.AddConversionFunc((*policyv1beta1.Eviction)(nil), (*policyv1.Eviction)(nil), func(from, to any, _ conversion.Scope) error {
		*to.(*policyv1.Eviction) = policyv1.Eviction(*from.(*policyv1beta1.Eviction))
		return nil
	})
}

// Create evicts the pod.
func (s *evictionStore) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	eviction, ok := obj.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", obj))
	}
	if name != eviction.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	how, err := deletionOf(eviction, options)
	if err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, eviction.DeepCopy()); err != nil {
			return nil, err
		}
	}
	pod, gone, err := s.deleteUnguarded(ctx, name, how)
	if err != nil {
		return nil, err
	}
	if gone {
		return &metav1.Status{Status: metav1.StatusSuccess}, nil
	}
	return s.deleteGuarded(ctx, pod, how)
}

// deletionOf returns the options of the deletion. The request or its body may request a dry run.
func deletionOf(eviction *policyv1.Eviction, options *metav1.CreateOptions) (*metav1.DeleteOptions, error) {
	how := eviction.DeleteOptions
	if how == nil {
		return &metav1.DeleteOptions{DryRun: options.DryRun}, nil
	}
	if ptr.Deref(how.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return nil, apierrors.NewInvalid(evictionKind.GroupKind(), eviction.Name, field.ErrorList{field.Invalid(
			field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true, "can not be set for pod eviction, try after removing the option")})
	}
	switch {
	case len(how.DryRun) == 0:
		how.DryRun = options.DryRun
	case len(options.DryRun) > 0 && !slices.Equal(how.DryRun, options.DryRun):
		//lint:ignore ST1005 upstream's words
		return nil, fmt.Errorf("Non-matching dry-run options in request and content: %v and %v", options.DryRun, how.DryRun)
	}
	return how, nil
}

// deleteUnguarded deletes a pod to which no budget applies, because it has ended, has not started, or
// is terminating. Otherwise it returns the pod.
func (s *evictionStore) deleteUnguarded(ctx context.Context, name string, how *metav1.DeleteOptions) (pod *corev1.Pod, gone bool, err error) {
	mayRetry := apierrors.IsConflict
	if namesVersion(how) {
		mayRetry = func(error) bool { return false }
	}
	err = retry.OnError(evictionRetry, mayRetry, func() error {
		obj, err := s.pods.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod = obj.(*corev1.Pod)
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil
		if !ended && pod.Status.Phase != corev1.PodPending {
			return nil
		}
		options := how.DeepCopy()
		if !ended && !namesVersion(how) {
			atVersion(options, pod.ResourceVersion) // it might begin at this moment
		}
		if err := s.delete(ctx, name, options); err != nil {
			return err
		}
		gone = true
		return nil
	})
	return pod, gone, err
}

// deleteGuarded deletes a running pod if its budget allows.
func (s *evictionStore) deleteGuarded(ctx context.Context, pod *corev1.Pod, how *metav1.DeleteOptions) (runtime.Object, error) {
	budgets, err := s.budgetsOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	if len(budgets) > 1 {
		return &metav1.Status{Status: metav1.StatusFailure, Code: 500,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}, nil
	}
	options := how.DeepCopy()
	unready := len(budgets) == 1 && uncounted(pod, &budgets[0])
	switch {
	case unready:
		atVersion(options, pod.ResourceVersion) // it might become ready at this moment
	case len(budgets) == 1:
		if err := s.count(ctx, pod, budgets[0], dryrun.IsDryRun(how.DryRun)); err != nil {
			return nil, err
		}
	}
	err = s.delete(ctx, pod.Name, options)
	if apierrors.IsConflict(err) && unready && !namesVersion(how) {
		return nil, tooManyRequests(budgets[0].Name)
	}
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// delete records the reason in the pod's status, and deletes the pod.
func (s *evictionStore) delete(ctx context.Context, name string, options *metav1.DeleteOptions) error {
	if !dryrun.IsDryRun(options.DryRun) {
		pod, err := s.mark(ctx, name, options.Preconditions)
		if err != nil {
			return err
		}
		if namesVersion(options) {
			atVersion(options, pod.ResourceVersion)
		}
	}
	_, _, err := s.pods.Delete(ctx, name, rest.ValidateAllObjectFunc, options)
	return err
}

// mark sets the condition DisruptionTarget (KEP-3329).
func (s *evictionStore) mark(ctx context.Context, name string, preconditions *metav1.Preconditions) (*corev1.Pod, error) {
	key, err := s.pods.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	out := &corev1.Pod{}
	err = s.pods.Storage.GuaranteedUpdate(ctx, key, out, false, nil,
		storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			pod := obj.(*corev1.Pod)
			if err := meets(pod, preconditions); err != nil {
				return nil, err
			}
			setCondition(&pod.Status, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.pods.Clock.Now()),
				Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
			})
			return pod, nil
		}), false, nil)
	return out, storeerrors.InterpretUpdateError(storeerrors.InterpretGetError(err, podResource, name), podResource, name)
}

// meets checks the caller's preconditions.
func meets(pod *corev1.Pod, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "Pod"}, pod.Name, fmt.Errorf(format, args...))
	}
	if uid := ptr.Deref(p.UID, ""); uid != "" && uid != pod.UID {
		return conflict("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", uid, pod.UID)
	}
	if rv := ptr.Deref(p.ResourceVersion, ""); rv != "" && rv != pod.ResourceVersion {
		return conflict("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", rv, pod.ResourceVersion)
	}
	return nil
}

// setCondition sets a condition and the time of its transition.
func setCondition(status *corev1.PodStatus, condition corev1.PodCondition) {
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, condition)
		return
	}
	if status.Conditions[i].Status == condition.Status {
		condition.LastTransitionTime = status.Conditions[i].LastTransitionTime
	}
	status.Conditions[i] = condition
}

func namesVersion(options *metav1.DeleteOptions) bool {
	return options.Preconditions != nil && options.Preconditions.ResourceVersion != nil
}

func atVersion(options *metav1.DeleteOptions, version string) {
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	options.Preconditions.ResourceVersion = &version
}
