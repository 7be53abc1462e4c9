// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/core/volumespec"
	"github.com/kindred-project/kindred/internal/registry/core/workload"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// StatefulSet runs pods with stable names and storage.
var StatefulSet = generic.Kind[*appsv1.StatefulSet]{
	Name: "StatefulSet", Plural: "statefulsets", ShortNames: []string{"sts"}, Categories: []string{"all"},
	New:     func() *appsv1.StatefulSet { return &appsv1.StatefulSet{} },
	NewList: func() runtime.Object { return &appsv1.StatefulSetList{} },
	// Its name is part of its pods' hostnames.
	Metadata:       generic.Metadata{ValidName: validation.NameIsDNSLabel},
	Spec:           func(s *appsv1.StatefulSet) any { return &s.Spec },
	Status:         func(s *appsv1.StatefulSet) any { return &s.Status },
	Deletion:       generic.Deletion[*appsv1.StatefulSet]{OrphanByDefault: OrphansByDefault},
	Prepare:        dropAlphaFields(func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template }),
	Validate:       validateStatefulSet,
	ValidateUpdate: validateStatefulSetUpdate,
	StatusUpdate:   generic.Update[*appsv1.StatefulSet]{Validate: validateStatefulSetStatus},
	Warnings:       warnStatefulSet,
	Scale: &generic.Scale[*appsv1.StatefulSet]{
		Replicas: func(s *appsv1.StatefulSet) **int32 { return &s.Spec.Replicas },
		Current:  func(s *appsv1.StatefulSet) int32 { return s.Status.Replicas },
		Selector: func(s *appsv1.StatefulSet) *metav1.LabelSelector { return s.Spec.Selector },
	},
	Columns: append([]generic.Column[*appsv1.StatefulSet]{
		{Name: "Ready", Description: "Number of the pod with ready state", Cell: func(s *appsv1.StatefulSet) any {
			return fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 0))
		}},
	}, containerColumns(func(s *appsv1.StatefulSet) corev1.PodSpec { return s.Spec.Template.Spec })...),
}

func validateStatefulSet(_ context.Context, c *check.Checker, s *appsv1.StatefulSet) {
	validateStatefulSetSpec(c, &s.Spec, statefulSetRules{new: true, templates: podspec.ValidatePodTemplateSpec}, field.NewPath("spec"))
}

// statefulSetRules select the rules for a new StatefulSet, or for an update.
type statefulSetRules struct {
	// new also checks immutable fields.
	new       bool
	templates func(*check.Checker, *corev1.PodTemplateSpec, *field.Path)
}

func validateClaimTemplates(c *check.Checker, templates []corev1.PersistentVolumeClaim, path *field.Path) {
	for i := range templates {
		volumespec.ValidatePersistentVolumeClaimSpec(c, &templates[i].Spec, path.Index(i).Child("spec"))
	}
}

// validateStatefulSetUpdate does not block updates of objects that older versions accepted: it does
// not validate immutable fields again, nor the template if the old spec is invalid.
func validateStatefulSetUpdate(_ context.Context, c *check.Checker, s, old *appsv1.StatefulSet) {
	rules := statefulSetRules{templates: podspec.ValidatePodTemplateSpec}
	if len(check.Run(func(c *check.Checker) { validateStatefulSetSpec(c, &old.Spec, rules, nil) })) > 0 {
		rules.templates = func(*check.Checker, *corev1.PodTemplateSpec, *field.Path) {}
	}
	spec := field.NewPath("spec")
	validateStatefulSetSpec(c, &s.Spec, rules, spec)
	c.Declared().Immutable(spec.Child("selector"), s.Spec.Selector, old.Spec.Selector)
	c.Declared().Immutable(spec.Child("volumeClaimTemplates"), s.Spec.VolumeClaimTemplates, old.Spec.VolumeClaimTemplates)
	c.Declared().Immutable(spec.Child("serviceName"), s.Spec.ServiceName, old.Spec.ServiceName)
	c.Declared().Immutable(spec.Child("podManagementPolicy"), s.Spec.PodManagementPolicy, old.Spec.PodManagementPolicy)
}

func validateStatefulSetSpec(c *check.Checker, spec *appsv1.StatefulSetSpec, rules statefulSetRules, path *field.Path) {
	validatePodManagement(c, spec.PodManagementPolicy, path.Child("podManagementPolicy"))
	validateStatefulSetStrategy(c, &spec.UpdateStrategy, path.Child("updateStrategy"))
	if retention := spec.PersistentVolumeClaimRetentionPolicy; retention != nil {
		at := path.Child("persistentVolumeClaimRetentionPolicy")
		validateRetention(c, retention.WhenDeleted, at.Child("whenDeleted"))
		validateRetention(c, retention.WhenScaled, at.Child("whenScaled"))
	}
	if rules.new {
		validateClaimTemplates(c, spec.VolumeClaimTemplates, path.Child("volumeClaimTemplates"))
	}
	check.NonNegativePtr(c, path.Child("replicas"), spec.Replicas)
	c.NonNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	if spec.Ordinals != nil {
		c.NonNegative(path.Child("ordinals.start"), int64(spec.Ordinals.Start))
	}
	if rules.new && spec.ServiceName != "" {
		c.DNSLabel(path.Child("serviceName"), spec.ServiceName)
	}
	if spec.Selector == nil {
		c.Declared().Required(path.Child("selector"), "")
	}
	validateSelector(c, spec.Selector, "statefulset", path.Child("selector"))
	validateStatefulSetTemplate(c, spec, rules, path)
	workload.ValidateRestartsAlways(c, &spec.Template.Spec, "StatefulSet", path.Child("template", "spec"))
}

func validatePodManagement(c *check.Checker, policy appsv1.PodManagementPolicyType, path *field.Path) {
	switch policy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	case "":
		c.Required(path, "")
	default:
		c.Invalid(path, policy, fmt.Sprintf("must be '%s' or '%s'", appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement))
	}
}

func validateStatefulSetStrategy(c *check.Checker, strategy *appsv1.StatefulSetUpdateStrategy, path *field.Path) {
	rolling := path.Child("rollingUpdate")
	switch strategy.Type {
	case appsv1.RollingUpdateStatefulSetStrategyType:
		validateStatefulSetRolling(c, strategy.RollingUpdate, rolling)
	case appsv1.OnDeleteStatefulSetStrategyType:
		if strategy.RollingUpdate != nil {
			c.Invalid(rolling, strategy.RollingUpdate, fmt.Sprintf("only allowed for updateStrategy '%s'", appsv1.RollingUpdateStatefulSetStrategyType))
		}
	case "":
		c.Required(path, "")
	default:
		c.Invalid(path, *strategy, fmt.Sprintf("must be '%s' or '%s'", appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType))
	}
}

func validateStatefulSetRolling(c *check.Checker, rolling *appsv1.RollingUpdateStatefulSetStrategy, path *field.Path) {
	if rolling == nil {
		return
	}
	check.NonNegativePtr(c, path.Child("partition"), rolling.Partition)
	if rolling.MaxUnavailable == nil {
		return
	}
	unavailable := path.Child("maxUnavailable")
	countOrPercent(c, rolling.MaxUnavailable, unavailable)
	if isZero(rolling.MaxUnavailable) {
		c.Invalid(unavailable, *rolling.MaxUnavailable, "cannot be 0")
	}
	atMost100Percent(c, rolling.MaxUnavailable, unavailable)
}

func validateRetention(c *check.Checker, policy appsv1.PersistentVolumeClaimRetentionPolicyType, path *field.Path) {
	check.OneOf(c, path, policy, appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType)
}

// validateStatefulSetTemplate checks the template as the controller will use it.
func validateStatefulSetTemplate(c *check.Checker, spec *appsv1.StatefulSetSpec, rules statefulSetRules, path *field.Path) {
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	if err != nil {
		c.Invalid(path.Child("selector"), spec.Selector, "")
		return
	}
	at, template := path.Child("template"), identified(spec)
	workload.ValidateSelected(c, template, selector, at)
	rules.templates(c, template, at)
	podspec.ValidatePodTemplateMeta(c, template, at)
}

// identified returns the template without the fields that the controller overwrites in each pod
// (hostname and subdomain), and with the volumes that it adds.
func identified(spec *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	template := spec.Template.DeepCopy()
	template.Spec.Hostname, template.Spec.Subdomain = "", ""
	if len(spec.VolumeClaimTemplates) == 0 {
		return template
	}
	claimed := map[string]bool{}
	var volumes []corev1.Volume
	for _, claim := range spec.VolumeClaimTemplates {
		if claimed[claim.Name] {
			continue
		}
		claimed[claim.Name] = true
		volumes = append(volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}})
	}
	for _, volume := range template.Spec.Volumes {
		if !claimed[volume.Name] {
			volumes = append(volumes, volume)
		}
	}
	template.Spec.Volumes = volumes
	return template
}

func validateStatefulSetStatus(_ context.Context, c *check.Checker, set, old *appsv1.StatefulSet) {
	status, s := field.NewPath("status"), &set.Status
	workload.ValidateCounts(c, status, s.Replicas, workload.Count{Name: "readyReplicas", Value: s.ReadyReplicas}, workload.Count{Name: "currentReplicas", Value: s.CurrentReplicas},
		workload.Count{Name: "updatedReplicas", Value: s.UpdatedReplicas}, workload.Count{Name: "availableReplicas", Value: s.AvailableReplicas})
	c.NonNegative(status.Child("observedGeneration"), int64(s.ObservedGeneration))
	if s.AvailableReplicas > s.ReadyReplicas {
		c.Invalid(status.Child("availableReplicas"), s.AvailableReplicas, "cannot be greater than status.readyReplicas")
	}
	validateCollisions(c, status, s.CollisionCount, old.Status.CollisionCount)
}

func warnStatefulSet(_ context.Context, s, old *appsv1.StatefulSet) []string {
	var out []string
	spec := field.NewPath("spec")
	if old == nil || s.Generation != old.Generation {
		out = podspec.TemplateWarnings(&s.Spec.Template, spec.Child("template"))
	}
	for i := range s.Spec.VolumeClaimTemplates {
		at := spec.Child("volumeClaimTemplates").Index(i)
		if old != nil {
			at = at.Child("Spec") // as kube-apiserver spells it
		}
		out = append(out, core.ClaimSpecWarnings(&s.Spec.VolumeClaimTemplates[i].Spec, at)...)
	}
	if limit := s.Spec.RevisionHistoryLimit; limit != nil && *limit < 0 {
		out = append(out, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return out
}
