// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func class(name string, value int32, policy ...corev1.PreemptionPolicy) *schedulingv1.PriorityClass {
	p := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	if len(policy) > 0 {
		p.PreemptionPolicy = &policy[0]
	}
	return p
}

func TestPriorityClasses(t *testing.T) {
	for name, test := range map[string]struct {
		class *schedulingv1.PriorityClass
		want  string
	}{
		"good":           {class("a", 1000000000, corev1.PreemptNever), ""},
		"too high":       {class("a", 1000000001), "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"},
		"a system class": {class("system-node-critical", 2000001000), ""},
		"a wrong value":  {class("system-node-critical", 5), "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-node-critical PriorityClass must be 2000001000"},
		"an unknown one": {class("system-mine", 5), "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class"},
		"a policy":       {class("a", 1, "Sometimes"), `preemptionPolicy: Unsupported value: "Sometimes": supported values: "PreemptLowerPriority", "Never"`},
		"no policy":      {class("a", 1, ""), "preemptionPolicy: Required value"},
	} {
		errs := checktest.Errors(t.Context(), PriorityClass.Validate, test.class)
		if test.want == "" && len(errs) > 0 || test.want != "" && (len(errs) != 1 || errs[0].Error() != test.want) {
			t.Errorf("%s: %v, want %q", name, errs, test.want)
		}
	}
	for _, system := range SystemClasses() {
		if errs := checktest.Errors(t.Context(), PriorityClass.Validate, &system); len(errs) > 0 {
			t.Errorf("%s: %v", system.Name, errs)
		}
	}
}

func TestPriorityClassUpdate(t *testing.T) {
	old := class("a", 1, corev1.PreemptNever)
	changed := class("a", 2, corev1.PreemptLowerPriority)
	changed.Description = "may change"
	errs := checktest.UpdateErrors(t.Context(), PriorityClass.ValidateUpdate, changed, old)
	if len(errs) != 2 || errs[0].Error() != "value: Forbidden: may not be changed in an update." || !strings.HasPrefix(errs[1].Error(), "preemptionPolicy: Invalid value") {
		t.Errorf("%v", errs)
	}
	PriorityClass.Prepare(t.Context(), changed, nil)
	if changed.Generation != 1 {
		t.Errorf("generation %d", changed.Generation)
	}
}
