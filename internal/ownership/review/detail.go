// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"context"
	"slices"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
	"github.com/kindred-project/kindred/internal/ownership/undelete"
)

// sortObjects sorts siblings.
func sortObjects(objects []graph.Object) {
	slices.SortFunc(objects, func(a, b graph.Object) int { return referenceOf(a).Compare(referenceOf(b)) })
}

// few is the number of objects in one place up to which they are read one by one. For more, a list
// is cheaper.
const few = 16

// read reads the chosen objects in full. It omits those that no longer exist.
func (q *question) read(ctx context.Context, objects map[types.UID]graph.Object, chosen map[types.UID]bool) (map[types.UID]detail, error) {
	places := map[place][]graph.Object{}
	for id, o := range objects {
		if chosen[id] {
			p := place{o.Resource, o.Namespace}
			places[p] = append(places[p], o)
		}
	}
	details := map[types.UID]detail{}
	for p, objects := range places {
		read := q.get
		if len(objects) > few {
			read = q.list
		}
		found, err := read(ctx, p, objects)
		if err != nil {
			return nil, err
		}
		for i := range found {
			if chosen[found[i].GetUID()] {
				details[found[i].GetUID()] = detailOf(&found[i])
			}
		}
	}
	return details, nil
}

func (q *question) get(ctx context.Context, p place, objects []graph.Object) ([]unstructured.Unstructured, error) {
	var found []unstructured.Unstructured
	for _, o := range objects {
		object, err := q.Objects.Resource(p.GroupVersionResource).Namespace(p.namespace).Get(ctx, o.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		default:
			found = append(found, *object)
		}
	}
	return found, nil
}

func (q *question) list(ctx context.Context, p place, _ []graph.Object) ([]unstructured.Unstructured, error) {
	list, err := q.Objects.Resource(p.GroupVersionResource).Namespace(p.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func detailOf(o *unstructured.Unstructured) detail {
	d := detail{created: o.GetCreationTimestamp(), deleted: o.GetDeletionTimestamp()}
	d.readiness, d.message = readinessOf(o)
	d.part = clusterPartOf(o)
	d.hold = undelete.HoldOf(o, o.GroupVersionKind().GroupKind())
	return d
}

// readinessOf computes the readiness by the rules of kstatus
// (https://github.com/fluxcd/cli-utils/tree/main/pkg/kstatus), which "helm install --wait" and
// Flux use, and by one additional rule: see unavailable.
func readinessOf(o *unstructured.Unstructured) (ownership.Readiness, string) {
	result, err := status.Compute(o)
	if err != nil {
		return ownership.ReadinessUnknown, err.Error()
	}
	switch result.Status {
	case status.CurrentStatus:
		if message, found := unavailable(o); found {
			return ownership.ReadinessInProgress, message
		}
		return ownership.ReadinessReady, result.Message
	case status.InProgressStatus:
		return ownership.ReadinessInProgress, result.Message
	case status.FailedStatus:
		return ownership.ReadinessFailed, result.Message
	case status.TerminatingStatus:
		return ownership.ReadinessTerminating, result.Message
	}
	return ownership.ReadinessUnknown, result.Message
}

// unavailable reports whether a condition Available exists and is not True, and returns its
// message. kstatus handles only the generic conditions Ready, Reconciling and Stalled, but many
// kinds summarize their state in Available: APIServices, and Clusters, Machines and control planes
// of Cluster API (its v1beta2 conditions). A condition Paused is ignored, because the other
// conditions remain valid.
func unavailable(o *unstructured.Unstructured) (message string, found bool) {
	object, err := status.GetObjectWithConditions(o.Object)
	if err != nil {
		return "", false
	}
	for _, c := range object.Status.Conditions {
		if c.Type == "Available" && c.Status != corev1.ConditionTrue {
			return cmp.Or(c.Message, c.Reason, "Available is "+string(c.Status)), true
		}
	}
	return "", false
}
