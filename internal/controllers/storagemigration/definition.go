// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// definitionManager is the field manager for CustomResourceDefinitions, with upstream's name.
const definitionManager = "migration-runner-controller"

// statusChange returns the condition and the stored versions of a definition.
type statusChange func(*apiextensionsv1.CustomResourceDefinition) (reason, message string, running bool, stored []string)

// startCondition reports a running migration, and keeps the stored versions.
func startCondition(migration string) statusChange {
	return func(crd *apiextensionsv1.CustomResourceDefinition) (string, string, bool, []string) {
		return reasonRunning, fmt.Sprintf("Migration %s is running", migration), true, crd.Status.StoredVersions
	}
}

// endCondition reports the result of a migration. After success, only the current version is stored, unless
// the definition was changed during the migration.
func endCondition(succeeded bool) statusChange {
	return func(crd *apiextensionsv1.CustomResourceDefinition) (string, string, bool, []string) {
		switch {
		case !succeeded:
			return "MigrationFailed", "The migration has failed", false, crd.Status.StoredVersions
		case !isUnchangedSinceStart(crd):
			return "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch", false, crd.Status.StoredVersions
		default:
			return "MigrationSucceeded", "The migration has succeeded and the stored versions have been updated", false, []string{storageVersion(crd)}
		}
	}
}

// isUnchangedSinceStart reports whether a definition is unchanged since its migration started.
func isUnchangedSinceStart(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.StorageMigrating {
			return c.ObservedGeneration == crd.Generation
		}
	}
	return false
}

func storageVersion(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			return version.Name
		}
	}
	return ""
}

// updateDefinition updates the status of a custom resource's definition. A conflict is returned, and
// retried.
func (r *reconciler) updateDefinition(ctx context.Context, m *migration, change statusChange) error {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	name := m.Spec.Resource.Resource + "." + m.Spec.Resource.Group
	if err := r.live.Get(ctx, client.ObjectKey{Name: name}, found); err != nil {
		return client.IgnoreNotFound(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, crd); err != nil {
		return err
	}
	status, err := statusOf(crd, change, r.clock.Now())
	if err != nil {
		return err
	}
	return r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(status), client.ForceOwnership, client.FieldOwner(definitionManager))
}

// statusOf returns the status to apply.
func statusOf(crd *apiextensionsv1.CustomResourceDefinition, change statusChange, now time.Time) (*unstructured.Unstructured, error) {
	reason, message, running, stored := change(crd)
	isRunning := apiextensionsv1.ConditionFalse
	if running {
		isRunning = apiextensionsv1.ConditionTrue
	}
	encoded, err := json.Marshal(map[string]any{
		"apiVersion": apiextensionsv1.SchemeGroupVersion.String(), "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": crd.Name, "resourceVersion": crd.ResourceVersion},
		"status": map[string]any{
			"storedVersions": stored,
			"conditions": []apiextensionsv1.CustomResourceDefinitionCondition{{
				Type: apiextensionsv1.StorageMigrating, Status: isRunning, LastTransitionTime: metav1.NewTime(now),
				Reason: reason, Message: message, ObservedGeneration: crd.Generation,
			}},
		},
	})
	if err != nil {
		return nil, err
	}
	status := &unstructured.Unstructured{}
	return status, status.UnmarshalJSON(encoded)
}
