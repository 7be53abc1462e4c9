// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// HoldOf explains the hold that an object is on: whether it comes from an undeletion or was set by
// hand, and how to remove it. It returns nil for an object that is not on hold.
func HoldOf(object metav1.Object, kind schema.GroupKind) *ownership.Hold {
	value, annotated := object.GetAnnotations()[ownership.HoldAnnotation]
	if !annotated || object.GetDeletionTimestamp() != nil {
		return nil
	}
	self := kubectlName(kind.String(), object.GetName())
	removeHold := fmt.Sprintf("kubectl annotate%s %s %s-", inNamespace(object), self, ownership.HoldAnnotation)
	marked := &unstructured.Unstructured{}
	marked.SetGroupVersionKind(kind.WithVersion("any")) // markOf ignores the version.
	marked.SetName(object.GetName())
	marked.SetAnnotations(map[string]string{ownership.HoldAnnotation: value})
	m, byUndeletion := markOf(marked)
	switch {
	case !byUndeletion:
		return &ownership.Hold{
			Message: "controllers are paused for it by its annotation " + ownership.HoldAnnotation,
			Remedy:  fmt.Sprintf("release it with %q", removeHold),
		}
	case m.Of == "":
		return &ownership.Hold{
			Undeletion: string(m.Root),
			Message:    fmt.Sprintf("the undeletion of the object that had the UID %s is not finished", m.Root),
			Remedy:     "undelete that object again to continue",
		}
	}
	group, name, _ := strings.Cut(m.Of, "/")
	root := kubectlName(group, name)
	return &ownership.Hold{
		Undeletion: root,
		Message:    fmt.Sprintf("the undeletion of %s is not finished", root),
		Remedy:     fmt.Sprintf("continue with %q", "kindred undelete"+inNamespace(object)+" "+root),
	}
}

// kubectlName returns TYPE/NAME, as kubectl accepts it.
func kubectlName(kind, name string) string { return strings.ToLower(kind) + "/" + name }

// inNamespace returns the -n flag for the object's namespace, with a space before it.
func inNamespace(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return ""
	}
	return " -n " + object.GetNamespace()
}
