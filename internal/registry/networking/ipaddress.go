// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// IPAddress records the owner of an address. Its name is the address in canonical form, so that each
// address is allocated once (KEP-1880).
var IPAddress = generic.Kind[*networkingv1.IPAddress]{
	Name: "IPAddress", Plural: "ipaddresses", ShortNames: []string{"ip"}, ClusterScoped: true,
	Metadata: generic.Metadata{ValidateAsNew: true, ValidName: nameIsAddress},
	New:      func() *networkingv1.IPAddress { return &networkingv1.IPAddress{} },
	NewList:  func() runtime.Object { return &networkingv1.IPAddressList{} },
	Validate: func(_ context.Context, c *check.Checker, a *networkingv1.IPAddress) {
		validateParent(c, a.Spec.ParentRef, parentPath)
	},
	ValidateUpdate: func(_ context.Context, c *check.Checker, a, old *networkingv1.IPAddress) {
		validateParent(c, a.Spec.ParentRef, parentPath)
		c.Declared().Immutable(parentPath, a.Spec.ParentRef, old.Spec.ParentRef)
	},
	Table: generic.Table[*networkingv1.IPAddress]{ColumnsOnly: true}, // upstream has no column AGE
	Columns: []generic.Column[*networkingv1.IPAddress]{
		generic.NameColumn[*networkingv1.IPAddress](),
		{Name: "ParentRef", Description: networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"], Cell: parentText},
	},
}

var parentPath = field.NewPath("spec", "parentRef")

func nameIsAddress(name string, _ bool) []string {
	var problems []string
	for _, err := range utilvalidation.IsValidIP(nil, name) {
		problems = append(problems, err.Detail)
	}
	return problems
}

func parentText(a *networkingv1.IPAddress) any {
	ref := a.Spec.ParentRef
	if ref == nil {
		return generic.OrNone("")
	}
	text := strings.ToLower(schema.GroupResource{Group: ref.Group, Resource: ref.Resource}.String())
	if ref.Namespace != "" {
		text += "/" + ref.Namespace
	}
	return text + "/" + ref.Name
}

// validateParent requires a resource and a name. The group may be empty, as for Services.
func validateParent(c *check.Checker, ref *networkingv1.ParentReference, path *field.Path) {
	if ref == nil {
		c.Declared().Required(path, "")
		return
	}
	c.DNSSubdomainOrEmpty(path.Child("group"), ref.Group)
	for _, part := range []struct {
		name, value string
		optional    bool
	}{{"resource", ref.Resource, false}, {"name", ref.Name, false}, {"namespace", ref.Namespace, true}} {
		switch {
		case part.value != "":
			c.Invalid(path.Child(part.name), part.value, content.IsPathSegmentName(part.value)...)
		case !part.optional:
			c.Declared().Required(path.Child(part.name), "")
		}
	}
}
