// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// SetDefaults_Namespace labels a namespace with its own name, for selectors (KEP-2161). A generated
// name is not known yet, so the strategy calls this again.
func SetDefaults_Namespace(obj *v1.Namespace) {
	if obj.Name == "" {
		return
	}
	if obj.Labels == nil {
		obj.Labels = map[string]string{}
	}
	obj.Labels[v1.LabelMetadataName] = obj.Name
}

func SetDefaults_NamespaceStatus(obj *v1.NamespaceStatus) {
	obj.Phase = cmp.Or(obj.Phase, v1.NamespaceActive)
}

// SetDefaults_NodeSpec makes podCIDR the first of podCIDRs, because older clients only know
// podCIDR (KEP-563). If the two differ, podCIDR wins.
func SetDefaults_NodeSpec(obj *v1.NodeSpec) {
	switch {
	case len(obj.PodCIDRs) == 0 && obj.PodCIDR == "":
	case obj.PodCIDR == "":
		obj.PodCIDR = obj.PodCIDRs[0]
	case len(obj.PodCIDRs) == 0 || obj.PodCIDRs[0] != obj.PodCIDR:
		obj.PodCIDRs = []string{obj.PodCIDR}
	}
}

// SetDefaults_NodeStatus sets allocatable to capacity if the node reserves nothing.
func SetDefaults_NodeStatus(obj *v1.NodeStatus) {
	if obj.Allocatable == nil {
		obj.Allocatable = obj.Capacity.DeepCopy()
	}
}

// SetDefaults_Secret also moves stringData into data: admission, field managers and the store
// only see data.
func SetDefaults_Secret(obj *v1.Secret) {
	obj.Type = cmp.Or(obj.Type, v1.SecretTypeOpaque)
	for key, value := range obj.StringData {
		if obj.Data == nil {
			obj.Data = map[string][]byte{}
		}
		obj.Data[key] = []byte(value)
	}
	obj.StringData = nil
}

func SetDefaults_ConfigMap(obj *v1.ConfigMap) {
	if obj.Data == nil {
		obj.Data = map[string]string{}
	}
}

func SetDefaults_Endpoints(obj *v1.Endpoints) {
	for i := range obj.Subsets {
		ports := obj.Subsets[i].Ports
		for j := range ports {
			ports[j].Protocol = cmp.Or(ports[j].Protocol, v1.ProtocolTCP)
		}
	}
}

// SetDefaults_ReplicationController takes the selector from the labels of the template. The number
// of replicas is a +default of the type.
func SetDefaults_ReplicationController(obj *v1.ReplicationController) {
	if obj.Spec.Template == nil || obj.Spec.Template.Labels == nil {
		return
	}
	if len(obj.Spec.Selector) == 0 {
		obj.Spec.Selector = maps.Clone(obj.Spec.Template.Labels)
	}
	if len(obj.Labels) == 0 {
		obj.Labels = maps.Clone(obj.Spec.Template.Labels)
	}
}

func SetDefaults_PersistentVolume(obj *v1.PersistentVolume) {
	obj.Status.Phase = cmp.Or(obj.Status.Phase, v1.VolumePending)
	obj.Spec.PersistentVolumeReclaimPolicy = cmp.Or(obj.Spec.PersistentVolumeReclaimPolicy, v1.PersistentVolumeReclaimRetain)
	obj.Spec.VolumeMode = cmp.Or(obj.Spec.VolumeMode, new(v1.PersistentVolumeFilesystem))
}

func SetDefaults_PersistentVolumeClaim(obj *v1.PersistentVolumeClaim) {
	obj.Status.Phase = cmp.Or(obj.Status.Phase, v1.ClaimPending)
}

func SetDefaults_PersistentVolumeClaimSpec(obj *v1.PersistentVolumeClaimSpec) {
	obj.VolumeMode = cmp.Or(obj.VolumeMode, new(v1.PersistentVolumeFilesystem))
}

// SetDefaults_LimitRangeItem completes a container's limits from each other:
// a missing default is the maximum, a missing default request is the default,
// or else the minimum.
func SetDefaults_LimitRangeItem(obj *v1.LimitRangeItem) {
	if obj.Type != v1.LimitTypeContainer {
		return
	}
	if obj.Default == nil {
		obj.Default = v1.ResourceList{}
	}
	if obj.DefaultRequest == nil {
		obj.DefaultRequest = v1.ResourceList{}
	}
	addMissing(&obj.Default, obj.Max)
	addMissing(&obj.DefaultRequest, obj.Default)
	addMissing(&obj.DefaultRequest, obj.Min)
}

// addMissing copies the resources to list that only source has.
func addMissing(list *v1.ResourceList, source v1.ResourceList) {
	if *list == nil && len(source) > 0 {
		*list = v1.ResourceList{}
	}
	for name, quantity := range source {
		if _, found := (*list)[name]; !found {
			(*list)[name] = quantity.DeepCopy()
		}
	}
}

func SetDefaults_Service(obj *v1.Service) {
	spec := &obj.Spec
	spec.Type = cmp.Or(spec.Type, v1.ServiceTypeClusterIP)
	defaultSessionAffinity(spec)
	for i := range spec.Ports {
		defaultServicePort(&spec.Ports[i])
	}
	if reachableFromOutside(spec) {
		spec.ExternalTrafficPolicy = cmp.Or(spec.ExternalTrafficPolicy, v1.ServiceExternalTrafficPolicyCluster)
	}
	switch spec.Type {
	case v1.ServiceTypeClusterIP, v1.ServiceTypeNodePort, v1.ServiceTypeLoadBalancer:
		spec.InternalTrafficPolicy = cmp.Or(spec.InternalTrafficPolicy, new(v1.ServiceInternalTrafficPolicyCluster))
	}
	if spec.Type != v1.ServiceTypeLoadBalancer {
		return
	}
	spec.AllocateLoadBalancerNodePorts = cmp.Or(spec.AllocateLoadBalancerNodePorts, new(true))
	ingress := obj.Status.LoadBalancer.Ingress
	for i := range ingress {
		if ingress[i].IP != "" {
			ingress[i].IPMode = cmp.Or(ingress[i].IPMode, new(v1.LoadBalancerIPModeVIP))
		}
	}
}

func defaultSessionAffinity(spec *v1.ServiceSpec) {
	spec.SessionAffinity = cmp.Or(spec.SessionAffinity, v1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case v1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case v1.ServiceAffinityClientIP:
		config := spec.SessionAffinityConfig
		if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &v1.SessionAffinityConfig{
				ClientIP: &v1.ClientIPConfig{TimeoutSeconds: new(v1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
}

func defaultServicePort(port *v1.ServicePort) {
	port.Protocol = cmp.Or(port.Protocol, v1.ProtocolTCP)
	if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
		port.TargetPort = intstr.FromInt32(port.Port)
	}
}

func reachableFromOutside(spec *v1.ServiceSpec) bool {
	switch spec.Type {
	case v1.ServiceTypeLoadBalancer, v1.ServiceTypeNodePort:
		return true
	case v1.ServiceTypeClusterIP:
		return len(spec.ExternalIPs) > 0
	}
	return false
}
