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
	resourceClaim = Fact{Kind: "Pod", Field: "spec.resourceClaims[*].resourceClaimName", Waits: true,
		Effect: "the pod stays Pending until there is a ResourceClaim of that name"}
	imageVolume = Fact{Kind: "Pod", Field: "spec.volumes[*].image", EventBy: theNode,
		Effect: "the pod waits, if no node's runtime mounts images"}
	groupsPolicy = Fact{Kind: "Pod", Field: "spec.securityContext.supplementalGroupsPolicy", EventBy: theNode,
		Effect: "with Strict, the pod fails, if no node's runtime supports it"}
	appArmor = Fact{Kind: "Pod", Field: "spec.securityContext.appArmorProfile", EventBy: theNode,
		Effect: "the pod fails, if no node has AppArmor; also in containers"}
	seLinux = Fact{Kind: "Pod", Field: "spec.securityContext.seLinuxOptions",
		Effect: "none, if no node has SELinux; also in containers"}
	windowsOptions = Fact{Kind: "Pod", Field: "spec.securityContext.windowsOptions",
		Effect: "none, if no node runs Windows; also in containers"}
	capability = Fact{Kind: "Pod", Field: "spec.containers[*].securityContext.capabilities",
		Effect: "a name that Linux does not have is ignored; so is one with the prefix `CAP_`, by containerd"}
	managedBy = Fact{Kind: "Job", Field: "spec.managedBy", Waits: true,
		Effect: "the Job has no pods until a controller of that name creates them"}
	signerName = Fact{Kind: "CertificateSigningRequest", Field: "spec.signerName", Waits: true,
		Effect: "there is no certificate until a signer of that name issues one"}
	loadBalancerClass = Fact{Kind: "Service", Field: "spec.loadBalancerClass", Waits: true,
		Effect: "the Service gets no address until a controller of that class gives it one"}
	persistentVolumeType = Fact{Kind: "PersistentVolume", Field: "spec",
		Effect: "pods that use the volume wait, because no node supports its type"}
	ingressClass = Fact{Kind: "Ingress", Field: "spec.ingressClassName", Waits: true,
		Effect: "the Ingress is not served, because there is no IngressClass of that name, or none at all"}
)

// Facts returns all Facts.
func Facts() []*Fact {
	return []*Fact{
		&schedulerName, &resourceClaim, &volumeType, &imageVolume, &hostUsers, &recursiveReadOnly, &groupsPolicy, &appArmor,
		&seLinux, &windowsOptions, &capability, &managedBy, &loadBalancerClass, &persistentVolumeType, &ingressClass,
		&signerName,
	}
}
