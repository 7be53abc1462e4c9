// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// Labels for the run and the node of an object.
const (
	runLabel  = "attack.kindred.dev/run"
	nodeLabel = "attack.kindred.dev/node"
)

// world is one graph on a server, with unique names.
type world struct {
	*server
	run   string
	graph graph
	// uids maps current and former UIDs to nodes.
	uids map[types.UID]int
	// deleted is the last deletion, which an undeletion undoes.
	deleted *deletion
	// targetServer returns the target server of moves.
	targetServer func(context.Context) (*server, error)
}

func (w *world) name(n node) string { return fmt.Sprintf("%s-n%02d", w.run, n.id) }

func (w *world) namespace(n node) string {
	if n.namespace == "" {
		return ""
	}
	return w.run + "-" + n.namespace
}

// argument returns the command-line argument that names a node, as kubectl does.
func (w *world) argument(n node) string {
	return strings.TrimSuffix(n.kind.Resource+"."+n.kind.Group, ".") + "/" + w.name(n)
}

func (w *world) objects(n node) dynamic.ResourceInterface {
	return w.client.Resource(n.kind.GroupVersionResource).Namespace(w.namespace(n))
}

var (
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	roles      = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	bindings   = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
)

// create creates the objects first and then their owner references, because the graph may have
// cycles.
func (w *world) create(ctx context.Context) error {
	for _, namespace := range []string{"a", "b"} {
		object := manifest("v1", "Namespace", w.run+"-"+namespace)
		object.SetLabels(map[string]string{runLabel: w.run})
		if _, err := w.client.Resource(namespaces).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := w.grantEve(ctx); err != nil {
		return err
	}
	created := map[int]types.UID{}
	for _, n := range w.graph {
		object, err := w.objects(n).Create(ctx, w.object(n), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		created[n.id], w.uids[object.GetUID()] = object.GetUID(), n.id
	}
	for _, n := range w.graph {
		if len(n.owners) == 0 {
			continue
		}
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": w.references(n, created)}})
		if err != nil {
			return err
		}
		if err := patch(ctx, w.objects(n), w.name(n), string(text)); err != nil {
			return err
		}
	}
	return nil
}

func manifest(apiVersion, kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetName(name)
	return object
}

// object returns the object to create for a node, without owner references.
func (w *world) object(n node) *unstructured.Unstructured {
	object := manifest(n.kind.GroupVersion().String(), n.kind.name, w.name(n))
	object.SetNamespace(w.namespace(n))
	object.SetLabels(map[string]string{runLabel: w.run, nodeLabel: strconv.Itoa(n.id)})
	object.SetFinalizers(n.finalizers)
	return object
}

const absentUID = "00000000-0000-4000-8000-00000000dead"

// references returns the owner references of a node, given the UIDs of the nodes.
func (w *world) references(n node, uids map[int]types.UID) (refs []metav1.OwnerReference) {
	for _, o := range n.owners {
		ref := metav1.OwnerReference{APIVersion: racks.GroupVersion().String(), Kind: racks.name, Name: "never", UID: absentUID}
		switch to, ok := w.graph.find(o.to); {
		case ok:
			ref = metav1.OwnerReference{APIVersion: to.kind.GroupVersion().String(), Kind: to.kind.name, Name: w.name(to), UID: uids[to.id]}
		case o.to == unserved:
			ref.APIVersion, ref.Kind = "gone.example.com/v1", "Thing"
		}
		if o.controller {
			ref.Controller = new(true)
		}
		if o.block {
			ref.BlockOwnerDeletion = new(true)
		}
		refs = append(refs, ref)
	}
	return refs
}

// grantEve lets eve do everything in namespace a.
func (w *world) grantEve(ctx context.Context) error {
	role := manifest("rbac.authorization.k8s.io/v1", "Role", eve)
	role.Object["rules"] = []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"}}}
	binding := manifest("rbac.authorization.k8s.io/v1", "RoleBinding", eve)
	binding.Object["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": eve}
	binding.Object["subjects"] = []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": eve}}
	if _, err := w.client.Resource(roles).Namespace(w.run+"-a").Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := w.client.Resource(bindings).Namespace(w.run+"-a").Create(ctx, binding, metav1.CreateOptions{})
	return err
}

// seen is the observed state of a node.
type seen struct {
	uid         types.UID
	owners      []string
	finalizers  []string
	terminating bool
	held        bool
}

func (s seen) String() string {
	text := fmt.Sprintf("owners %v", s.owners)
	if len(s.finalizers) > 0 {
		text += fmt.Sprintf(" finalizers %v", s.finalizers)
	}
	if s.terminating {
		text += " terminating"
	}
	if s.held {
		text += " on hold"
	}
	return text
}

// observe returns the state of the existing nodes, and adds their UIDs to w.uids.
func (w *world) observe(ctx context.Context) (map[int]seen, error) {
	found := map[int]seen{}
	references := map[int][]metav1.OwnerReference{}
	for _, k := range kinds {
		list, err := w.client.Resource(k.GroupVersionResource).List(ctx, metav1.ListOptions{LabelSelector: runLabel + "=" + w.run})
		if err != nil {
			return nil, err
		}
		for _, object := range list.Items {
			id, err := strconv.Atoi(object.GetLabels()[nodeLabel])
			if err != nil {
				return nil, err
			}
			_, held := object.GetAnnotations()[ownership.HoldAnnotation]
			found[id] = seen{uid: object.GetUID(), finalizers: object.GetFinalizers(), terminating: object.GetDeletionTimestamp() != nil, held: held}
			references[id] = object.GetOwnerReferences()
			w.uids[object.GetUID()] = id
		}
	}
	for id, s := range found {
		for _, ref := range references[id] {
			s.owners = append(s.owners, w.notation(ref, found))
		}
		slices.Sort(s.owners)
		found[id] = s
	}
	return found, nil
}

// notation returns an owner reference in the notation of the graph.
func (w *world) notation(ref metav1.OwnerReference, found map[int]seen) string {
	o := owner{controller: ref.Controller != nil && *ref.Controller, block: ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion}
	id, known := w.uids[ref.UID]
	switch {
	case known && found[id].uid == ref.UID:
		o.to = id
		return o.String()
	case known:
		return absentNode(id)
	case ref.Kind == "Thing":
		o.to = unserved
	case ref.UID == absentUID:
		o.to = absent
	default:
		return "unknown UID " + string(ref.UID)
	}
	return o.String()
}

// absentNode returns the notation of a reference to a node that does not exist.
func absentNode(id int) string { return fmt.Sprintf("n%02d%s", id, goneSuffix) }

const goneSuffix = " that is gone"

// await waits until check returns no error, and returns the state that it checked last.
func (w *world) await(ctx context.Context, what string, check func(map[int]seen) error) (map[int]seen, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	var latest map[int]seen
	for {
		found, err := w.observe(ctx)
		if err == nil {
			if err = check(found); err == nil {
				return found, nil
			}
			latest = found
		}
		if last == nil || ctx.Err() == nil { // The error of the timeout explains nothing.
			last = err
		}
		select {
		case <-ctx.Done():
			return latest, fmt.Errorf("%s: %w; the objects are\n%s", what, last, describe(latest))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// describe lists the nodes with their states.
func describe(found map[int]seen) string {
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(found)) {
		lines = append(lines, fmt.Sprintf("n%02d %s", id, found[id]))
	}
	return strings.Join(lines, "\n")
}

// checkSettled compares the state with the state in which the model says that the graph settles.
func (w *world) checkSettled(found map[int]seen) error {
	left := settle(w.graph) // the nodes that stay, with the owners that they keep
	for _, n := range w.graph {
		owners, stays := left[n.id]
		s, exists := found[n.id]
		if stays != exists {
			return fmt.Errorf("n%02d exists: %t, the model says %t", n.id, exists, stays)
		}
		var want []string
		for _, o := range owners {
			if _, stays := left[o.to]; w.graph.has(o.to) && !stays {
				want = append(want, absentNode(o.to)) // The collector leaves it beside an owner that it cannot resolve.
				continue
			}
			want = append(want, o.String())
		}
		slices.Sort(want)
		if exists && !slices.Equal(want, s.owners) {
			return fmt.Errorf("n%02d has owners %q, the model says %q", n.id, s.owners, want)
		}
	}
	return nil
}

// remove deletes everything without waiting.
func (w *world) remove(ctx context.Context) error {
	for _, k := range kinds {
		list, err := w.client.Resource(k.GroupVersionResource).List(ctx, metav1.ListOptions{LabelSelector: runLabel + "=" + w.run})
		if err != nil {
			return err
		}
		for _, object := range list.Items {
			objects := w.client.Resource(k.GroupVersionResource).Namespace(object.GetNamespace())
			err := patch(ctx, objects, object.GetName(), `{"metadata": {"finalizers": null, "ownerReferences": null}}`)
			if err == nil {
				err = objects.Delete(ctx, object.GetName(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
			}
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	for _, namespace := range []string{"a", "b"} {
		if err := w.client.Resource(namespaces).Delete(ctx, w.run+"-"+namespace, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
