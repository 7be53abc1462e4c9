// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// MachineFinalizer is kept until the machine is removed from the host.
const MachineFinalizer = "infrastructure.cluster.x-k8s.io/kindredmachine"

// ProviderIDPrefix precedes the name that a machine has on the host.
const ProviderIDPrefix = "kindred:///"

// Reasons of the condition Ready of a KindredMachine.
const (
	// WaitingForBootstrapDataReason is used before the bootstrap configuration is known.
	WaitingForBootstrapDataReason = "WaitingForBootstrapData"
	// WaitingForClusterReason is used before the cluster has its endpoint.
	WaitingForClusterReason = "WaitingForClusterInfrastructureReady"
	// NotInstalledReason is used if the host does not have Kindred in the version of the machine.
	NotInstalledReason = "VersionNotInstalled"
	// BootstrapFormatReason is used if the bootstrap configuration is not one for Kindred.
	BootstrapFormatReason = "UnsupportedBootstrapFormat"
	// HostReason is used if the host refuses the machine.
	HostReason = "HostFailed"
	// DeadReason is used if the first process of the machine was killed.
	DeadReason = "MachineDead"
	// KindredEndsReason is used if the machine runs, and Kindred in it ends again and again.
	KindredEndsReason = "KindredEnds"
	// RunningReason is used if the machine runs.
	RunningReason = "MachineRunning"
	// GoneReason is used if the host does not have a machine that was provisioned.
	GoneReason = "MachineGone"
)

// KindredMachineSpec describes a machine on the host.
type KindredMachineSpec struct {
	// providerID identifies the machine, and the Node that runs on it. The provider sets it before it makes the machine.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`
	// memory limits what all processes of the machine use together; no limit by default.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// KindredMachineStatus is the observed state of a KindredMachine.
type KindredMachineStatus struct {
	// initialization is part of the contract with Cluster API.
	// +optional
	Initialization KindredMachineInitialization `json:"initialization,omitempty,omitzero"`
	// addresses are those of the machine on the host.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`
	// conditions are Ready and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// KindredMachineInitialization reports the progress of the first provisioning.
// +kubebuilder:validation:MinProperties=1
type KindredMachineInitialization struct {
	// provisioned is true once the machine runs.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// KindredMachine is a machine: namespaces of the host, in which Kindred runs as a node or as a server.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=kindredmachines,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether the machine runs"
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=".status.addresses[?(@.type=='InternalIP')].address",description="Address of the machine"
// +kubebuilder:printcolumn:name="ProviderID",type="string",JSONPath=".spec.providerID",description="Identity of the machine"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type KindredMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec KindredMachineSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status KindredMachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (m *KindredMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions sets the conditions.
func (m *KindredMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// KindredMachineList is a list of KindredMachines.
//
// +kubebuilder:object:root=true
type KindredMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KindredMachine `json:"items"`
}

// KindredMachineTemplateSpec has the template.
type KindredMachineTemplateSpec struct {
	// template is what KindredMachines are made from.
	Template KindredMachineTemplateResource `json:"template"`
}

// KindredMachineTemplateResource is the template of a KindredMachine.
type KindredMachineTemplateResource struct {
	// metadata are the labels and annotations of KindredMachines.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is that of KindredMachines.
	// +optional
	Spec KindredMachineSpec `json:"spec,omitempty,omitzero"`
}

// KindredMachineTemplate is what the machines of a control plane or of a MachineDeployment are made from. Its spec cannot be changed:
// another template makes other machines.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=kindredmachinetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type KindredMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec KindredMachineTemplateSpec `json:"spec,omitempty,omitzero"`
}

// KindredMachineTemplateList is a list of KindredMachineTemplates.
//
// +kubebuilder:object:root=true
type KindredMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KindredMachineTemplate `json:"items"`
}

func init() {
	builder.Register(&KindredMachine{}, &KindredMachineList{}, &KindredMachineTemplate{}, &KindredMachineTemplateList{})
}
