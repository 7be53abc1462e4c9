// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestMetadata checks that finalizers are validated on every write, and an invalid generateName
// only where upstream rejects it.
func TestMetadata(t *testing.T) {
	const finalizer, generateName = "metadata.finalizers[1]", "metadata.generateName"
	for name, test := range map[string]struct {
		change                 func(*Kind[*appsv1.Deployment])
		create, update, status []string
	}{
		"ordinary":        {func(*Kind[*appsv1.Deployment]) {}, []string{generateName, finalizer}, []string{finalizer}, []string{finalizer}},
		"any finalizer":   {func(k *Kind[*appsv1.Deployment]) { k.Metadata.AnyFinalizer = true }, []string{generateName}, nil, nil},
		"loose":           {func(k *Kind[*appsv1.Deployment]) { k.Metadata.Loose = func(context.Context) bool { return true } }, nil, nil, nil},
		"validate as new": {func(k *Kind[*appsv1.Deployment]) { k.Metadata.ValidateAsNew = true }, []string{generateName, finalizer}, []string{generateName, finalizer}, []string{finalizer}},
	} {
		kind := workload()
		test.change(&kind)
		d := deployment(1, 0)
		d.GenerateName, d.Finalizers = "A", []string{metav1.FinalizerOrphanDependents, "mine", "example.com/mine"}
		s := kind.strategyForTest()
		for _, got := range []struct {
			errs []string
			want []string
		}{
			{fieldsOf(s.Validate(t.Context(), d)), test.create},
			{fieldsOf(s.ValidateUpdate(t.Context(), d, d)), test.update},
			{fieldsOf(updateStrategy[*appsv1.Deployment]{s, kind.statusUpdate()}.ValidateUpdate(t.Context(), d, d)), test.status},
		} {
			if !slices.Equal(got.errs, got.want) {
				t.Errorf("%s: errors of %q, want %q", name, got.errs, got.want)
			}
		}
	}
}

func fieldsOf(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Field)
	}
	return out
}
