// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
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

func validateControllerRevision(_ context.Context, c *check.Checker, revision *appsv1.ControllerRevision) {
	c.NonNegative(field.NewPath("revision"), int64(revision.Revision))
	validateRevisionData(c, revision.Data.Raw)
}

func validateRevisionData(c *check.Checker, raw []byte) {
	path := field.NewPath("data")
	if raw == nil {
		c.Required(path, "data is mandatory")
		return
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		c.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data: %v", err))
		return
	}
	if value == nil {
		c.Required(path, "data is mandatory")
		return
	}
	if _, ok := value.(map[string]any); !ok {
		c.Required(path, "data must be a valid JSON object")
	}
}

func validateControllerRevisionUpdate(_ context.Context, c *check.Checker, revision, old *appsv1.ControllerRevision) {
	c.NonNegative(field.NewPath("revision"), int64(revision.Revision))
	c.Immutable(field.NewPath("data"), revision.Data, old.Data)
}
