// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
)

// TestDeclaredValidations checks that the generated validations are registered with the scheme, and
// call the custom ones.
func TestDeclaredValidations(t *testing.T) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: v1.PodSpec{EvictionResponders: []v1.EvictionResponder{
			{Name: "drain.k8s.io/x", Priority: new(int32(999))},
			{Name: "drain.example.com/x", Priority: new(int32(1000))},
		}},
	}
	want := []string{
		`spec.evictionResponders[0].name: Invalid value: "drain.k8s.io/x": domain names *.k8s.io, *.kubernetes.io are reserved`,
		`spec.evictionResponders[0].priority: Invalid value: 999: priorities 0-999 are reserved for responders with *.k8s.io suffix`,
	}
	if diff := cmp.Diff(want, texts(newScheme(t).Validate(t.Context(), nil, pod))); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

// TestDeclaredOptions checks that DeclaredOptions has all features that declared validations depend
// on. A missing one is an internal error in each request.
func TestDeclaredOptions(t *testing.T) {
	scheme := newScheme(t)
	for kind, goType := range scheme.KnownTypes(v1.SchemeGroupVersion) {
		if goType.PkgPath() != reflect.TypeFor[v1.Pod]().PkgPath() {
			continue
		}
		object := reflect.New(goType).Interface().(runtime.Object)
		for _, err := range scheme.Validate(t.Context(), DeclaredOptions(), object) {
			if err.Type == field.ErrorTypeInternal {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
}

// TestReportedOnce checks that a rule that is both declared and hand-written is reported once.
func TestReportedOnce(t *testing.T) {
	scheme := newScheme(t)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: v1.PodSpec{
			Containers:  []v1.Container{{Name: "app", Image: "app"}},
			Tolerations: []v1.Toleration{{Key: "a b", Operator: v1.TolerationOpExists}},
		},
	}
	scheme.Default(pod)
	ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{APIVersion: "v1", Resource: "pods"})
	errs := rest.DeclarativeValidation{Scheme: scheme}.ValidateDeclaratively(ctx, pod, nil, check.Run(func(c *check.Checker) { podspec.ValidatePodCreate(c, pod) }),
		operation.Create, rest.DeclarativeValidationConfig{Options: DeclaredOptions()})
	if len(errs) != 1 || errs[0].Field != "spec.tolerations[0].key" {
		t.Errorf("errors %q, want one, of spec.tolerations[0].key", texts(errs))
	}
}

func texts(errs field.ErrorList) []string {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return texts
}
