// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package unserved

// theNode is the part that records events about what it cannot do for a pod.
const theNode = "the node"

var (
	schedulerName = Fact{Kind: "Pod", Field: "spec.schedulerName", Waits: true,
		Effect: "the pod stays Pending until a scheduler of that name binds it"}
	volumeType = Fact{Kind: "Pod", Field: "spec.volumes", EventBy: theNode,
		Effect: "the pod waits for a volume of a type that no node supports"}
	hostUsers = Fact{Kind: "Pod", Field: "spec.hostUsers", EventBy: theNode,
		Effect: "the pod waits, if no node's runtime has user namespaces"}
	recursiveReadOnly = Fact{Kind: "Pod", Field: "spec.containers[*].volumeMounts[*].recursiveReadOnly", EventBy: theNode,
		Effect: "with Enabled, the container waits, if no node's runtime has recursive read-only mounts"}
	loadBalancerClass = Fact{Kind: "Service", Field: "spec.loadBalancerClass", Waits: true,
		Effect: "the Service gets no address until a controller of that class gives it one"}
	persistentVolumeType = Fact{Kind: "PersistentVolume", Field: "spec",
		Effect: "pods that use the volume wait, because no node supports its type"}
	ingressClass = Fact{Kind: "Ingress", Field: "spec.ingressClassName", Waits: true,
		Effect: "the Ingress is not served, because there is no IngressClass of that name, or none at all"}
)

// Facts returns all Facts.
func Facts() []*Fact {
	return []*Fact{&schedulerName, &volumeType, &hostUsers, &recursiveReadOnly, &loadBalancerClass, &persistentVolumeType, &ingressClass}
}
