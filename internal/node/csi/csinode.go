// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// nodeIDAnnotation is the annotation of a Node with its drivers' IDs of the node, as JSON.
const nodeIDAnnotation = "csi.volume.kubernetes.io/nodeid"

// install publishes what a driver says about the node: on the Node its ID and topology labels, in the
// CSINode its entry.
func (m *Manager) install(ctx context.Context, name string) error {
	m.mu.Lock()
	entry, topology := m.info[name], maps.Clone(m.labels[name])
	m.mu.Unlock()
	err := m.writeNode(ctx, topology, func(ids map[string]string) { ids[name] = entry.NodeID })
	if err != nil {
		return fmt.Errorf("error updating Node object with CSI driver node info: %w", err)
	}
	err = m.writeCSINode(ctx, func(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
		if slices.ContainsFunc(drivers, func(d storagev1.CSINodeDriver) bool { return equality.Semantic.DeepEqual(d, entry) }) {
			return drivers
		}
		return replaceDriver(drivers, entry)
	})
	if err != nil {
		return fmt.Errorf("error updating CSINode object with CSI driver node info: %w", err)
	}
	return nil
}

// uninstall removes a driver from the CSINode and its ID from the Node. Labels stay, as upstream's do.
func (m *Manager) uninstall(ctx context.Context, name string) error {
	err := m.writeCSINode(ctx, func(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver { return withoutDriver(drivers, name) })
	if err != nil {
		return err
	}
	return m.writeNode(ctx, nil, func(ids map[string]string) { delete(ids, name) })
}

// writeNode changes the drivers' IDs in the Node's annotation and adds labels.
func (m *Manager) writeNode(ctx context.Context, labels map[string]string, change func(ids map[string]string)) error {
	m.nodeMu.Lock()
	defer m.nodeMu.Unlock()
	nodes := m.options.Client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, m.options.Node().Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	annotation, err := changeIDs(node.Annotations[nodeIDAnnotation], change)
	if err != nil {
		return err
	}
	missing, err := newLabels(node, labels)
	if err != nil {
		return err
	}
	metadata := map[string]any{}
	if len(missing) > 0 {
		metadata["labels"] = missing
	}
	if annotation != node.Annotations[nodeIDAnnotation] {
		metadata["annotations"] = map[string]any{nodeIDAnnotation: nullIfEmpty(annotation)}
	}
	if len(metadata) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = nodes.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func nullIfEmpty(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// changeIDs changes the IDs in an annotation, which is empty if there are none.
func changeIDs(annotation string, change func(ids map[string]string)) (string, error) {
	ids := map[string]string{}
	if annotation != "" {
		if err := json.Unmarshal([]byte(annotation), &ids); err != nil {
			return "", fmt.Errorf("failed to parse node's %q annotation value (%q) err=%w", nodeIDAnnotation, annotation, err)
		}
	}
	change(ids)
	if len(ids) == 0 {
		return "", nil
	}
	data, err := json.Marshal(ids)
	return string(data), err
}

// newLabels returns the labels that the Node lacks. A label with another value is an error: two drivers
// disagree about where the node is.
func newLabels(node *v1.Node, labels map[string]string) (map[string]string, error) {
	missing := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		have, ok := node.Labels[key]
		switch {
		case !ok:
			missing[key] = labels[key]
		case have != labels[key]:
			return nil, fmt.Errorf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", key, labels[key], key, have)
		}
	}
	return missing, nil
}

// writeCSINode changes the drivers in the CSINode, and creates it if it is missing or if it belongs to an
// earlier Node of this name.
func (m *Manager) writeCSINode(ctx context.Context, change func([]storagev1.CSINodeDriver) []storagev1.CSINodeDriver) error {
	m.nodeMu.Lock()
	defer m.nodeMu.Unlock()
	objects := m.options.Client.StorageV1().CSINodes()
	return retry.OnError(retry.DefaultBackoff, isStale, func() error {
		node := m.options.Node()
		object, err := objects.Get(ctx, node.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = objects.Create(ctx, &storagev1.CSINode{
				ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{ownerOf(node)}},
				Spec:       storagev1.CSINodeSpec{Drivers: change([]storagev1.CSINodeDriver{})},
			}, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		if !isOwnedBy(object, node.UID) {
			err := objects.Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID}})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			return apierrors.NewConflict(storagev1.Resource("csinodes"), object.Name, fmt.Errorf("it belonged to another Node and was deleted"))
		}
		changed := change(object.Spec.Drivers)
		if equality.Semantic.DeepEqual(changed, object.Spec.Drivers) {
			return nil
		}
		object = object.DeepCopy()
		object.Spec.Drivers = changed
		_, err = objects.Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
}

// isStale reports whether a write failed because the object has changed since it was read.
func isStale(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

func ownerOf(node *v1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

func isOwnedBy(object *storagev1.CSINode, node types.UID) bool {
	return slices.ContainsFunc(object.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "Node" && r.UID == node })
}
