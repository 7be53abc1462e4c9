// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// perform performs an action and returns its outcome.
func (c *Collector) perform(ctx context.Context, a graph.Action) graph.Outcome {
	if a.Verb == graph.Lookup {
		return c.Lookup(ctx, a)
	}
	client := c.Metadata.Resource(a.Resource).Namespace(a.Namespace)
	var (
		object *metav1.PartialObjectMetadata
		err    error
	)
	switch a.Verb {
	case graph.Delete:
		err = client.Delete(ctx, a.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &a.UID, ResourceVersion: &a.ResourceVersion},
			PropagationPolicy: &a.Policy,
		})
	case graph.DropOwners:
		object, err = c.patch(ctx, client, a, "ownerReferences", a.OwnerReferences)
	case graph.RemoveFinalizer:
		object, err = c.patch(ctx, client, a, "finalizers", a.Finalizers)
	}
	switch {
	case err == nil && object != nil:
		return graph.Outcome{Result: graph.Applied, Object: object}
	case err == nil:
		return graph.Outcome{Result: graph.Applied}
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// The object has changed or was deleted. Get it, because the error may also come from
		// an admission webhook and be about something else.
		return c.get(ctx, client, a)
	}
	return c.failed(ctx, a, err)
}

// Lookup performs a Lookup action.
func (c *Collector) Lookup(ctx context.Context, a graph.Action) graph.Outcome {
	return c.get(ctx, c.Metadata.Resource(a.Resource).Namespace(a.Namespace), a)
}

// get reads the object of an action. An object with another UID counts as absent.
func (c *Collector) get(ctx context.Context, client metadata.ResourceInterface, a graph.Action) graph.Outcome {
	object, err := client.Get(ctx, a.Name, metav1.GetOptions{})
	switch {
	case isObjectNotFound(err):
		return graph.Outcome{Result: graph.Absent}
	case err != nil:
		return c.failed(ctx, a, err)
	case object.UID != a.UID:
		return graph.Outcome{Result: graph.Absent}
	}
	return graph.Outcome{Result: graph.Found, Object: object}
}

// isObjectNotFound reports whether err means that a served resource has no such object. A 404 for a
// path that is not served does not prove that.
func isObjectNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// failed logs err and returns the outcome of a failed action, which the graph retries.
func (c *Collector) failed(ctx context.Context, a graph.Action, err error) graph.Outcome {
	if apierrors.IsNotFound(err) {
		c.refreshSoon() // The resource is no longer served.
	}
	if ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Action failed, will be tried again", "verb", a.Verb,
			"resource", a.Resource, "object", klog.KRef(a.Namespace, a.Name), "err", err)
	}
	return graph.Outcome{Result: graph.Failed}
}

// patch sets one field of the metadata, with the preconditions of the action. A JSON merge patch
// replaces whole lists and works for every resource, including custom resources.
func (c *Collector) patch(ctx context.Context, client metadata.ResourceInterface, a graph.Action, field string, value any) (*metav1.PartialObjectMetadata, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             a.UID,
		"resourceVersion": a.ResourceVersion,
		field:             value,
	}})
	if err != nil {
		return nil, err
	}
	return client.Patch(ctx, a.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

// report records the event of a Report action.
func (c *Collector) report(a graph.Action) {
	c.Events.Event(&corev1.ObjectReference{
		APIVersion: a.Resource.GroupVersion().String(),
		Kind:       a.Kind,
		Namespace:  a.Namespace,
		Name:       a.Name,
		UID:        a.UID,
	}, corev1.EventTypeWarning, a.Reason, a.Message)
}
