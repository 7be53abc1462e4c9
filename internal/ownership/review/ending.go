// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/finalizer"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// ended explains a deletion, from its record or from the history.
func (e *explanation) ended(ctx context.Context, r graph.Resource, ending deletion.Ending) ownership.ExplainedDeletion {
	if !ending.Recorded {
		return e.unrecorded(ctx, r, ending)
	}
	d := e.deletion(ctx, r, ending.Record)
	if d.Because == nil && !ending.Record.IsCollected() {
		e.because(ctx, &d, ending.Record.Namespace, e.cascade(ctx, ending.Record), nil)
	}
	return d
}

// deletion explains a recorded deletion.
func (e *explanation) deletion(ctx context.Context, r graph.Resource, record deletion.Record) ownership.ExplainedDeletion {
	d := ownership.ExplainedDeletion{
		Object: ownership.ObjectReference{
			APIVersion: r.GroupVersion().String(), Kind: r.Kind, Namespace: record.Namespace, Name: record.Name, UID: record.UID,
		},
		By: agentOf(record.By), PropagationPolicy: record.Policy, ResourceVersion: record.ResourceVersion,
	}
	if !record.Time.IsZero() {
		d.Time = &record.Time
	}
	switch {
	case d.By.Kind == ownership.AgentGarbageCollector:
		e.because(ctx, &d, record.Namespace, record.Owners, record.InOtherNamespace)
	case record.By.User == namespaceController:
		d.Because = []ownership.ObjectReference{{APIVersion: "v1", Kind: "Namespace", Name: record.Namespace}}
	case d.By.Kind == ownership.AgentServer:
		d.Because = []ownership.ObjectReference{{
			APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: r.GroupResource().String(),
		}}
	}
	return d
}

// unrecorded explains a deletion that has no record, from the history: an update removed the last
// finalizer, or the collector was killed before it wrote the record.
func (e *explanation) unrecorded(ctx context.Context, r graph.Resource, ending deletion.Ending) ownership.ExplainedDeletion {
	d := e.deletion(ctx, r, ending.Record)
	absent, elsewhere := e.absent(ending.Record.Namespace, ending.End.Object.GetOwnerReferences())
	e.because(ctx, &d, ending.Record.Namespace, absent, elsewhere)
	return d
}

// absent returns the owners of a deleted object, unless one of them exists. elsewhere are the
// owners in another namespace, which never count.
func (e *explanation) absent(namespace string, owners []metav1.OwnerReference) (absent []metav1.OwnerReference, elsewhere []types.UID) {
	for _, ref := range owners {
		owner, known := e.object(ref.UID)
		switch {
		case known && owner.Namespaced && owner.Namespace != namespace:
			elsewhere = append(elsewhere, ref.UID)
		case known && !owner.Deleting:
			return nil, nil
		}
	}
	return owners, elsewhere
}

// because adds the owners that caused a deletion, and hides those that the caller may not read.
func (e *explanation) because(ctx context.Context, d *ownership.ExplainedDeletion, namespace string, owners []metav1.OwnerReference, elsewhere []types.UID) {
	for _, owner := range owners {
		ref := ownership.ObjectReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: namespace, Name: owner.Name, UID: owner.UID}
		isElsewhere := slices.Contains(elsewhere, owner.UID)
		if isElsewhere {
			// Once the owner is gone its namespace is not known, and only a caller who may read
			// all namespaces may read it.
			known, _ := e.object(owner.UID)
			ref.Namespace = known.Namespace
		}
		r, err := e.servedOrFormer(ctx, owner.APIVersion, owner.Kind)
		if err == nil && !r.Namespaced {
			ref.Namespace = ""
		}
		switch {
		case err == nil && !e.access.mayGet(ctx, r, ref.Namespace, ref.Name):
			d.Hidden++
			e.hide(ref)
		case isElsewhere:
			d.InvalidOwners = append(d.InvalidOwners, ref)
		default:
			d.Because = append(d.Because, ref)
		}
	}
}

// The user names of the cluster's own components.
var (
	collectorUser       = serviceaccount.MakeUsername(metav1.NamespaceSystem, "generic-garbage-collector")
	namespaceController = serviceaccount.MakeUsername(metav1.NamespaceSystem, "namespace-controller")
	controllerUsers     = serviceaccount.MakeUsername(metav1.NamespaceSystem, "")
)

const (
	nodeUsers      = "system:node:"
	simulatedNodes = "kindred:simulated-nodes"
	// controllerAgent is the start of the user agent of the cluster's controllers.
	controllerAgent = "kube-controller-manager/"
)

// agentOf converts a caller to the API's type, with its kind.
func agentOf(c deletion.Caller) ownership.DeletionAgent {
	return ownership.DeletionAgent{Kind: kindOf(c), User: c.User, UserAgent: c.Agent, AuditID: c.AuditID}
}

func kindOf(c deletion.Caller) ownership.AgentKind {
	switch {
	case c.User == "":
		return ownership.AgentUnknown
	case c.User == collectorUser:
		return ownership.AgentGarbageCollector
	case c.User == user.APIServerUser:
		return ownership.AgentServer
	case c.User == simulatedNodes, strings.HasPrefix(c.User, nodeUsers):
		return ownership.AgentNode
	case c.User == user.KubeControllerManager, c.User == user.KubeScheduler,
		strings.HasPrefix(c.User, controllerUsers) && strings.HasPrefix(c.Agent, controllerAgent):
		return ownership.AgentController
	case strings.HasPrefix(c.User, serviceaccount.ServiceAccountUsernamePrefix):
		return ownership.AgentServiceAccount
	}
	return ownership.AgentUser
}

// waits explains what the deletion of an object waits for.
func (e *explanation) waits(ctx context.Context, object graph.Object) error {
	known := map[types.UID]graph.Object{}
	var blocks []graph.Block
	e.Collector.View(func(g *graph.Graph) {
		blocks = g.Waits(object.UID)
		for _, b := range blocks {
			if o, ok := g.Object(b.Dependent); ok {
				known[o.UID] = o
			}
		}
	})
	for _, b := range e.blocks(ctx, known, blocks) {
		e.status.WaitsFor = append(e.status.WaitsFor, ownership.DeletionWait{DeletionBlock: b, Message: finalizer.Remover(b.Finalizer)})
	}
	whole, err := e.Objects.Resource(object.GroupVersionResource).Namespace(object.Namespace).Get(ctx, object.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	e.status.Messages = append(e.status.Messages, progress(object.Resource, whole)...)
	return nil
}

// progress returns messages about the deletion from the object's own spec and status.
func progress(r graph.Resource, o *unstructured.Unstructured) []string {
	switch r.GroupResource().String() {
	case "pods":
		node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
		if node == "" || o.GetDeletionTimestamp() == nil {
			return nil
		}
		return []string{fmt.Sprintf("node %s has to stop its containers first; they are killed by %s at the latest", node, o.GetDeletionTimestamp().UTC().Format(time.RFC3339))}
	case "namespaces":
		return contentConditions(o)
	}
	return nil
}

// contentConditions returns the messages of a namespace's conditions about its remaining content.
func contentConditions(o *unstructured.Unstructured) []string {
	var messages []string
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if !ok || condition["status"] != string(metav1.ConditionTrue) {
			continue
		}
		if message, _ := condition["message"].(string); message != "" {
			messages = append(messages, message)
		}
	}
	return messages
}
