// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kindred-project/kindred/internal/registry/apps"
)

// meaningOf notes what differs between two versions besides fields and defaults.
func meaningOf(in, out *unstructured.Unstructured, v conversion) []string {
	var notes []string
	if v.stored.Group == "apps" {
		notes = append(notes, selectorNote(v)...)
		notes = append(notes, deletionNote(v)...)
		notes = append(notes, carriedNotes(in, out, v)...)
	}
	selector, found, _ := unstructured.NestedMap(in.Object, "spec", "selector")
	if v.from == policyv1beta1.SchemeGroupVersion.WithKind("PodDisruptionBudget") && found && len(selector) == 0 {
		notes = append(notes, "spec.selector: an empty selector selects no pods in policy/v1beta1 and all pods in policy/v1; written as an expression that selects none")
	}
	return notes
}

func selectorNote(v conversion) []string {
	had, has := apps.MutableSelectors(v.from.GroupVersion()), apps.MutableSelectors(v.to.GroupVersion())
	if had == has || !slices.Contains([]string{"Deployment", "ReplicaSet", "DaemonSet"}, v.from.Kind) {
		return nil
	}
	if had {
		return []string{fmt.Sprintf("spec.selector: cannot be changed in %s; it could be in %s", v.to.GroupVersion(), v.from.GroupVersion())}
	}
	return []string{fmt.Sprintf("spec.selector: can be changed in %s; it could not be in %s", v.to.GroupVersion(), v.from.GroupVersion())}
}

func deletionNote(v conversion) []string {
	had, has := apps.OrphansByDefault(v.from.GroupVersion()), apps.OrphansByDefault(v.to.GroupVersion())
	if had == has || !slices.Contains([]string{"Deployment", "ReplicaSet", "DaemonSet", "StatefulSet"}, v.from.Kind) {
		return nil
	}
	verb := map[bool]string{true: "orphans", false: "deletes"}
	return []string{fmt.Sprintf("a DELETE request without propagation policy %s dependents in %s; in %s it %s them",
		verb[has], v.to.GroupVersion(), v.from.GroupVersion(), verb[had])}
}

// carriers are the annotations that are fields in older versions.
var carriers = []struct{ field, annotation, effect string }{
	{"rollbackTo", appsv1.DeprecatedRollbackTo, "on which the Deployment controller still acts, once"},
	{"templateGeneration", appsv1.DeprecatedTemplateGeneration, "which the server sets itself"},
}

// withCarried returns the fields of an object with the field rollbackTo that its annotation carries: its
// only value may be zero, and must not be trimmed.
func withCarried(in *unstructured.Unstructured) map[string]any {
	if _, found := in.GetAnnotations()[appsv1.DeprecatedRollbackTo]; !found {
		return in.Object
	}
	fields := runtime.DeepCopyJSON(in.Object)
	path{"spec", "rollbackTo"}.set(fields, map[string]any{})
	return fields
}

func carriedNotes(in, out *unstructured.Unstructured, v conversion) []string {
	var notes []string
	for _, c := range carriers {
		_, was := in.GetAnnotations()[c.annotation]
		_, is := out.GetAnnotations()[c.annotation]
		switch {
		case is && !was:
			notes = append(notes, fmt.Sprintf("spec.%s: is the annotation %s in %s, %s", c.field, c.annotation, v.to.GroupVersion(), c.effect))
		case was && !is:
			notes = append(notes, fmt.Sprintf("metadata.annotations: %s is the field spec.%s in %s", c.annotation, c.field, v.to.GroupVersion()))
		}
	}
	return notes
}

// createdByAnnotation named the creator of a pod before there were owner references.
const createdByAnnotation = "kubernetes.io/created-by"

// createdBy notes that the annotation has no meaning, in an object or in its pod template.
func createdBy(in *unstructured.Unstructured) []string {
	var notes []string
	for _, at := range [][]string{{"metadata"}, {"spec", "template", "metadata"}} {
		annotations, _, _ := unstructured.NestedMap(in.Object, append(slices.Clone(at), "annotations")...)
		if _, found := annotations[createdByAnnotation]; found {
			where := path{}
			for _, name := range at {
				where = where.child(name)
			}
			notes = append(notes, fmt.Sprintf("%s.annotations: %s has no meaning since Kubernetes 1.9; the controller of an object is in metadata.ownerReferences", where, createdByAnnotation))
		}
	}
	return notes
}
