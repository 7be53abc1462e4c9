// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
)

const (
	// Finalizer is kept until the machines of a KindredControlPlane are gone.
	Finalizer = "controlplane.cluster.x-k8s.io/kindredcontrolplane"
	// LeaveHook is the annotation of a Machine that is deleted only after its server has left the cluster of etcd.
	LeaveHook = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/kindred-leaves-etcd"
)

// Conditions of a KindredControlPlane beside those that Cluster API defines.
const (
	// CertificatesAvailableCondition is true if the authorities of the cluster exist.
	CertificatesAvailableCondition = "CertificatesAvailable"
	// InitializedCondition is true once the API of the cluster has answered.
	InitializedCondition = "Initialized"
	// MachinesOwnedCondition is false while the control plane of the cluster has machines that something else manages. It is absent otherwise.
	MachinesOwnedCondition = "MachinesOwned"
)

// KindredControlPlaneSpec describes the servers of a cluster.
type KindredControlPlaneSpec struct {
	// replicas is the number of servers: one, or three or five. Their embedded etcds are one cluster. 1 by default.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Enum=1;3;5
	Replicas *int32 `json:"replicas,omitempty"`
	// version is the version of Kubernetes that the servers have: that of a build of Kindred that the host has. Its v may be left out.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)([-+][0-9A-Za-z.+-]+)?$`
	Version string `json:"version"`
	// machineTemplate describes the machines.
	MachineTemplate KindredControlPlaneMachineTemplate `json:"machineTemplate"`
	// kindredConfigSpec configures Kindred on them. Its role is set by the controller.
	// +optional
	KindredConfigSpec bootstrapv1.KindredConfigSpec `json:"kindredConfigSpec,omitempty,omitzero"`
	// rollout configures when machines are replaced.
	// +optional
	Rollout KindredControlPlaneRollout `json:"rollout,omitempty,omitzero"`
}

// KindredControlPlaneRollout configures when machines are replaced.
// +kubebuilder:validation:MinProperties=1
type KindredControlPlaneRollout struct {
	// after is a time after which all machines that are older are replaced, even if nothing has changed.
	// +optional
	After metav1.Time `json:"after,omitempty,omitzero"`
}

// KindredControlPlaneMachineTemplate describes the machines of a control plane.
type KindredControlPlaneMachineTemplate struct {
	// metadata are labels and annotations of the machines. Changes are made in place.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is that of the machines.
	Spec KindredControlPlaneMachineTemplateSpec `json:"spec"`
}

// KindredControlPlaneMachineTemplateSpec describes the machines of a control plane.
type KindredControlPlaneMachineTemplateSpec struct {
	// infrastructureRef names the template of the machines of the infrastructure provider.
	InfrastructureRef clusterv1.ContractVersionedObjectReference `json:"infrastructureRef"`
	// readinessGates are further conditions of a machine that is Ready.
	// +optional
	// +listType=map
	// +listMapKey=conditionType
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ReadinessGates []clusterv1.MachineReadinessGate `json:"readinessGates,omitempty"`
	// taints are those of the nodes. Cluster API keeps them.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Taints []clusterv1.MachineTaint `json:"taints,omitempty"`
	// deletion configures the deletion of machines. Changes are made in place.
	// +optional
	Deletion KindredControlPlaneMachineDeletion `json:"deletion,omitempty,omitzero"`
}

// KindredControlPlaneMachineDeletion configures the deletion of machines.
// +kubebuilder:validation:MinProperties=1
type KindredControlPlaneMachineDeletion struct {
	// nodeDrainTimeoutSeconds limits how long a node is drained; 0 is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeDrainTimeoutSeconds *int32 `json:"nodeDrainTimeoutSeconds,omitempty"`
	// nodeVolumeDetachTimeoutSeconds limits the wait until all volumes are detached; 0 is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeVolumeDetachTimeoutSeconds *int32 `json:"nodeVolumeDetachTimeoutSeconds,omitempty"`
	// nodeDeletionTimeoutSeconds limits how long the deletion of the Node is tried; 0 is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeDeletionTimeoutSeconds *int32 `json:"nodeDeletionTimeoutSeconds,omitempty"`
}

// KindredControlPlaneStatus is the observed state of a KindredControlPlane.
type KindredControlPlaneStatus struct {
	// initialization is part of the contract with Cluster API.
	// +optional
	Initialization KindredControlPlaneInitialization `json:"initialization,omitempty,omitzero"`
	// selector is the label selector of the machines, for the scale subresource.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Selector string `json:"selector,omitempty"`
	// replicas is the number of machines.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// readyReplicas is the number of machines that are Ready.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
	// availableReplicas is the number of machines that are Available.
	// +optional
	AvailableReplicas *int32 `json:"availableReplicas,omitempty"`
	// upToDateReplicas is the number of machines that are as the spec describes them.
	// +optional
	UpToDateReplicas *int32 `json:"upToDateReplicas,omitempty"`
	// versions are the versions of the machines, the oldest first.
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Versions []clusterv1.StatusVersion `json:"versions,omitempty"`
	// version is the oldest of versions, or that of the spec before there is a machine.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`
	// observedGeneration is the generation that the controller has seen.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions are Available, CertificatesAvailable, Initialized, RollingOut, ScalingUp, ScalingDown, MachinesReady, MachinesUpToDate, Deleting
	// and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// KindredControlPlaneInitialization reports the progress of the first provisioning.
// +kubebuilder:validation:MinProperties=1
type KindredControlPlaneInitialization struct {
	// controlPlaneInitialized is true once the API of the cluster has answered.
	// +optional
	ControlPlaneInitialized *bool `json:"controlPlaneInitialized,omitempty"`
}

// KindredControlPlane is the servers of a cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=kindredcontrolplanes,shortName=kdcp,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Available",type="string",JSONPath=".status.conditions[?(@.type=='Available')].status",description="Whether the control plane serves the API"
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".spec.replicas",description="Machines that are wanted"
// +kubebuilder:printcolumn:name="Current",type="integer",JSONPath=".status.replicas",description="Machines"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.readyReplicas",description="Machines that are Ready"
// +kubebuilder:printcolumn:name="Up-to-date",type="integer",JSONPath=".status.upToDateReplicas",description="Machines that are as described"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".spec.version",description="Version of Kubernetes"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type KindredControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec KindredControlPlaneSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status KindredControlPlaneStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (p *KindredControlPlane) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions sets the conditions.
func (p *KindredControlPlane) SetConditions(conditions []metav1.Condition) {
	p.Status.Conditions = conditions
}

// KindredControlPlaneList is a list of KindredControlPlanes.
//
// +kubebuilder:object:root=true
type KindredControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KindredControlPlane `json:"items"`
}

// KindredControlPlaneTemplateSpec has the template.
type KindredControlPlaneTemplateSpec struct {
	// template is what KindredControlPlanes are made from.
	Template KindredControlPlaneTemplateResource `json:"template"`
}

// KindredControlPlaneTemplateResource is the template of a KindredControlPlane.
type KindredControlPlaneTemplateResource struct {
	// metadata are the labels and annotations of KindredControlPlanes.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is that of KindredControlPlanes, without what the Cluster's topology says.
	// +optional
	Spec KindredControlPlaneTemplateResourceSpec `json:"spec,omitempty,omitzero"`
}

// KindredControlPlaneTemplateResourceSpec has the fields of a KindredControlPlane that a ClusterClass may set: the others are the
// topology's.
type KindredControlPlaneTemplateResourceSpec struct {
	// kindredConfigSpec configures Kindred on the machines.
	// +optional
	KindredConfigSpec bootstrapv1.KindredConfigSpec `json:"kindredConfigSpec,omitempty,omitzero"`
	// rollout configures when machines are replaced.
	// +optional
	Rollout KindredControlPlaneRollout `json:"rollout,omitempty,omitzero"`
}

// KindredControlPlaneTemplate is what a ClusterClass makes KindredControlPlanes from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=kindredcontrolplanetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type KindredControlPlaneTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec KindredControlPlaneTemplateSpec `json:"spec,omitempty,omitzero"`
}

// KindredControlPlaneTemplateList is a list of KindredControlPlaneTemplates.
//
// +kubebuilder:object:root=true
type KindredControlPlaneTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KindredControlPlaneTemplate `json:"items"`
}

func init() {
	builder.Register(&KindredControlPlane{}, &KindredControlPlaneList{}, &KindredControlPlaneTemplate{}, &KindredControlPlaneTemplateList{})
}
