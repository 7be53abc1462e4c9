// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func compare(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestRuntimeClassValidation(t *testing.T) {
	label, qualified := validation.IsDNS1123Label("A")[0], validation.IsQualifiedName("a b")[0]
	overhead := func(list corev1.ResourceList) *nodev1.Overhead { return &nodev1.Overhead{PodFixed: list} }
	tolerations := func(list ...corev1.Toleration) *nodev1.Scheduling { return &nodev1.Scheduling{Tolerations: list} }
	gpu := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	gpuForAWhile := gpu
	gpuForAWhile.TolerationSeconds = new(int64(5))
	for name, test := range map[string]struct {
		class nodev1.RuntimeClass
		want  []string
	}{
		"plain":       {nodev1.RuntimeClass{Handler: "runc"}, nil},
		"no handler":  {nodev1.RuntimeClass{}, []string{"handler: Required value"}},
		"a handler":   {nodev1.RuntimeClass{Handler: "A"}, []string{`handler: Invalid value: "A": ` + label}},
		"an overhead": {nodev1.RuntimeClass{Handler: "kata", Overhead: overhead(corev1.ResourceList{"cpu": resource.MustParse("250m")})}, nil},
		"a negative overhead": {nodev1.RuntimeClass{Handler: "kata", Overhead: overhead(corev1.ResourceList{"cpu": resource.MustParse("-1")})},
			[]string{`overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0`}},
		"a selector":  {nodev1.RuntimeClass{Handler: "kata", Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"a b": "c"}}}, []string{`scheduling.nodeSelector: Invalid value: "a b": ` + qualified}},
		"tolerations": {nodev1.RuntimeClass{Handler: "kata", Scheduling: tolerations(gpu, corev1.Toleration{Operator: corev1.TolerationOpExists})}, nil},
		"a toleration": {nodev1.RuntimeClass{Handler: "kata", Scheduling: tolerations(corev1.Toleration{})},
			[]string{"scheduling.tolerations[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\""}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, checktest.Errors(t.Context(), RuntimeClass.Validate, &test.class), test.want...)
		})
	}
	twice := checktest.Errors(t.Context(), RuntimeClass.Validate, &nodev1.RuntimeClass{Handler: "kata", Scheduling: tolerations(gpu, gpuForAWhile)})
	if len(twice) != 1 || twice[0].Type != field.ErrorTypeDuplicate || twice[0].Field != "scheduling.tolerations[1]" {
		t.Errorf("the same for a while: %v", twice)
	}
}

func TestRuntimeClassUpdate(t *testing.T) {
	old := &nodev1.RuntimeClass{Handler: "runc"}
	compare(t, checktest.UpdateErrors(t.Context(), RuntimeClass.ValidateUpdate, &nodev1.RuntimeClass{Handler: "runc", Scheduling: &nodev1.Scheduling{}}, old))
	compare(t, checktest.UpdateErrors(t.Context(), RuntimeClass.ValidateUpdate, &nodev1.RuntimeClass{Handler: "kata"}, old), `handler: Invalid value: "kata": field is immutable`)
}

func TestRuntimeClassWarnings(t *testing.T) {
	c := &nodev1.RuntimeClass{Handler: "runc"}
	if got := RuntimeClass.Warnings(t.Context(), c, nil); got != nil {
		t.Errorf("%q", got)
	}
	c.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{"beta.kubernetes.io/os": "linux", "a": "b"}}
	want := []string{`scheduling.nodeSelector: deprecated since v1.14; use "kubernetes.io/os" instead`}
	if diff := cmp.Diff(want, RuntimeClass.Warnings(t.Context(), c, nil)); diff != "" {
		t.Error(diff)
	}
}

// TestDeclaredValidations checks that the generated validations are registered with the scheme.
func TestDeclaredValidations(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := Group().Register(scheme); err != nil {
		t.Fatal(err)
	}
	compare(t, scheme.Validate(t.Context(), nil, &nodev1.RuntimeClass{}, ""), "handler: Required value")
}
