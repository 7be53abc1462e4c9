// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

// checkClusterAPI adds the problems for which clusterctl refuses to move an object as well: it is being provisioned, so that its
// controllers cannot be stopped, or is paused already, so that the end of the move would resume what somebody has paused.
func (p *Plan) checkClusterAPI(g *Graph, item *Item) {
	if by := pausedBy(item.Object); by != "" && by != p.ID {
		p.problem("%s was paused by another move, %s, which is not finished; run that again first", item, by)
	}
	switch item.kind() {
	case clusterapi.Cluster:
		p.checkNotPaused(item)
		if lacking := unprovisioned(item.Object); lacking != "" {
			p.problem("%s is still being provisioned: %s; wait until it is, because its controllers are paused for the move", item, lacking)
		}
		if class := classOf(item.Object); class.name != "" && !g.moves(clusterapi.ClusterClass, class.namespace, class.name) {
			p.problem("%s is made from %s in namespace %s, which does not move: name that too", item, short(clusterapi.ClusterClass, class.name), class.namespace)
		}
	case clusterapi.ClusterClass:
		p.checkNotPaused(item)
	case clusterapi.Machine:
		if node, _, _ := unstructured.NestedString(item.Object.Object, "status", "nodeRef", "name"); node == "" {
			p.problem("%s has no node yet; wait until it is provisioned, because its controllers are paused for the move", item)
		}
	}
}

func (p *Plan) checkNotPaused(item *Item) {
	if clusterapi.IsPaused(item.Object) && pausedBy(item.Object) == "" {
		p.problem("%s is paused; resume it first: the move pauses it, and resumes it at the end", item)
	}
}

// unprovisioned returns what a Cluster lacks until Cluster API has provisioned it, or "".
func unprovisioned(cluster *unstructured.Unstructured) string {
	is := func(fields ...string) bool {
		value, _, _ := unstructured.NestedBool(cluster.Object, append([]string{"status"}, fields...)...)
		return value
	}
	if !is("initialization", "infrastructureProvisioned") && !is("infrastructureReady") { // of v1beta2 and v1beta1
		return "it has no infrastructure"
	}
	if conditionOf(cluster, "ControlPlaneInitialized") != string(metav1.ConditionTrue) {
		return "its control plane is not initialized"
	}
	return ""
}

// conditionOf returns the status of a condition, or "".
func conditionOf(object *unstructured.Unstructured, name string) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == name {
			status, _ := c["status"].(string)
			return status
		}
	}
	return ""
}

// objectName names an object in a namespace.
type objectName struct{ namespace, name string }

// classOf returns the ClusterClass that a Cluster names, in either version of its API.
func classOf(cluster *unstructured.Unstructured) objectName {
	field := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(cluster.Object, append([]string{"spec", "topology"}, fields...)...)
		return value
	}
	class := objectName{field("classRef", "namespace"), field("classRef", "name")}
	if class.name == "" {
		class = objectName{field("classNamespace"), field("class")}
	}
	if class.namespace == "" {
		class.namespace = cluster.GetNamespace()
	}
	return class
}

// planClusterAPI adds problems that depend on objects of the source that do not move.
func (m *Mover) planClusterAPI(ctx context.Context) error {
	if m.Source == nil {
		return nil
	}
	if err := errors.Join(m.checkProviders(ctx), m.noteIdentities(ctx)); err != nil {
		return err
	}
	for _, item := range m.graph.moved() {
		var err error
		switch item.kind() {
		case clusterapi.Cluster:
			if m.KeepSource && m.Target != nil {
				m.plan.problem("%s cannot stay at the source too: both clusters would manage the same machines; move it without --keep-source", item)
			}
			err = m.checkSets(ctx, item)
		case clusterapi.ClusterClass:
			err = m.checkUsers(ctx, item)
		case clusterapi.Binding:
			err = m.checkBinding(ctx, item)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkSets finds the ClusterResourceSets that have brought objects to a Cluster: the binding of a Cluster has its name, and belongs to
// them.
func (m *Mover) checkSets(ctx context.Context, cluster *Item) error {
	binding, err := m.Source.named(ctx, clusterapi.Binding, cluster.Object.GetNamespace(), cluster.Object.GetName())
	if err != nil || binding == nil || m.graph.copied(binding.GetUID()) {
		return err
	}
	for _, ref := range binding.GetOwnerReferences() {
		set := short(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind(), ref.Name)
		m.plan.problem("%s has objects of %s, which does not move: name that too", cluster, set)
	}
	return nil
}

// checkBinding finds a Cluster that would stay while the ClusterResourceSets that it has objects of move.
func (m *Mover) checkBinding(ctx context.Context, binding *Item) error {
	name, _, _ := unstructured.NestedString(binding.Object.Object, "spec", "clusterName")
	if m.graph.moves(clusterapi.Cluster, binding.Object.GetNamespace(), name) {
		return nil
	}
	cluster, err := m.Source.named(ctx, clusterapi.Cluster, binding.Object.GetNamespace(), name)
	if err == nil && cluster != nil {
		m.plan.problem("%s says what %s has of ClusterResourceSets that move, and that Cluster does not: name it too", binding, describe(cluster))
	}
	return err
}

// checkUsers finds Clusters that use a ClusterClass and stay. The source would refuse to remove the class.
func (m *Mover) checkUsers(ctx context.Context, class *Item) error {
	if m.KeepSource {
		return nil
	}
	clusters, err := m.Source.all(ctx, clusterapi.Cluster, metav1.NamespaceAll)
	if apierrors.IsForbidden(err) {
		clusters, err = m.Source.all(ctx, clusterapi.Cluster, class.Object.GetNamespace())
	}
	if err != nil {
		return err
	}
	is := objectName{class.Object.GetNamespace(), class.Object.GetName()}
	for i := range clusters {
		if cluster := &clusters[i]; classOf(cluster) == is && !m.graph.copied(cluster.GetUID()) {
			m.plan.problem("%s is also the class of %s, which does not move: name that too", class, describe(cluster))
		}
	}
	return nil
}

// dropPaused drops the condition Paused from a status. Each cluster's controllers set it for their own object, and a move would write the
// source's again in each run that resumes it.
func dropPaused(status map[string]any) {
	conditions, found, err := unstructured.NestedSlice(status, "conditions")
	if !found || err != nil {
		return
	}
	status["conditions"] = slices.DeleteFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Paused"
	})
}
