// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owner finds what an object of the providers belongs to.
package owner

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Machine returns the Machine of a bootstrap configuration or of an infrastructure; nil if there is none. Cluster API makes a Machine the owner
// of both a second after its creation, so until then it is the one that names the object.
func Machine(ctx context.Context, c client.Client, object client.Object) (*clusterv1.Machine, error) {
	meta := metav1.ObjectMeta{Namespace: object.GetNamespace(), OwnerReferences: object.GetOwnerReferences()}
	if machine, err := util.GetOwnerMachine(ctx, c, meta); err != nil || machine != nil {
		return machine, err
	}
	kind, err := c.GroupVersionKindFor(object)
	if err != nil {
		return nil, err
	}
	var all clusterv1.MachineList
	if err := c.List(ctx, &all, client.InNamespace(object.GetNamespace())); err != nil {
		return nil, err
	}
	ref := clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: object.GetName()}
	for i := range all.Items {
		if m := &all.Items[i]; m.Spec.Bootstrap.ConfigRef == ref || m.Spec.InfrastructureRef == ref {
			return m, nil
		}
	}
	return nil, nil
}
