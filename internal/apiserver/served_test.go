// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestIsDecided(t *testing.T) {
	condition := func(kind apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus, reason string) apiextensionsv1.CustomResourceDefinitionCondition {
		return apiextensionsv1.CustomResourceDefinitionCondition{Type: kind, Status: status, Reason: reason}
	}
	accepted := condition(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionTrue, "NoConflicts")
	for name, test := range map[string]struct {
		conditions []apiextensionsv1.CustomResourceDefinitionCondition
		deleted    bool
		want       bool
	}{
		"just created": {},
		"names accepted, not yet established": {conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			accepted, condition(apiextensionsv1.Established, apiextensionsv1.ConditionFalse, "Installing")}},
		"just created and deleted": {deleted: true, want: true},
		"established": {want: true, conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			accepted, condition(apiextensionsv1.Established, apiextensionsv1.ConditionTrue, "InitialNamesAccepted")}},
		"names taken": {want: true, conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			condition(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse, "PluralConflict"),
			condition(apiextensionsv1.Established, apiextensionsv1.ConditionFalse, "NotAccepted")}},
		"CA bundle invalid": {want: true, conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			accepted, condition(apiextensionsv1.Established, apiextensionsv1.ConditionFalse, "InvalidCABundle")}},
	} {
		definition := &apiextensionsv1.CustomResourceDefinition{Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: test.conditions}}
		if test.deleted {
			definition.DeletionTimestamp = &metav1.Time{}
		}
		if got := isDecided(definition); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestAreListed(t *testing.T) {
	lists := []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods"}}},
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "databases"}, {Name: "databases/status"}}},
	}
	custom := schema.GroupVersion{Group: "example.com", Version: "v1"}
	for name, test := range map[string]struct {
		want map[schema.GroupVersion]sets.Set[string]
		ok   bool
	}{
		"built-in":         {map[schema.GroupVersion]sets.Set[string]{{Version: "v1"}: nil}, true},
		"custom":           {map[schema.GroupVersion]sets.Set[string]{custom: sets.New("databases")}, true},
		"absent version":   {map[schema.GroupVersion]sets.Set[string]{{Group: "example.com", Version: "v2"}: nil}, false},
		"absent resource":  {map[schema.GroupVersion]sets.Set[string]{custom: sets.New("databases", "tables")}, false},
		"nothing expected": {nil, true},
	} {
		if got := areListed(test.want, lists); got != test.ok {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
