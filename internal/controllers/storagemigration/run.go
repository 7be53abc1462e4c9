// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/served"
)

const (
	// servedWithin is the time that the resource of a new migration may take to be
	// served: a new CRD is not served immediately.
	servedWithin = time.Minute
	// page is the number of objects in one list.
	page = 500
)

// verbs holds the verbs that a resource must support.
var verbs = []string{"update", "patch", "list"}

// run records the newest resourceVersion, or migrates.
func (r *reconciler) run(ctx context.Context, m *migration) error {
	resource, err := served.LookUp(r.discovery, schema.GroupResource(m.Spec.Resource))
	switch {
	case err != nil:
		return err
	case resource == nil && r.clock.Since(m.CreationTimestamp.Time) < servedWithin:
		return fmt.Errorf("%s is not served yet", m.Spec.Resource)
	case resource == nil:
		return r.fail(ctx, m, "resource does not exist in discovery")
	case m.Status.ResourceVersion == "":
		return r.recordVersion(ctx, m, resource)
	default:
		return r.migrate(ctx, m, resource)
	}
}

// recordVersion records the newest resourceVersion. Objects that are written later need no
// migration.
func (r *reconciler) recordVersion(ctx context.Context, m *migration, resource *served.Resource) error {
	if !resource.Can(verbs...) {
		return r.fail(ctx, m, fmt.Sprintf("resource %q does not support discovery operations: %v", resource.String(), verbs))
	}
	newest := listOf(resource)
	if err := r.live.List(ctx, newest, client.Limit(1)); err != nil {
		return fmt.Errorf("error getting latest resourceVersion for %s: %w", resource.String(), err)
	}
	if _, err := resourceversion.CompareResourceVersion(newest.ResourceVersion, newest.ResourceVersion); err != nil {
		return r.fail(ctx, m, fmt.Sprintf("latest resourceVersion for %s is not valid: %s", resource.String(), err))
	}
	m.Status.ResourceVersion = newest.ResourceVersion
	return r.write(ctx, m)
}

// listOf returns a metadata list for a resource.
func listOf(resource *served.Resource) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(resource.Kind.GroupVersion().WithKind(resource.Kind.Kind + "List"))
	return list
}

// migrate rewrites all objects that are not newer than the recorded resourceVersion. It can be
// repeated, since rewritten objects are newer.
func (r *reconciler) migrate(ctx context.Context, m *migration, resource *served.Resource) error {
	waiting, total, err := r.waiting(ctx, m, resource)
	if err != nil {
		return err
	}
	for i := range waiting {
		p := progress{left: len(waiting) - i, total: total}
		err := r.touch(ctx, resource, &waiting[i])
		switch {
		// The object was written by another client, or deleted: it is done.
		case err == nil, apierrors.IsConflict(err), apierrors.IsNotFound(err):
		case isTransient(err):
			p.err = err
			if r.set(m, migrationv1.MigrationRunning, metav1.ConditionTrue, reasonRunning, p.message()) {
				_ = r.write(ctx, m) // best effort: the error below is retried
			}
			return err
		default:
			r.set(m, migrationv1.MigrationRunning, metav1.ConditionTrue, reasonRunning, p.message())
			return r.fail(ctx, m, fmt.Sprintf("%d/%d not yet migrated. migration encountered unhandled error: %s", p.left, p.total, err))
		}
	}
	r.set(m, migrationv1.MigrationRunning, metav1.ConditionTrue, reasonRunning, progress{total: total}.message())
	r.set(m, migrationv1.MigrationSucceeded, metav1.ConditionTrue, reasonSucceeded, "Migration completed")
	return r.write(ctx, m)
}

// waiting returns the objects that are not newer than the recorded resourceVersion, and the number
// of all objects.
func (r *reconciler) waiting(ctx context.Context, m *migration, resource *served.Resource) (waiting []metav1.PartialObjectMetadata, total int, err error) {
	for list := listOf(resource); ; {
		if err := r.live.List(ctx, list, client.Limit(page), client.Continue(list.Continue)); err != nil {
			return nil, 0, err
		}
		for i := range list.Items {
			order, err := resourceversion.CompareResourceVersion(list.Items[i].ResourceVersion, m.Status.ResourceVersion)
			if err != nil {
				return nil, 0, err
			}
			if order <= 0 {
				// Only the name is kept, since there may be many objects.
				o := &list.Items[i]
				waiting = append(waiting, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion}})
			}
		}
		total += len(list.Items)
		if list.Continue == "" {
			return waiting, total, nil
		}
	}
}

// touch rewrites an object with an empty patch: the server stores it if its encoding has changed.
func (r *reconciler) touch(ctx context.Context, resource *served.Resource, object *metav1.PartialObjectMetadata) error {
	apiVersion, kind := resource.Kind.ToAPIVersionAndKind()
	patch, err := json.Marshal(map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]string{"resourceVersion": object.ResourceVersion},
	})
	if err != nil {
		return err
	}
	object.SetGroupVersionKind(resource.Kind)
	return r.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(Name))
}

// isTransient reports whether a retry may succeed.
func isTransient(err error) bool {
	return utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsProbableEOF(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err)
}
