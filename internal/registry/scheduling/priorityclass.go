// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
	"github.com/kindred-project/kindred/internal/registry/scheduling/podgroup"
)

// Priorities above highestUserPriority belong to the system's own classes.
const (
	highestUserPriority = int32(1000000000)
	systemPrefix        = "system-"
)

// SystemClasses are the classes that every cluster has.
func SystemClasses() []schedulingv1.PriorityClass {
	return []schedulingv1.PriorityClass{
		{
			ObjectMeta:  metav1.ObjectMeta{Name: "system-node-critical"},
			Value:       2*highestUserPriority + 1000,
			Description: "Used for system critical pods that must not be moved from their current node.",
		},
		{
			ObjectMeta:  metav1.ObjectMeta{Name: "system-cluster-critical"},
			Value:       2 * highestUserPriority,
			Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
		},
	}
}

// Group is scheduling.k8s.io.
func Group() generic.Group {
	return generic.Group{
		Name:     schedulingv1.GroupName,
		Priority: 16600,
		Scheme:   []func(*runtime.Scheme) error{schedulingv1.AddToScheme, AddToScheme},
		Versions: []generic.Version{
			{Name: "v1", Resources: []generic.Resource{PriorityClass}},
			{
				Name: "v1beta1", OffByDefault: true,
				Scheme:    []func(*runtime.Scheme) error{podgroup.AddToScheme},
				Resources: []generic.Resource{podgroup.Workload, podgroup.PodGroup},
			},
		},
	}
}

// PriorityClass names a priority of pods.
var PriorityClass = generic.Kind[*schedulingv1.PriorityClass]{
	Name: "PriorityClass", Plural: "priorityclasses", ShortNames: []string{"pc"}, ClusterScoped: true,
	New:     func() *schedulingv1.PriorityClass { return &schedulingv1.PriorityClass{} },
	NewList: func() runtime.Object { return &schedulingv1.PriorityClassList{} },
	Prepare: func(_ context.Context, p, old *schedulingv1.PriorityClass) {
		if old == nil {
			p.Generation = 1
		}
	},
	Validate:       validatePriorityClass,
	ValidateUpdate: validatePriorityClassUpdate,
	Columns: []generic.Column[*schedulingv1.PriorityClass]{
		{Name: "Value", Type: "integer", Description: schedulingv1.PriorityClass{}.SwaggerDoc()["value"], Cell: func(p *schedulingv1.PriorityClass) any { return p.Value }},
		{Name: "Global-Default", Type: "boolean", Description: schedulingv1.PriorityClass{}.SwaggerDoc()["globalDefault"], Cell: func(p *schedulingv1.PriorityClass) any { return p.GlobalDefault }},
	},
	Table: generic.Table[*schedulingv1.PriorityClass]{AfterAge: []generic.Column[*schedulingv1.PriorityClass]{
		{Name: "PreemptionPolicy", Description: schedulingv1.PriorityClass{}.SwaggerDoc()["preemptionPolicy"], Cell: func(p *schedulingv1.PriorityClass) any { return string(ptr.Deref(p.PreemptionPolicy, "")) }},
	}},
}

func registerDefaults(scheme *runtime.Scheme) error {
	scheme.AddTypeDefaultingFunc(&schedulingv1.PriorityClass{}, func(obj any) {
		if p := obj.(*schedulingv1.PriorityClass); p.PreemptionPolicy == nil {
			p.PreemptionPolicy = new(corev1.PreemptLowerPriority)
		}
	})
	return nil
}

func validatePriorityClass(_ context.Context, c *check.Checker, p *schedulingv1.PriorityClass) {
	switch {
	case strings.HasPrefix(p.Name, systemPrefix):
		if err := isSystemClass(p); err != nil {
			c.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with '"+systemPrefix+"' prefix are reserved for system use only. error: "+err.Error())
		}
	case p.Value > highestUserPriority:
		c.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUserPriority))
	}
	validatePreemption(c, p.PreemptionPolicy)
}

func isSystemClass(p *schedulingv1.PriorityClass) error {
	for _, class := range SystemClasses() {
		if class.Name != p.Name {
			continue
		}
		if class.Value != p.Value {
			return fmt.Errorf("value of %v PriorityClass must be %v", class.Name, class.Value)
		}
		if class.GlobalDefault != p.GlobalDefault {
			return fmt.Errorf("globalDefault of %v PriorityClass must be %v", class.Name, class.GlobalDefault)
		}
		return nil
	}
	return fmt.Errorf("%v is not a known system priority class", p.Name)
}

func validatePreemption(c *check.Checker, policy *corev1.PreemptionPolicy) {
	if policy != nil {
		check.RequiredOneOf(c, field.NewPath("preemptionPolicy"), *policy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
}

// validatePriorityClassUpdate forbids changes of fields that admission copied to pods.
func validatePriorityClassUpdate(_ context.Context, c *check.Checker, p, old *schedulingv1.PriorityClass) {
	if p.Value != old.Value {
		c.Forbidden(field.NewPath("value"), "may not be changed in an update.")
	}
	c.Immutable(field.NewPath("preemptionPolicy"), p.PreemptionPolicy, old.PreemptionPolicy)
}
