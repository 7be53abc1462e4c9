// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package defaultclass chooses the class of what names none. A class is marked as
// the default by an annotation. Should several be marked, as while one takes over
// from another, the newest is it.
package defaultclass

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of returns the name of the default among classes, or "". It is marked by any of
// the annotations.
func Of[C metav1.Object](classes []C, annotations ...string) string {
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
