// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Finalizer keeps a KindredConfig that is being deleted until its controller no longer creates bootstrap data for it. Otherwise the controller could
// create the Secret after the deletion, with an owner that no longer exists.
const Finalizer = "bootstrap.cluster.x-k8s.io/kindredconfig"

// Role is what Kindred is on a machine.
// +kubebuilder:validation:Enum=Node;Server;FirstServer
type Role string

const (
	// Node is a machine that joins the cluster as a node.
	Node Role = "Node"
	// Server is a machine that joins the cluster as a server with a node.
	Server Role = "Server"
	// FirstServer is the machine with which the cluster begins.
	FirstServer Role = "FirstServer"
)

// Format is the format of the bootstrap data: the arguments of Kindred, and files, in JSON.
const Format = "kindred"

// Reasons of conditions of a KindredConfig.
const (
	// DataAvailableReason is used if the bootstrap data are there.
	DataAvailableReason = "DataSecretCreated"
	// WaitingForInfrastructureReason is used before the cluster has its endpoint.
	WaitingForInfrastructureReason = "WaitingForClusterInfrastructureReady"
	// WaitingForControlPlaneReason is used while something of the control plane does not exist or answer that the machine needs.
	WaitingForControlPlaneReason = "WaitingForControlPlaneInitialized"
	// WaitingForServersReason is used while no server of the cluster has an address that another one could join.
	WaitingForServersReason = "WaitingForServers"
	// InvalidReason is used if the configuration cannot be used; the message says why.
	InvalidReason = "InvalidConfiguration"
	// AdmittedReason is used if the cluster knows the token with which the machine joins.
	AdmittedReason = "TokenCreated"
	// AdmissionFailedReason is used if the token could not be made known in the cluster.
	AdmissionFailedReason = "TokenFailed"
	// FailedReason is used if the bootstrap data could not be made.
	FailedReason = "DataSecretFailed"
)

// KindredConfigSpec describes how Kindred runs on a machine.
type KindredConfigSpec struct {
	// role is what Kindred is on the machine: Node by default. KindredControlPlane sets it for its machines.
	// +optional
	// +kubebuilder:default=Node
	Role Role `json:"role,omitempty"`
	// flags are further flags of "kindred join" for nodes, and of "kindred up" for servers, without the dashes: {"pod-network": "vxlan"}. Those
	// that the provider sets itself cannot be given.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	Flags map[string]string `json:"flags,omitempty"`
	// kubeletConfiguration is a KubeletConfiguration (kubelet.config.k8s.io/v1beta1), in YAML or JSON.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	KubeletConfiguration string `json:"kubeletConfiguration,omitempty"`
	// files are further files of the machine.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Files []File `json:"files,omitempty"`
}

// File is a file of a machine.
type File struct {
	// path is absolute, below /etc or /var/lib: the directories that a machine has for itself.
	// +kubebuilder:validation:Pattern=`^/(etc|var/lib)/.+`
	// +kubebuilder:validation:MaxLength=512
	Path string `json:"path"`
	// permissions are an octal number: 0600 by default.
	// +optional
	// +kubebuilder:validation:Pattern=`^0?[0-7]{3}$`
	Permissions string `json:"permissions,omitempty"`
	// content is the content of the file.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Content string `json:"content,omitempty"`
}

// KindredConfigStatus is the observed state of a KindredConfig.
type KindredConfigStatus struct {
	// initialization is part of the contract with Cluster API.
	// +optional
	Initialization KindredConfigInitialization `json:"initialization,omitempty,omitzero"`
	// dataSecretName is the name of the Secret with the bootstrap data.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	DataSecretName string `json:"dataSecretName,omitempty"`
	// observedGeneration is the generation that the controller has seen.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions are Ready, DataSecretAvailable, MachineAdmitted (of nodes) and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// KindredConfigInitialization reports the progress of the first provisioning.
// +kubebuilder:validation:MinProperties=1
type KindredConfigInitialization struct {
	// dataSecretCreated is true once the Secret with the bootstrap data exists.
	// +optional
	DataSecretCreated *bool `json:"dataSecretCreated,omitempty"`
}

// KindredConfig is the bootstrap configuration of a machine that runs Kindred.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=kindredconfigs,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Role",type="string",JSONPath=".spec.role",description="What Kindred is on the machine"
// +kubebuilder:printcolumn:name="Data secret created",type="string",JSONPath=".status.initialization.dataSecretCreated",description="Whether the bootstrap data exist"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type KindredConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec KindredConfigSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status KindredConfigStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (c *KindredConfig) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions sets the conditions.
func (c *KindredConfig) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// KindredConfigList is a list of KindredConfigs.
//
// +kubebuilder:object:root=true
type KindredConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KindredConfig `json:"items"`
}

// KindredConfigTemplateSpec has the template.
type KindredConfigTemplateSpec struct {
	// template is what KindredConfigs are made from.
	Template KindredConfigTemplateResource `json:"template"`
}

// KindredConfigTemplateResource is the template of a KindredConfig.
type KindredConfigTemplateResource struct {
	// metadata are the labels and annotations of KindredConfigs.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is that of KindredConfigs.
	// +optional
	Spec KindredConfigSpec `json:"spec,omitempty,omitzero"`
}

// KindredConfigTemplate is what the configurations of the machines of a MachineDeployment are made from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=kindredconfigtemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type KindredConfigTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec KindredConfigTemplateSpec `json:"spec,omitempty,omitzero"`
}

// KindredConfigTemplateList is a list of KindredConfigTemplates.
//
// +kubebuilder:object:root=true
type KindredConfigTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KindredConfigTemplate `json:"items"`
}

func init() {
	builder.Register(&KindredConfig{}, &KindredConfigList{}, &KindredConfigTemplate{}, &KindredConfigTemplateList{})
}
