// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is node.k8s.io.
func Group() generic.Group {
	return generic.Group{
		Name:     nodev1.GroupName,
		Priority: 16300,
		Scheme:   []func(*runtime.Scheme) error{nodev1.AddToScheme, AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{RuntimeClass}}},
	}
}

// RuntimeClass names a handler of the container runtime, its overhead for each pod, and the nodes
// that support it.
var RuntimeClass = generic.Kind[*nodev1.RuntimeClass]{
	Name: "RuntimeClass", Plural: "runtimeclasses", ClusterScoped: true,
	Metadata:               generic.Metadata{ValidateAsNew: true, AnyFinalizer: true},
	New:                    func() *nodev1.RuntimeClass { return &nodev1.RuntimeClass{} },
	NewList:                func() runtime.Object { return &nodev1.RuntimeClassList{} },
	Validate:               validateRuntimeClass,
	ValidateUpdate:         validateRuntimeClassUpdate,
	Warnings:               runtimeClassWarnings,
	CreateOnUpdate:         true,
	RequireResourceVersion: true,
	Columns: []generic.Column[*nodev1.RuntimeClass]{{
		Name: "Handler", Cell: func(c *nodev1.RuntimeClass) any { return c.Handler },
	}},
}

var handlerPath = field.NewPath("handler")

func runtimeClassWarnings(_ context.Context, c, _ *nodev1.RuntimeClass) []string {
	if c.Scheduling == nil {
		return nil
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
		if warning := podspec.NodeLabelWarning(key); warning != "" {
			out = append(out, fmt.Sprintf("scheduling.nodeSelector: %s", warning))
		}
	}
	return out
}

func validateRuntimeClass(_ context.Context, c *check.Checker, class *nodev1.RuntimeClass) {
	validateHandler(c, class.Handler)
	if class.Overhead != nil {
		// Overhead follows the rules of a container's limits.
		limits := &corev1.ResourceRequirements{Limits: class.Overhead.PodFixed}
		podspec.ValidateResourceRequirements(c, limits, nil, field.NewPath("overhead"))
	}
	if class.Scheduling == nil {
		return
	}
	path := field.NewPath("scheduling")
	c.Labels(path.Child("nodeSelector"), class.Scheduling.NodeSelector)
	validateTolerations(c, class.Scheduling.Tolerations, path.Child("tolerations"))
}

func validateRuntimeClassUpdate(ctx context.Context, c *check.Checker, class, old *nodev1.RuntimeClass) {
	validateRuntimeClass(ctx, c, class)
	c.Declared().Immutable(handlerPath, class.Handler, old.Handler)
}

func validateHandler(c *check.Checker, handler string) {
	if handler == "" {
		c.Declared().Required(handlerPath, "")
		return
	}
	for _, problem := range apivalidation.NameIsDNSLabel(handler, false) {
		c.Declared().Add(field.Invalid(handlerPath, handler, problem).WithOrigin("format=k8s-short-name"))
	}
}

// validateTolerations forbids tolerations that differ only in tolerationSeconds.
func validateTolerations(c *check.Checker, tolerations []corev1.Toleration, path *field.Path) {
	podspec.ValidateTolerations(c, tolerations, path)
	seen := sets.New[corev1.Toleration]()
	for i, toleration := range tolerations {
		key := toleration
		key.TolerationSeconds = nil
		if seen.Has(key) {
			c.Duplicate(path.Index(i), toleration)
		}
		seen.Insert(key)
	}
}
