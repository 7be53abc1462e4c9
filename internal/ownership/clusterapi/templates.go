// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Template names a template in the namespace of the object that names it.
type Template struct {
	schema.GroupKind
	Name string
}

// NamesTemplates reports whether the controller of a kind makes its object, or the Cluster of that, an owner of the templates that the
// object names.
func NamesTemplates(kind schema.GroupKind) bool {
	switch kind.Group {
	case Core:
		return kind == ClusterClass || kind.Kind == "MachineDeployment" || kind.Kind == "MachineSet"
	case ControlPlane:
		return strings.HasSuffix(kind.Kind, "ControlPlane")
	}
	return false
}

// remediation are the fields of a ClusterClass that name a template of a MachineHealthCheck, which gets no owner.
var remediation = map[string]bool{"remediation": true, "remediationTemplate": true}

// TemplatesOf returns the templates that the spec of such an object names, in any version of its API.
func TemplatesOf(object *unstructured.Unstructured) []Template {
	return templatesIn(object.Object["spec"], nil)
}

func templatesIn(value any, found []Template) []Template {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			found = templatesIn(item, found)
		}
	case map[string]any:
		if t, ok := templateOf(value); ok {
			return append(found, t)
		}
		for field, inner := range value {
			if !remediation[field] {
				found = templatesIn(inner, found)
			}
		}
	}
	return found
}

// templateOf returns the template that a reference names: with apiVersion, or, in MachineDeployments and the like since v1beta2, apiGroup.
func templateOf(reference map[string]any) (Template, bool) {
	text := func(field string) string { s, _ := reference[field].(string); return s }
	group := text("apiGroup")
	if gv, err := schema.ParseGroupVersion(text("apiVersion")); group == "" && err == nil {
		group = gv.Group
	}
	t := Template{schema.GroupKind{Group: group, Kind: text("kind")}, text("name")}
	return t, t.Name != "" && Has(group) && strings.HasSuffix(t.Kind, "Template")
}
