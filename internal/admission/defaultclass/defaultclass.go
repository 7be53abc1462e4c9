// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package defaultclass holds the plugins that set the default class of objects
// created without one: DefaultStorageClass for PersistentVolumeClaims and
// DefaultIngressClass for Ingresses. An annotation marks a class as the default.
// If several classes are marked, for example while one replaces another, the
// newest is the default.
package defaultclass

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kindred-project/kindred/internal/admission/informer"
)

// setDefault sets the class of a new object to the default class, unless it has one. Any of the
// annotations marks a class as the default.
func setDefault[C metav1.Object, L interface {
	List(labels.Selector) ([]C, error)
}](h *informer.Handler[L], a admission.Attributes, class **string, annotations ...string) error {
	if *class != nil {
		return nil
	}
	// An incomplete list of classes would silently leave the object without one.
	if err := h.WaitForSync(a); err != nil {
		return err
	}
	classes, err := h.Lister.List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if name := defaultOf(classes, annotations...); name != "" {
		*class = &name
	}
	return nil
}

// defaultOf returns the name of the default class, or "".
func defaultOf[C metav1.Object](classes []C, annotations ...string) string {
	marked := slices.DeleteFunc(slices.Clone(classes), func(c C) bool { return !isMarked(c, annotations) })
	if len(marked) == 0 {
		return ""
	}
	return slices.MinFunc(marked, newestFirst[C]).GetName()
}

func isMarked(c metav1.Object, annotations []string) bool {
	return slices.ContainsFunc(annotations, func(key string) bool { return c.GetAnnotations()[key] == "true" })
}

func newestFirst[C metav1.Object](a, b C) int {
	return cmp.Or(b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
}
