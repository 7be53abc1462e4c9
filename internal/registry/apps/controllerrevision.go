// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// ControllerRevision is a state to which a controller can roll back. Its data is immutable.
var ControllerRevision = generic.Kind[*appsv1.ControllerRevision]{
	Name: "ControllerRevision", Plural: "controllerrevisions",
	Metadata:       generic.Metadata{ValidateAsNew: true},
	New:            func() *appsv1.ControllerRevision { return &appsv1.ControllerRevision{} },
	NewList:        func() runtime.Object { return &appsv1.ControllerRevisionList{} },
	Validate:       validateControllerRevision,
	ValidateUpdate: validateControllerRevisionUpdate,
	Columns: []generic.Column[*appsv1.ControllerRevision]{
		{Name: "Controller", Description: "Controller of the object", Cell: revisionController},
		{Name: "Revision", Description: appsv1.ControllerRevision{}.SwaggerDoc()["revision"], Cell: func(c *appsv1.ControllerRevision) any { return c.Revision }},
	},
}

// revisionController returns the controller in kubectl's notation: deployment.apps/web.
func revisionController(c *appsv1.ControllerRevision) any {
	ref := metav1.GetControllerOf(c)
	if ref == nil {
		return generic.OrNone("")
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	return strings.ToLower(kind.String()) + "/" + ref.Name
}

func validateControllerRevision(_ context.Context, c *appsv1.ControllerRevision) field.ErrorList {
	return append(nonNegative(field.NewPath("revision"), c.Revision), validateRevisionData(c.Data.Raw)...)
}

func validateRevisionData(raw []byte) field.ErrorList {
	path := field.NewPath("data")
	if raw == nil {
		return field.ErrorList{field.Required(path, "data is mandatory")}
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return field.ErrorList{field.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data: %v", err))}
	}
	if value == nil {
		return field.ErrorList{field.Required(path, "data is mandatory")}
	}
	if _, ok := value.(map[string]any); !ok {
		return field.ErrorList{field.Required(path, "data must be a valid JSON object")}
	}
	return nil
}

func validateControllerRevisionUpdate(_ context.Context, c, old *appsv1.ControllerRevision) field.ErrorList {
	return append(nonNegative(field.NewPath("revision"), c.Revision),
		validation.ValidateImmutableField(c.Data, old.Data, field.NewPath("data"))...)
}
