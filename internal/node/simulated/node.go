// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"crypto/sha256"
	"fmt"
	"runtime"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// newNode returns the i-th Node object, as a kubelet would register it.
func (o Options) newNode(i int) *v1.Node {
	name := o.nodeName(i)
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				v1.LabelHostname:          name,
				v1.LabelOSStable:          "linux",
				v1.LabelArchStable:        runtime.GOARCH,
				"beta.kubernetes.io/os":   "linux",
				"beta.kubernetes.io/arch": runtime.GOARCH,
				Key:                       "",
			},
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
	}
	if o.Taint {
		node.Spec.Taints = []v1.Taint{taint()}
	}
	node.Status = o.nodeStatus(i)
	return node
}

func taint() v1.Taint { return v1.Taint{Key: Key, Effect: v1.TaintEffectNoSchedule} }

func (o Options) nodeStatus(i int) v1.NodeStatus {
	name := o.nodeName(i)
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
	now := metav1.NewTime(o.Clock.Now()).Rfc3339Copy()
	return v1.NodeStatus{
		Capacity:    o.Capacity.DeepCopy(),
		Allocatable: o.Capacity.DeepCopy(),
		Conditions:  healthy(now),
		Features:    &v1.NodeFeatures{SupplementalGroupsPolicy: new(true)},

		DeclaredFeatures: pod.DeclaredFeatures(),
		Addresses: []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: nodeAddress(i)},
			{Type: v1.NodeHostName, Address: name},
		},
		NodeInfo: v1.NodeSystemInfo{
			MachineID: id[:32], SystemUUID: uuidOf(id), BootID: uuidOf(id[32:]),
			KernelVersion: "simulated", OSImage: "Kindred simulated node",
			ContainerRuntimeVersion: runtimeName + "://" + o.Version, KubeletVersion: o.Version,
			OperatingSystem: "linux", Architecture: runtime.GOARCH,
		},
	}
}

func uuidOf(hex string) string {
	return fmt.Sprintf("%s-%s-%s-%s-%s", hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:32])
}

// healthy returns the conditions of a healthy node.
func healthy(now metav1.Time) []v1.NodeCondition {
	fine := []v1.NodeCondition{
		{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: v1.NodePIDPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	}
	for i := range fine {
		fine[i].LastHeartbeatTime, fine[i].LastTransitionTime = now, now
	}
	return fine
}

// isHealthy reports whether the node has all conditions of a healthy node. The node lifecycle controller
// sets conditions to Unknown if a node has not sent heartbeats for too long.
func isHealthy(node *v1.Node) bool {
	want := healthy(metav1.Time{})
	found := 0
	for _, c := range node.Status.Conditions {
		for _, w := range want {
			if c.Type == w.Type && c.Status == w.Status {
				found++
			}
		}
	}
	return found == len(want)
}

// refreshed returns a registered node with a new status. Conditions keep their last transition times, and
// conditions of other clients stay.
func refreshed(node *v1.Node, status v1.NodeStatus) *v1.Node {
	fresh := node.DeepCopy()
	conditions := fresh.Status.Conditions
	for _, c := range status.Conditions {
		set := false
		for i := range conditions {
			if conditions[i].Type != c.Type {
				continue
			}
			if conditions[i].Status == c.Status {
				c.LastTransitionTime = conditions[i].LastTransitionTime
			}
			conditions[i], set = c, true
		}
		if !set {
			conditions = append(conditions, c)
		}
	}
	attached, inUse, images := fresh.Status.VolumesAttached, fresh.Status.VolumesInUse, fresh.Status.Images
	fresh.Status = status
	fresh.Status.Conditions = conditions
	fresh.Status.VolumesAttached, fresh.Status.VolumesInUse, fresh.Status.Images = attached, inUse, images
	return fresh
}

// adopted returns a node of an earlier process with the labels and the taint of this one, or nil if it has
// them. Labels and taints that users added stay.
func (o Options) adopted(node *v1.Node, want *v1.Node) *v1.Node {
	updated := node.DeepCopy()
	if updated.Labels == nil {
		updated.Labels = map[string]string{}
	}
	for k, v := range want.Labels {
		updated.Labels[k] = v
	}
	updated.Spec.Taints = nil
	if o.Taint {
		updated.Spec.Taints = append(updated.Spec.Taints, taint())
	}
	for _, t := range node.Spec.Taints {
		if t.Key != Key {
			updated.Spec.Taints = append(updated.Spec.Taints, t)
		}
	}
	if equality.Semantic.DeepEqual(node.Labels, updated.Labels) && sameTaints(node.Spec.Taints, updated.Spec.Taints) {
		return nil
	}
	return updated
}

// sameTaints reports whether two lists have the same taints, in any order.
func sameTaints(a, b []v1.Taint) bool {
	if len(a) != len(b) {
		return false
	}
	for _, t := range a {
		found := false
		for i := range b {
			found = found || t.MatchTaint(&b[i])
		}
		if !found {
			return false
		}
	}
	return true
}
