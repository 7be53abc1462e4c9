// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	migrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func expect(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func of(group, resource string) *migrationv1.StorageVersionMigration {
	return &migrationv1.StorageVersionMigration{Spec: migrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Group: group, Resource: resource}}}
}

func TestResources(t *testing.T) {
	kind := StorageVersionMigration
	expect(t, checktest.Errors(t.Context(), kind.Validate, of("", "secrets")))
	expect(t, checktest.Errors(t.Context(), kind.Validate, of("a", "")), "spec.resource.resource: Required value: resource is required to be set")
	expect(t, checktest.Errors(t.Context(), kind.Validate, of("-", "A")),
		`spec.resource.resource: Invalid value: "A": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`,
		`spec.resource.group: Invalid value: "-": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`)
	if errs := checktest.UpdateErrors(t.Context(), kind.ValidateUpdate, of("", "secrets"), of("", "pods")); len(errs) != 1 || errs[0].Field != "spec" || errs[0].Detail != "field is immutable" {
		t.Errorf("%v", errs)
	}
}

func condition(name string, status metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: name, Status: status, Reason: "Because", LastTransitionTime: metav1.Unix(1, 0)}
}

func with(version string, conditions ...metav1.Condition) *migrationv1.StorageVersionMigration {
	m := of("", "secrets")
	m.Status = migrationv1.StorageVersionMigrationStatus{ResourceVersion: version, Conditions: conditions}
	return m
}

func TestStatus(t *testing.T) {
	succeeded, failed := condition("Succeeded", metav1.ConditionTrue), condition("Failed", metav1.ConditionTrue)
	for name, test := range map[string]struct {
		now, old *migrationv1.StorageVersionMigration
		want     []string
	}{
		"running":             {now: with("5", condition("Running", metav1.ConditionTrue)), old: with("")},
		"done":                {now: with("5", succeeded), old: with("5")},
		"no version":          {now: with("x"), old: with(""), want: []string{`status.resourceVersion: Invalid value: "x": resource version is not well formed: x`}},
		"another version":     {now: with("6"), old: with("5"), want: []string{`status.resourceVersion: Invalid value: "6": field is immutable`}},
		"both":                {now: with("", succeeded, failed), old: with(""), want: []string{"Both success and failed conditions cannot be true at the same time"}},
		"no longer succeeded": {now: with(""), old: with("", succeeded), want: []string{"Success condition cannot be set to false once it is true"}},
		"no longer failed":    {now: with(""), old: with("", failed), want: []string{"Failed condition cannot be set to false once it is true"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range checktest.UpdateErrors(t.Context(), StorageVersionMigration.StatusUpdate.Validate, test.now, test.old) {
				if err.Field == "status.conditions" {
					got = append(got, err.Detail)
					continue
				}
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	for want, m := range map[string]*migrationv1.StorageVersionMigration{
		"Unknown": with("", condition("Running", metav1.ConditionFalse)), "Running": with("", condition("Running", metav1.ConditionTrue)),
		"Succeeded": with("", condition("Running", metav1.ConditionTrue), condition("Succeeded", metav1.ConditionTrue)),
	} {
		if got := progress(m); got != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}
