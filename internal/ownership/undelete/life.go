// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// leaveUnviable leaves items that the API would accept, but a controller would delete at once. If
// the root is such an item, that is a problem.
func (u *undeletion) leaveUnviable(ctx context.Context) error {
	if u.stage == releasing {
		return nil
	}
	surplus, err := u.surplus(ctx)
	if err != nil {
		return err
	}
	accounts, err := u.accounts(ctx)
	if err != nil {
		return err
	}
	collected := u.collected()
	for _, item := range u.items { // owners first
		if item.Outcome != ownership.UndeletionPending {
			continue
		}
		reason := cmp.Or(collected[item], surplus[item], lacksNeed(item, accounts))
		if item != u.root && isAbandoned(item) {
			reason = abandoned(item)
		}
		if reason == "" {
			continue
		}
		item.Outcome, item.Reason = ownership.UndeletionLeft, reason
		if item == u.root {
			u.problem("%s would be deleted again at once: %s", item, reason)
		}
	}
	return nil
}

// collected returns the pending items that the garbage collector would delete, and why. It runs the
// collector's own state machine on a graph of the items as they would be created. In that graph
// every object has its former UID, because owner references name former UIDs.
func (u *undeletion) collected() map[*Item]string {
	g := graph.New()
	for _, r := range u.Resources() {
		g.Serve(r)
		g.Replace(r.GroupResource(), nil, "0")
	}
	pending := map[types.UID]*Item{}
	for _, item := range u.items {
		meta := metav1.ObjectMeta{Namespace: item.Namespace(), Name: item.Name(), UID: item.FormerUID(), ResourceVersion: "1"}
		switch {
		case item.Outcome == ownership.UndeletionPending:
			pending[item.FormerUID()] = item
			meta.OwnerReferences = u.rehearsedOwners(g, item)
		case item.now != nil: // Observe it without owners: its own fate does not matter here.
			meta.DeletionTimestamp, meta.Finalizers = item.now.GetDeletionTimestamp(), item.now.GetFinalizers()
		default:
			continue
		}
		g.Observe(item.Resource.GroupResource(), &meta)
	}
	reasons := map[*Item]string{}
	for action, more := g.Next(); more; action, more = g.Next() {
		switch action.Verb {
		case graph.Lookup:
			// All existing owners are observed: a reference to be looked up names none of them.
			g.Done(action, graph.Outcome{Result: graph.Absent})
		case graph.Delete:
			if item := pending[action.UID]; item != nil {
				reasons[item] = u.whyCollected(item, action.Because)
			}
			g.Forget(action.Resource.GroupResource(), &metav1.ObjectMeta{UID: action.UID, ResourceVersion: "2"})
			g.Done(action, graph.Outcome{Result: graph.Applied})
		case graph.DropOwners, graph.RemoveFinalizer:
			g.Done(action, graph.Outcome{Result: graph.Applied})
		}
	}
	return reasons
}

// rehearsedOwners returns the owner references that an item would be created with. It adds the
// owners outside of the undeletion to g.
func (u *undeletion) rehearsedOwners(g *graph.Graph, item *Item) []metav1.OwnerReference {
	return slices.DeleteFunc(item.then.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		if owner := ownerOf(item, ref.UID); owner != nil {
			return isLeft(owner) && owner.now == nil
		}
		outside, exists := u.Owner(ref.UID)
		switch {
		case exists:
			meta := metav1.ObjectMeta{Namespace: outside.Namespace, Name: outside.Name, UID: outside.UID, ResourceVersion: "1", Finalizers: outside.Finalizers}
			if outside.Deleting {
				meta.DeletionTimestamp = &metav1.Time{}
			}
			g.Observe(outside.GroupResource(), &meta)
		case u.outside[ref.UID] != "": // The collector may not have observed it yet.
			if r, served := u.Served(groupKindOf(ref)); served {
				meta := metav1.ObjectMeta{Name: ref.Name, UID: ref.UID, ResourceVersion: "1"}
				if r.Namespaced {
					meta.Namespace = item.Namespace()
				}
				g.Observe(r.GroupResource(), &meta)
			}
		}
		return !u.keeps(item, ref)
	})
}

// ownerOf returns the owner of an item with a former UID; nil if it is outside of the graph.
func ownerOf(item *Item, former types.UID) *Item {
	for _, owner := range item.owners {
		if owner.FormerUID() == former {
			return owner
		}
	}
	return nil
}

// whyCollected describes the faults of the owner references because of which the collector
// would delete an item.
func (u *undeletion) whyCollected(item *Item, because []metav1.OwnerReference) string {
	for _, ref := range because {
		owner, exists := u.Owner(ref.UID)
		name := ref.Kind + " " + ref.Name
		switch {
		case !exists && ownerOf(item, ref.UID) == nil:
			continue
		case owner.Namespace != "" && owner.Namespace != item.Namespace():
			return fmt.Sprintf("its owner %s is in another namespace, which is not valid: the garbage collector would delete it", name)
		case owner.Deleting:
			return fmt.Sprintf("its owner %s is being deleted in the foreground and waits for its dependents", name)
		}
		return fmt.Sprintf("its owner reference to %s does not match that object: the garbage collector would delete it", name)
	}
	return "none of its owners exists: the garbage collector would delete it"
}

// surplus returns the pending pods that their controller would delete, and why: it was not deleted
// itself and has replaced them.
func (u *undeletion) surplus(ctx context.Context) (map[*Item]string, error) {
	podSets := map[types.UID]*podSet{}
	found := map[*Item]string{}
	for _, item := range u.items {
		ref := metav1.GetControllerOfNoCopy(item.then)
		if item.Outcome != ownership.UndeletionPending || item.kind() != podKind || ref == nil || hasEnded(item.then) {
			continue
		}
		c, known := podSets[ref.UID]
		if !known {
			var err error
			if c, err = u.readPodSet(ctx, item, ref.UID); err != nil {
				return nil, err
			}
			podSets[ref.UID] = c
		}
		if c == nil {
			continue
		}
		if reason := c.surplusReason(item.then); reason != "" {
			found[item] = reason
			continue
		}
		c.pods = append(c.pods, item.then)
	}
	return found, nil
}

// podSet is a controller and those of its pods that have not terminated.
type podSet struct {
	controller *unstructured.Unstructured
	pods       []*unstructured.Unstructured
}

// readPodSet reads the controller of an item and its pods. It returns nil if the controller does
// not exist or is restored itself.
func (u *undeletion) readPodSet(ctx context.Context, item *Item, uid types.UID) (*podSet, error) {
	var controller *unstructured.Unstructured
	if owner := ownerOf(item, uid); owner != nil {
		if !owner.isItself() || isRestored(owner) {
			return nil, nil
		}
		controller, uid = owner.now, owner.UID()
	} else if owner, exists := u.Owner(uid); exists {
		var err error
		if controller, err = u.get(ctx, owner.GroupVersionResource, owner.Namespace, owner.Name); err != nil {
			return nil, err
		}
	}
	if controller == nil || controller.GetUID() != uid || controller.GetNamespace() != item.Namespace() {
		return nil, nil
	}
	c := &podSet{controller: controller}
	for options := (metav1.ListOptions{Limit: page}); ; {
		list, err := at(u.Objects, item.Resource.GroupVersionResource, item.Namespace()).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if ref := metav1.GetControllerOfNoCopy(pod); ref != nil && ref.UID == uid && pod.GetDeletionTimestamp() == nil && !hasEnded(pod) {
				c.pods = append(c.pods, withoutFields(pod))
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return c, nil
		}
	}
}

var (
	replicaSetKind = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	daemonSetKind  = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
	jobKind        = schema.GroupKind{Group: "batch", Kind: "Job"}
	rcKind         = schema.GroupKind{Kind: "ReplicationController"}
)

// surplusReason returns why the controller would delete an additional pod; "" if it would keep it.
func (c *podSet) surplusReason(pod *unstructured.Unstructured) string {
	spec, _ := c.controller.Object["spec"].(map[string]any)
	controller := c.controller.GetKind() + " " + c.controller.GetName()
	switch c.controller.GroupVersionKind().GroupKind() {
	case replicaSetKind, rcKind:
		return c.surplusBeyond(controller, numberIn(spec, "replicas", 1))
	case jobKind:
		if hasFinished(c.controller) {
			return fmt.Sprintf("its controller %s has finished, and would delete it", controller)
		}
		return c.surplusBeyond(controller, numberIn(spec, "parallelism", 1))
	case daemonSetKind:
		node := nodeOf(pod)
		if node != "" && slices.ContainsFunc(c.pods, func(other *unstructured.Unstructured) bool { return nodeOf(other) == node }) {
			return fmt.Sprintf("its controller %s already has a pod on node %s", controller, node)
		}
	}
	return ""
}

// surplusBeyond returns why the controller would delete one more pod than it wants; "" if it wants
// more than it has.
func (c *podSet) surplusBeyond(controller string, wanted int64) string {
	if int64(len(c.pods)) < wanted {
		return ""
	}
	return fmt.Sprintf("its controller %s has all its pods (%d of %d) and would delete another one", controller, len(c.pods), wanted)
}

// numberIn returns a number in a spec, or unset if the field is missing.
func numberIn(spec map[string]any, field string, unset int64) int64 {
	if n, found, err := unstructured.NestedInt64(spec, field); found && err == nil {
		return n
	}
	return unset
}

func nodeOf(pod *unstructured.Unstructured) string {
	node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	return node
}

// hasFinished reports whether a Job is complete or has failed.
func hasFinished(job *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		fields, _ := c.(map[string]any)
		ends := fields["type"] == string(batchv1.JobComplete) || fields["type"] == string(batchv1.JobFailed)
		return ends && fields["status"] == string(corev1.ConditionTrue)
	})
}
