// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// ClusterFinalizer is kept until the endpoint of a KindredCluster is removed from the host.
	ClusterFinalizer = "infrastructure.cluster.x-k8s.io/kindredcluster"
	// DefaultPort is the port of an API server unless the Cluster or the KindredCluster names one.
	DefaultPort = 6443
)

// KindredClusterSpec is what a cluster on the host needs beside its machines.
type KindredClusterSpec struct {
	// controlPlaneEndpoint is the address at which the API servers of the cluster are reached. The provider chooses an address of the host
	// that leads to the machines of the control plane; the port is 6443 unless one is given here or in the Cluster.
	// +optional
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`
}

// KindredClusterStatus is the observed state of a KindredCluster.
type KindredClusterStatus struct {
	// initialization is part of the contract with Cluster API.
	// +optional
	Initialization KindredClusterInitialization `json:"initialization,omitempty,omitzero"`
	// conditions are Ready and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// KindredClusterInitialization reports the progress of the first provisioning.
// +kubebuilder:validation:MinProperties=1
type KindredClusterInitialization struct {
	// provisioned is true once the cluster has its endpoint.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// KindredCluster is the infrastructure of a cluster whose machines are namespaces of a host.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=kindredclusters,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether the cluster has its endpoint"
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.controlPlaneEndpoint.host",description="Address of the API servers"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type KindredCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec KindredClusterSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status KindredClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (c *KindredCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions sets the conditions.
func (c *KindredCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// KindredClusterList is a list of KindredClusters.
//
// +kubebuilder:object:root=true
type KindredClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KindredCluster `json:"items"`
}

// KindredClusterTemplateSpec has the template.
type KindredClusterTemplateSpec struct {
	// template is what KindredClusters are made from.
	Template KindredClusterTemplateResource `json:"template"`
}

// KindredClusterTemplateResource is the template of a KindredCluster.
type KindredClusterTemplateResource struct {
	// metadata are the labels and annotations of KindredClusters.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec is that of KindredClusters.
	// +optional
	Spec KindredClusterSpec `json:"spec,omitempty,omitzero"`
}

// KindredClusterTemplate is what a ClusterClass makes KindredClusters from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=kindredclustertemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type KindredClusterTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec KindredClusterTemplateSpec `json:"spec,omitempty,omitzero"`
}

// KindredClusterTemplateList is a list of KindredClusterTemplates.
//
// +kubebuilder:object:root=true
type KindredClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KindredClusterTemplate `json:"items"`
}

func init() {
	builder.Register(&KindredCluster{}, &KindredClusterList{}, &KindredClusterTemplate{}, &KindredClusterTemplateList{})
}
