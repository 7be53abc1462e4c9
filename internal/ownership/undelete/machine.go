// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

// representsMachine reports whether objects of a kind represent machines.
func representsMachine(kind schema.GroupKind) bool {
	return kind == clusterapi.Machine || kind.Group == clusterapi.Infrastructure && strings.HasSuffix(kind.Kind, "Machine")
}

// explainMachines adds to each object that represents a machine whether that machine still exists. A provider deletes a machine before it
// removes its finalizer from the object, so the machine of a deleted object is gone. The object is restored; the machine and its data are not.
func (u *undeletion) explainMachines() {
	for _, item := range u.items {
		if !representsMachine(item.kind()) {
			continue
		}
		switch item.Outcome {
		case ownership.UndeletionPending, ownership.UndeletionRestored:
			item.Reason = goneMachine(item.then)
		case ownership.UndeletionUnchanged, ownership.UndeletionAdopted:
			item.Reason = "its machine was not deleted"
		}
	}
	u.warnOfLostControlPlanes()
}

// goneMachine explains that the machine of an object is gone.
func goneMachine(then *unstructured.Unstructured) string {
	id, _, _ := unstructured.NestedString(then.Object, "spec", "providerID")
	if id == "" {
		return "it had no machine yet"
	}
	return fmt.Sprintf("its machine %s is gone: the provider deleted it", id)
}

// warnOfLostControlPlanes warns of each Cluster whose control plane is gone: all that its API stored is gone with it.
func (u *undeletion) warnOfLostControlPlanes() {
	lost, lives := map[string]bool{}, map[string]bool{}
	var names []string
	for _, item := range u.items {
		labels := item.then.GetLabels()
		if _, ofControlPlane := labels[clusterapi.ControlPlaneLabel]; !ofControlPlane || item.kind() != clusterapi.Machine {
			continue
		}
		switch name := labels[clusterapi.ClusterNameLabel]; item.Outcome {
		case ownership.UndeletionUnchanged, ownership.UndeletionAdopted:
			lives[name] = true
		default:
			if !lost[name] {
				names = append(names, name)
			}
			lost[name] = true
		}
	}
	for _, name := range names {
		if !lives[name] {
			u.warn("the machines of the control plane of Cluster %s are gone, and with them all that its API stored. Its objects return as they were, but cannot bring that back: restore its etcd from a backup, or create the Cluster again", name)
		}
	}
}
