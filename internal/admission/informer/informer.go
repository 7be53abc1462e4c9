// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package informer holds the part of an admission plugin that reads objects of
// one kind from the API server's informers.
package informer

import (
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// Handler is an admission.Handler with a lister. A plugin embeds it.
type Handler[L any] struct {
	*admission.Handler
	// Lister is set by SetExternalKubeInformerFactory.
	Lister L

	name  string
	newOf func(informers.SharedInformerFactory) Informer[L]
}

// Informer is a typed informer of client-go, such as a PodInformer.
type Informer[L any] interface {
	Informer() cache.SharedIndexInformer
	Lister() L
}

var (
	_ initializer.WantsExternalKubeInformerFactory = &Handler[any]{}
	_ admission.InitializationValidator            = &Handler[any]{}
)

// New returns the Handler of the plugin of that name, for the given operations.
// It reads from the informer that newOf takes from the API server's factory.
func New[L any](name string, newOf func(informers.SharedInformerFactory) Informer[L], operations ...admission.Operation) *Handler[L] {
	return &Handler[L]{Handler: admission.NewHandler(operations...), name: name, newOf: newOf}
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (h *Handler[L]) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	informer := h.newOf(f)
	h.Lister = informer.Lister()
	h.SetReadyFunc(informer.Informer().HasSynced)
}

// ValidateInitialization implements admission.InitializationValidator.
func (h *Handler[L]) ValidateInitialization() error {
	if any(h.Lister) == nil {
		return fmt.Errorf("%s needs informers", h.name)
	}
	return nil
}

// WaitForSync waits until the informer has listed all objects; if that takes too
// long, the request is forbidden.
func (h *Handler[L]) WaitForSync(a admission.Attributes) error {
	if !h.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	return nil
}
