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

// explainMachines adds to each object that represents a machine what is known about that machine. A provider deletes a machine before it
// removes its finalizer from the object, so the machine of a deleted object is probably gone, unless the provider's controllers were paused:
// moves pause them, and remove the finalizers themselves. Only the provider could look it up, and a user can remove a finalizer as well. The
// object is restored; the machine and its data are not.
func (u *undeletion) explainMachines() {
	paused := u.pausedClusters()
	for _, item := range u.items {
		if !representsMachine(item.kind()) {
			continue
		}
		switch item.Outcome {
		case ownership.UndeletionPending, ownership.UndeletionRestored:
			item.Reason = fateOfMachine(item, paused)
		case ownership.UndeletionUnchanged, ownership.UndeletionAdopted:
			item.Reason = "its machine was not deleted"
		}
	}
	u.warnOfMoves(paused)
	u.warnOfLostControlPlanes(paused)
}

// pausedClusters returns the Clusters to restore that were paused when they were deleted.
func (u *undeletion) pausedClusters() map[clusterName]bool {
	paused := map[clusterName]bool{}
	for _, item := range u.items {
		isRestored := item.Outcome == ownership.UndeletionPending || item.Outcome == ownership.UndeletionRestored
		if isRestored && item.kind() == clusterapi.Cluster && clusterapi.IsPaused(item.then) {
			paused[clusterName{item.then.GetNamespace(), item.then.GetName()}] = true
		}
	}
	return paused
}

type clusterName struct{ namespace, name string }

// clusterOf returns the Cluster that an object belongs to.
func clusterOf(object *unstructured.Unstructured) clusterName {
	return clusterName{object.GetNamespace(), object.GetLabels()[clusterapi.ClusterNameLabel]}
}

// fateOfMachine explains what became of the machine of a deleted object.
func fateOfMachine(item *Item, paused map[clusterName]bool) string {
	id, _, _ := unstructured.NestedString(item.then.Object, "spec", "providerID")
	switch {
	case id == "":
		return "it had no machine yet"
	case paused[clusterOf(item.then)] || clusterapi.IsPaused(item.then):
		return fmt.Sprintf("its machine %s was not deleted: the provider was paused", id)
	default:
		return fmt.Sprintf("its machine %s is probably gone: a provider deletes it before it lets its object go", id)
	}
}

// warnOfMoves warns of each Cluster that was paused: it may have been moved, and two clusters that manage the same machines destroy them.
func (u *undeletion) warnOfMoves(paused map[clusterName]bool) {
	for _, item := range u.items {
		if item.kind() == clusterapi.Cluster && paused[clusterName{item.then.GetNamespace(), item.then.GetName()}] {
			u.warn("Cluster %s was paused when it was deleted, as a move leaves it, and is restored paused. If it was moved, another cluster manages its machines: do not resume it here", item.then.GetName())
		}
	}
}

// warnOfLostControlPlanes warns of each Cluster whose control plane is probably gone: all that its API stored is gone with it.
func (u *undeletion) warnOfLostControlPlanes(paused map[clusterName]bool) {
	lost, lives := map[clusterName]bool{}, map[clusterName]bool{}
	var clusters []clusterName
	for _, item := range u.items {
		labels := item.then.GetLabels()
		if _, ofControlPlane := labels[clusterapi.ControlPlaneLabel]; !ofControlPlane || item.kind() != clusterapi.Machine {
			continue
		}
		switch cluster := clusterOf(item.then); item.Outcome {
		case ownership.UndeletionUnchanged, ownership.UndeletionAdopted:
			lives[cluster] = true
		default:
			if !lost[cluster] {
				clusters = append(clusters, cluster)
			}
			lost[cluster] = true
		}
	}
	for _, cluster := range clusters {
		if !lives[cluster] && !paused[cluster] {
			u.warn("the machines of the control plane of Cluster %s are probably gone, and with them all that its API stored. Its objects return as they were, but cannot bring that back. "+
				"Its providers leave them without machines, or make empty ones, which are another cluster with the same keys: restore its etcd from a backup, or create the Cluster again", cluster.name)
		}
	}
}
