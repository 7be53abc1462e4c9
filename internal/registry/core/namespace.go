// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Namespace is a scope for names. It is deleted in two steps: a DELETE marks it
// as terminating, the namespace controller empties it and removes itself from
// spec.finalizers, and the namespace is removed with its last finalizer.
var Namespace = generic.Kind[*corev1.Namespace]{
	Name: "Namespace", Plural: "namespaces", ShortNames: []string{"ns"}, ClusterScoped: true,
	Metadata:     generic.Metadata{ValidateAsNew: true, ValidName: validation.ValidateNamespaceName},
	New:          func() *corev1.Namespace { return &corev1.Namespace{} },
	NewList:      func() runtime.Object { return &corev1.NamespaceList{} },
	Spec:         func(n *corev1.Namespace) any { return &n.Spec },
	Status:       func(n *corev1.Namespace) any { return &n.Status },
	Generation:   generic.NoGeneration,
	Prepare:      prepareNamespace,
	Validate:     validateNamespace,
	StatusUpdate: generic.Update[*corev1.Namespace]{Validate: validateNamespaceStatus},
	Fields:       map[string]func(*corev1.Namespace) string{"status.phase": func(n *corev1.Namespace) string { return string(n.Status.Phase) }},
	Columns: []generic.Column[*corev1.Namespace]{{
		Name: "Status", Description: "The status of the namespace",
		Cell: func(n *corev1.Namespace) any { return string(n.Status.Phase) },
	}},
	Deletion:  generic.Deletion[*corev1.Namespace]{HasFinalizers: func(n *corev1.Namespace) bool { return len(n.Spec.Finalizers) > 0 }},
	Endpoints: generic.Endpoints{Replace: func(store *generic.Store) rest.Storage { return &namespaceStore{store} }},
	Updates: map[string]generic.Update[*corev1.Namespace]{"finalize": {
		Prepare:   func(_ context.Context, n, old *corev1.Namespace) { n.Status = old.Status },
		Validate:  validateFinalize,
		Resets:    []string{"status"},
		WriteOnly: true,
	}},
}

// prepareNamespace creates a namespace as active and with the finalizer of the namespace controller,
// and ignores changes of spec.finalizers outside the finalize subresource.
func prepareNamespace(_ context.Context, n, old *corev1.Namespace) {
	if old != nil {
		n.Spec.Finalizers = old.Spec.Finalizers
		return
	}
	n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
		n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
	// A generated name is not known when defaults are set.
	SetDefaults_Namespace(n)
}

func validateNamespace(_ context.Context, c *check.Checker, n *corev1.Namespace) {
	for _, name := range n.Spec.Finalizers {
		validateFinalizer(c, string(name), field.NewPath("spec", "finalizers"))
	}
}

func validateFinalize(_ context.Context, c *check.Checker, n, _ *corev1.Namespace) {
	for i, name := range n.Spec.Finalizers {
		validateFinalizer(c, string(name), field.NewPath("spec", "finalizers").Index(i))
	}
}

func validateFinalizer(c *check.Checker, name string, path *field.Path) {
	c.Add(validation.ValidateFinalizerName(name, path)...)
	c.FinalizerDomain(path, name)
}

// validateNamespaceStatus allows the phase Active before and Terminating after the deletion only.
func validateNamespaceStatus(_ context.Context, c *check.Checker, n, _ *corev1.Namespace) {
	phase := field.NewPath("status", "Phase") // as upstream spells it
	if n.DeletionTimestamp.IsZero() && n.Status.Phase != corev1.NamespaceActive {
		c.Invalid(phase, n.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")
		return
	}
	if !n.DeletionTimestamp.IsZero() && n.Status.Phase != corev1.NamespaceTerminating {
		c.Invalid(phase, n.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")
	}
}

var namespaces = corev1.Resource("namespaces")

// namespaceStore is the generic store with the two-step deletion. It does not serve deletecollection,
// which could delete all namespaces by mistake.
type namespaceStore struct {
	*generic.Store
}

// DeleteCollection hides the store's method, so that the type does not implement
// rest.CollectionDeleter and the server does not serve deletecollection.
func (*namespaceStore) DeleteCollection() {}

var _ rest.GracefulDeleter = &namespaceStore{}

// Delete marks the namespace as terminating, or removes it if it has no
// finalizers.
func (s *namespaceStore) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	found, err := s.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	namespace := found.(*corev1.Namespace)
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	if err := s.precondition(namespace, options); err != nil {
		return nil, false, err
	}
	if namespace.DeletionTimestamp.IsZero() {
		return s.terminate(ctx, namespace, validate, options)
	}
	if len(namespace.Spec.Finalizers) != 0 {
		return namespace, false, nil
	}
	return s.Store.Delete(ctx, name, validate, options)
}

// precondition limits the deletion to the namespace that was read.
func (s *namespaceStore) precondition(n *corev1.Namespace, options *metav1.DeleteOptions) error {
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	conflict := func(what, want, have string) error {
		return apierrors.NewConflict(namespaces, n.Name,
			&preconditionError{what: what, want: want, have: have})
	}
	p := options.Preconditions
	if p.UID == nil {
		p.UID = &n.UID
	}
	if *p.UID != n.UID {
		return conflict("UID", string(*p.UID), string(n.UID))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != n.ResourceVersion {
		return conflict("ResourceVersion", *p.ResourceVersion, n.ResourceVersion)
	}
	return nil
}

type preconditionError struct{ what, want, have string }

func (e *preconditionError) Error() string {
	return "Precondition failed: " + e.what + " in precondition: " + e.want + ", " + e.what + " in object meta: " + e.have
}

// terminate performs the first step of a deletion.
func (s *namespaceStore) terminate(ctx context.Context, n *corev1.Namespace, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	key, err := s.KeyFunc(ctx, n.Name)
	if err != nil {
		return nil, false, err
	}
	mark := func(existing runtime.Object) (runtime.Object, error) {
		namespace := existing.(*corev1.Namespace)
		if err := validate(ctx, namespace); err != nil {
			return nil, err
		}
		if namespace.DeletionTimestamp.IsZero() {
			now := metav1.Now()
			namespace.DeletionTimestamp = &now
		}
		namespace.Status.Phase = corev1.NamespaceTerminating
		setPropagation(namespace, options)
		return namespace, nil
	}
	out := &corev1.Namespace{}
	err = s.Storage.GuaranteedUpdate(ctx, key, out, false,
		&storage.Preconditions{UID: options.Preconditions.UID, ResourceVersion: options.Preconditions.ResourceVersion},
		storage.SimpleUpdate(mark), dryrun.IsDryRun(options.DryRun), nil)
	if err != nil {
		err = storeerrors.InterpretUpdateError(storeerrors.InterpretGetError(err, namespaces, n.Name), namespaces, n.Name)
		if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
			err = apierrors.NewInternalError(err)
		}
		return nil, false, err
	}
	return out, false, nil
}

// setPropagation turns the policy of the request into finalizers for the garbage collector. Without a
// policy existing finalizers stay.
func setPropagation(n *corev1.Namespace, options *metav1.DeleteOptions) {
	set := func(finalizer string, wanted bool) {
		n.Finalizers = slices.DeleteFunc(n.Finalizers, func(f string) bool { return f == finalizer })
		if wanted {
			n.Finalizers = append(n.Finalizers, finalizer)
		}
	}
	switch orphan, policy := options.OrphanDependents, options.PropagationPolicy; { //nolint:staticcheck // deprecated, and still accepted
	case orphan != nil:
		set(metav1.FinalizerOrphanDependents, *orphan)
		set(metav1.FinalizerDeleteDependents, !*orphan)
	case policy != nil:
		set(metav1.FinalizerOrphanDependents, *policy == metav1.DeletePropagationOrphan)
		set(metav1.FinalizerDeleteDependents, *policy == metav1.DeletePropagationForeground)
	}
}
