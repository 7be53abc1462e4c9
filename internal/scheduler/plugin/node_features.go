// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/version"
	baseversion "k8s.io/component-base/version"
	declared "k8s.io/component-helpers/nodedeclaredfeatures"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// nodeFeatures keeps a pod off nodes that do not declare the features that it needs (KEP-5328).
// k8s.io/component-helpers/nodedeclaredfeatures defines which fields of a pod need which features.
type nodeFeatures struct{}

func (nodeFeatures) Name() string { return "NodeDeclaredFeatures" }

var lacksFeatures = rejectUnresolvable("node(s) didn't match Pod's required features")

// current is the version of the cluster. Nodes need not declare features that all nodes of it have.
var current = version.MustParse(baseversion.DefaultKubeBinaryVersion)

func (nodeFeatures) For(_ *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	required, err := declared.DefaultFramework.InferForPodScheduling(&declared.PodInfo{Spec: &pod.Spec}, current)
	if err != nil {
		return nil, failure(err)
	}
	if required.IsEmpty() {
		return nil, nil
	}
	return CheckFunc(func(node *model.Node) *Rejection {
		has, err := required.IsSubset(declared.DefaultFramework.TryMap(node.Status.DeclaredFeatures))
		switch {
		case err != nil:
			return failure(err)
		case !has:
			return lacksFeatures
		}
		return nil
	}), nil
}

// Wakes does not depend on changes of the pod: the fields that need features cannot be changed.
func (nodeFeatures) Wakes(_ *model.Cluster, event *Event, _ *model.Pod) bool {
	switch event.Kind {
	case NodeAdded:
		return true
	case NodeChanged:
		return !slices.Equal(event.OldNode.Status.DeclaredFeatures, event.Node.Status.DeclaredFeatures)
	default:
		return false
	}
}
