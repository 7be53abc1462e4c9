// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package priority

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func class(name string, value int32, isDefault bool, policy *corev1.PreemptionPolicy) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault, PreemptionPolicy: policy}
}

func newPlugin(t *testing.T, classes ...*schedulingv1.PriorityClass) *Plugin {
	t.Helper()
	factory := informers.NewSharedInformerFactory(nil, 0)
	p := New()
	p.SetExternalKubeInformerFactory(factory)
	p.SetReadyFunc(func() bool { return true })
	for _, c := range classes {
		if err := factory.Scheduling().V1().PriorityClasses().Informer().GetIndexer().Add(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	return p
}

var (
	lower = ptr.To(corev1.PreemptLowerPriority)
	never = ptr.To(corev1.PreemptNever)
)

func TestResolve(t *testing.T) {
	high, polite := class("high", 1000, false, lower), class("polite", 5, false, never)
	system := class("system-node-critical", 2000001000, false, lower)
	base, lowest := class("base", 10, true, never), class("lowest", -3, true, nil)
	type spec struct {
		class    string
		priority *int32
		policy   *corev1.PreemptionPolicy
	}
	tests := []struct {
		name    string
		classes []*schedulingv1.PriorityClass
		give    spec
		want    spec
		err     string
	}{
		{name: "no class, no default", want: spec{priority: ptr.To[int32](0), policy: lower}},
		{name: "named", classes: []*schedulingv1.PriorityClass{high, base}, give: spec{class: "high"}, want: spec{"high", ptr.To[int32](1000), lower}},
		{name: "never preempts", classes: []*schedulingv1.PriorityClass{polite}, give: spec{class: "polite"}, want: spec{"polite", ptr.To[int32](5), never}},
		{name: "system class", classes: []*schedulingv1.PriorityClass{system}, give: spec{class: "system-node-critical"}, want: spec{"system-node-critical", ptr.To[int32](2000001000), lower}},
		{name: "default class", classes: []*schedulingv1.PriorityClass{high, base}, want: spec{"base", ptr.To[int32](10), never}},
		{name: "the lower of two defaults", classes: []*schedulingv1.PriorityClass{base, lowest}, want: spec{"lowest", ptr.To[int32](-3), nil}},
		{name: "priority equal to that of the class", classes: []*schedulingv1.PriorityClass{high}, give: spec{"high", ptr.To[int32](1000), lower}, want: spec{"high", ptr.To[int32](1000), lower}},
		{name: "policy of the pod, class without one", classes: []*schedulingv1.PriorityClass{lowest}, give: spec{policy: never}, want: spec{"lowest", ptr.To[int32](-3), never}},
		{name: "no such class", give: spec{class: "high"}, err: `pods "p" is forbidden: no PriorityClass with name high was found`},
		{name: "priority differs from that of the class", classes: []*schedulingv1.PriorityClass{high}, give: spec{class: "high", priority: ptr.To[int32](7)}, err: "the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name"},
		{name: "priority without a class", give: spec{priority: ptr.To[int32](7)}, err: "computed 0 from the given PriorityClass name"},
		{name: "policy differs from that of the class", classes: []*schedulingv1.PriorityClass{high}, give: spec{class: "high", policy: never}, err: "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p"},
				Spec: corev1.PodSpec{PriorityClassName: tt.give.class, Priority: tt.give.priority, PreemptionPolicy: tt.give.policy}}
			err := newPlugin(t, tt.classes...).Admit(context.Background(), admissiontest.Request{Operation: admission.Create, Resource: "pods", Object: pod}.Attributes(), nil)
			if tt.err != "" {
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := spec{pod.Spec.PriorityClassName, pod.Spec.Priority, pod.Spec.PreemptionPolicy}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(spec{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUpdateKeepsResolvedPriority(t *testing.T) {
	old := &corev1.Pod{Spec: corev1.PodSpec{Priority: ptr.To[int32](9), PreemptionPolicy: never}}
	pod := &corev1.Pod{}
	r := admissiontest.Request{Operation: admission.Update, Resource: "pods", Object: pod, Old: old}
	if err := newPlugin(t).Admit(context.Background(), r.Attributes(), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(old.Spec, pod.Spec); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyOneDefaultClass(t *testing.T) {
	base := class("base", 10, true, nil)
	tests := []struct {
		name      string
		existing  []*schedulingv1.PriorityClass
		operation admission.Operation
		class     *schedulingv1.PriorityClass
		refused   bool
	}{
		{"first default", nil, admission.Create, base, false},
		{"no default", []*schedulingv1.PriorityClass{base}, admission.Create, class("x", 1, false, nil), false},
		{"second default", []*schedulingv1.PriorityClass{base}, admission.Create, class("x", 1, true, nil), true},
		{"another becomes the default", []*schedulingv1.PriorityClass{base, class("x", 1, false, nil)}, admission.Update, class("x", 1, true, nil), true},
		{"the default is unchanged", []*schedulingv1.PriorityClass{base}, admission.Update, base, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var old runtime.Object
			if tt.operation == admission.Update {
				old = tt.class
			}
			r := admissiontest.Request{Operation: tt.operation, Resource: "priorityclasses.scheduling.k8s.io", Object: tt.class, Old: old}
			err := newPlugin(t, tt.existing...).Validate(context.Background(), r.Attributes(), nil)
			if tt.refused && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PriorityClass base is already marked as default. Only one default can exist")) || !tt.refused && err != nil {
				t.Errorf("refused %v: %v", tt.refused, err)
			}
		})
	}
}

func TestIgnoresOtherResources(t *testing.T) {
	pod := &corev1.Pod{}
	for _, resource := range []string{"pods/binding", "configmaps"} {
		r := admissiontest.Request{Operation: admission.Create, Resource: resource, Object: pod}
		if err := newPlugin(t).Admit(context.Background(), r.Attributes(), nil); err != nil || pod.Spec.Priority != nil {
			t.Errorf("%s: %v, %v", resource, err, pod.Spec.Priority)
		}
	}
}

func TestPriorityOfPodGroups(t *testing.T) {
	p := newPlugin(t, class("high", 1000, false, never), class("base", 10, true, lower))
	for name, test := range map[string]struct {
		class     string
		priority  *int32
		wantClass string
		want      int32
		wantError string
	}{
		"class":          {"high", nil, "high", 1000, ""},
		"default class":  {"", nil, "base", 10, ""},
		"same priority":  {"high", new(int32(1000)), "high", 1000, ""},
		"other priority": {"high", new(int32(5)), "", 0, "priority set in the pod group (5) must match the priority computed (1000) based on the priority class set in the spec"},
		"unknown class":  {"none", nil, "", 0, "no PriorityClass with name none was found"},
	} {
		group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g"}}
		group.Spec.PriorityClassName, group.Spec.Priority = test.class, test.priority
		request := admissiontest.Request{Operation: admission.Create, Resource: "podgroups.scheduling.k8s.io", Object: group}
		err := p.Admit(t.Context(), request.Attributes(), nil)
		if test.wantError != "" {
			if err == nil || !strings.Contains(err.Error(), test.wantError) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || group.Spec.PriorityClassName != test.wantClass || *group.Spec.Priority != test.want {
			t.Errorf("%s: %v, %+v", name, err, group.Spec)
		}
		if group.Spec.PreemptionPolicy != nil {
			t.Errorf("%s: the preemption policy of a PodGroup is alpha", name)
		}
	}
}
