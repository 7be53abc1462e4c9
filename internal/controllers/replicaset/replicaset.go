// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// ReplicaSetName is the identity of the controller of ReplicaSets.
const ReplicaSetName = "replicaset-controller"

var replicaSets = kind[appsv1.ReplicaSet, *appsv1.ReplicaSet]{
	name:              ReplicaSetName,
	gvk:               appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
	list:              listReplicaSets,
	view:              func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet { return rs },
	setStatus:         func(rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) { rs.Status = status },
	countsTerminating: true,
}

// AddReplicaSets registers the controller for ReplicaSets.
func AddReplicaSets(env control.Env) error { return add(env, replicaSets) }

func listReplicaSets(ctx context.Context, from client.Reader, opts ...client.ListOption) ([]appsv1.ReplicaSet, error) {
	found := &appsv1.ReplicaSetList{}
	err := from.List(ctx, found, opts...)
	return found.Items, err
}
