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

// leaveDoomed leaves those items that the API would accept and a controller would delete at
// once. A root of that sort is a problem: nothing else is left to bring back.
func (u *undeletion) leaveDoomed(ctx context.Context) error {
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
			u.problem("%s would not live: %s", item, reason)
		}
	}
	return nil
}

// collected returns the pending items that the garbage collector would delete, and why. The
// collector's own rules decide, on a graph of the items as they would be created. In it every
// object has its former UID, as that is what owner references name.
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
		case item.now != nil: // It lives without owners here: whether it goes is not the question.
			meta.DeletionTimestamp, meta.Finalizers = item.now.GetDeletionTimestamp(), item.now.GetFinalizers()
		default:
			continue
		}
		g.Observe(item.Resource.GroupResource(), &meta)
	}
	doomed := map[*Item]string{}
	for action, more := g.Next(); more; action, more = g.Next() {
		switch action.Verb {
		case graph.Lookup:
			// All objects that the references name are known here, under their right names.
			g.Done(action, graph.Outcome{Result: graph.Absent})
		case graph.Delete:
			if item := pending[action.UID]; item != nil {
				doomed[item] = u.whyCollected(item, action.Because)
			}
			g.Forget(action.Resource.GroupResource(), &metav1.ObjectMeta{UID: action.UID, ResourceVersion: "2"})
			g.Done(action, graph.Outcome{Result: graph.Applied})
		case graph.DropOwners, graph.RemoveFinalizer:
			g.Done(action, graph.Outcome{Result: graph.Applied})
		}
	}
	return doomed
}

// rehearsedOwners are the owner references that an item would be created with. It shows the graph
// those of the owners that are outside of the undeletion.
func (u *undeletion) rehearsedOwners(g *graph.Graph, item *Item) []metav1.OwnerReference {
	return slices.DeleteFunc(item.then.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		if owner := ownerOf(item, ref.UID); owner != nil {
			return isLeft(owner) && owner.now == nil
		}
		outside, there := u.Owner(ref.UID)
		switch {
		case there:
			meta := metav1.ObjectMeta{Namespace: outside.Namespace, Name: outside.Name, UID: outside.UID, ResourceVersion: "1", Finalizers: outside.Finalizers}
			if outside.Deleting {
				meta.DeletionTimestamp = &metav1.Time{}
			}
			g.Observe(outside.GroupResource(), &meta)
		case u.outside[ref.UID] != "": // The collector may not have seen it yet.
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

// ownerOf returns the owner of an item that had a UID; nil if that is outside of the graph.
func ownerOf(item *Item, former types.UID) *Item {
	for _, owner := range item.owners {
		if owner.FormerUID() == former {
			return owner
		}
	}
	return nil
}

// whyCollected says what is wrong with the owner references that the collector would delete an
// item for.
func (u *undeletion) whyCollected(item *Item, because []metav1.OwnerReference) string {
	for _, ref := range because {
		owner, there := u.Owner(ref.UID)
		called := ref.Kind + " " + ref.Name
		switch {
		case !there && ownerOf(item, ref.UID) == nil:
			continue
		case owner.Namespace != "" && owner.Namespace != item.Namespace():
			return fmt.Sprintf("its owner %s is in another namespace, which is not valid: the garbage collector would delete it", called)
		case owner.Deleting:
			return fmt.Sprintf("its owner %s is being deleted, and waits for its dependents to go first", called)
		}
		return fmt.Sprintf("its owner reference to %s does not name that object rightly: the garbage collector would delete it", called)
	}
	return "none of its owners is there: the garbage collector would delete it"
}

// surplus returns the pending pods whose controller was never gone, has its pods, and would delete
// one that is more, and why.
func (u *undeletion) surplus(ctx context.Context) (map[*Item]string, error) {
	crews := map[types.UID]*crew{}
	found := map[*Item]string{}
	for _, item := range u.items {
		ref := metav1.GetControllerOfNoCopy(item.then)
		if item.Outcome != ownership.UndeletionPending || item.kind() != podKind || ref == nil || hasEnded(item.then) {
			continue
		}
		c, known := crews[ref.UID]
		if !known {
			var err error
			if c, err = u.crewOf(ctx, item, ref.UID); err != nil {
				return nil, err
			}
			crews[ref.UID] = c
		}
		if c == nil {
			continue
		}
		if reason := c.refuses(item.then); reason != "" {
			found[item] = reason
			continue
		}
		c.pods = append(c.pods, item.then)
	}
	return found, nil
}

// crew is a controller of pods and those of its pods that have not ended.
type crew struct {
	controller *unstructured.Unstructured
	pods       []*unstructured.Unstructured
}

// crewOf reads the controller of an item and its pods; nil if the controller is gone or comes
// back itself.
func (u *undeletion) crewOf(ctx context.Context, item *Item, uid types.UID) (*crew, error) {
	var controller *unstructured.Unstructured
	if owner := ownerOf(item, uid); owner != nil {
		if !owner.isItself() || isRestored(owner) {
			return nil, nil
		}
		controller, uid = owner.now, owner.UID()
	} else if owner, there := u.Owner(uid); there {
		var err error
		if controller, err = u.get(ctx, owner.GroupVersionResource, owner.Namespace, owner.Name); err != nil {
			return nil, err
		}
	}
	if controller == nil || controller.GetUID() != uid || controller.GetNamespace() != item.Namespace() {
		return nil, nil
	}
	c := &crew{controller: controller}
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

// refuses returns why the controller would delete one more pod; "" if it would keep it.
func (c *crew) refuses(pod *unstructured.Unstructured) string {
	spec, _ := c.controller.Object["spec"].(map[string]any)
	called := c.controller.GetKind() + " " + c.controller.GetName()
	switch c.controller.GroupVersionKind().GroupKind() {
	case replicaSetKind, rcKind:
		return c.refusesBeyond(called, numberIn(spec, "replicas", 1))
	case jobKind:
		if hasFinished(c.controller) {
			return fmt.Sprintf("its controller %s has finished, and would delete it", called)
		}
		return c.refusesBeyond(called, numberIn(spec, "parallelism", 1))
	case daemonSetKind:
		node := nodeOf(pod)
		if node != "" && slices.ContainsFunc(c.pods, func(other *unstructured.Unstructured) bool { return nodeOf(other) == node }) {
			return fmt.Sprintf("its controller %s has another pod in its place, on node %s", called, node)
		}
	}
	return ""
}

func (c *crew) refusesBeyond(called string, wanted int64) string {
	if int64(len(c.pods)) < wanted {
		return ""
	}
	return fmt.Sprintf("its controller %s has all pods that it wants (%d of %d), and would delete one more", called, len(c.pods), wanted)
}

// numberIn returns a number of a spec, or its default.
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
