// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalizer knows the finalizers that Kubernetes' own components set, which every cluster
// sets again where it needs them. Every other finalizer belongs to a controller that somebody
// installed, and stands for work that this controller does before an object goes.
package finalizer

import (
	"encoding/json"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
)

// builtin are Kubernetes' own finalizers, with the component that removes each and its condition.
// A name counts only as a whole: neither a name without a domain nor one in a domain of
// Kubernetes' is Kubernetes' for that reason (cluster.cluster.x-k8s.io, foo.kubernetes.io/bar).
// Names without a constant here stand in packages of k8s.io/kubernetes or k8s.io/cloud-provider.
var builtin = map[string]string{
	metav1.FinalizerDeleteDependents:   "the garbage collector takes it away when no dependent blocks it any more",
	metav1.FinalizerOrphanDependents:   "the garbage collector takes it away when the dependents are let go",
	string(corev1.FinalizerKubernetes): "",

	"kubernetes.io/pvc-protection":             "the claim protection controller takes it away when no pod uses the claim",
	"kubernetes.io/pv-protection":              "the volume protection controller takes it away when no claim is bound to the volume",
	"kubernetes.io/vac-protection":             "the VolumeAttributesClass protection controller takes it away when no claim or volume uses the class",
	"kubernetes.io/pvc-as-source-protection":   "the CSI snapshotter or provisioner takes it away when nothing is made from the claim any more",
	volume.PVDeletionInTreeProtectionFinalizer: "the volume controller takes it away when the volume is deleted",
	volume.PVDeletionProtectionFinalizer:       "the provisioner of the CSI driver takes it away when the volume is deleted",

	batchv1.JobTrackingFinalizer:                   "the Job controller takes it away when it has counted the pod",
	"service.kubernetes.io/load-balancer-cleanup":  "the service controller of the cloud takes it away when the load balancer is gone",
	"networking.k8s.io/service-cidr-finalizer":     "the ServiceCIDR controller takes it away when no address of the range is in use",
	resourcev1.Finalizer:                           "the ResourceClaim controller takes it away when no pod uses the claim",
	"scheduling.k8s.io/podgroup-protection":        "the PodGroup protection controller takes it away when no pod of the group is left",
	apiextensionsv1.CustomResourceCleanupFinalizer: "the API server takes it away when no custom resource of this kind is left",
}

// known are the removers of finalizers that other components set, by their domains.
var known = map[string]string{
	"external-attacher": "the attacher of the CSI driver takes it away when the volume is detached",
}

// IsKubernetes reports whether a finalizer is one of Kubernetes' own.
func IsKubernetes(name string) bool {
	_, found := builtin[name]
	return found
}

// Remover says which component takes a finalizer away, and when, or "" if that is not known.
func Remover(name string) string {
	if remover, found := builtin[name]; found {
		return remover
	}
	domain, _, _ := strings.Cut(name, "/")
	return known[domain]
}

// Foreign returns those finalizers of an object that are not Kubernetes' own.
func Foreign(object metav1.Object) []string {
	var foreign []string
	for _, name := range object.GetFinalizers() {
		if !IsKubernetes(name) {
			foreign = append(foreign, name)
		}
	}
	return foreign
}

// SetBy returns the field manager that set a finalizer of an object, or "" if none claims it.
func SetBy(object metav1.Object, name string) string {
	for _, entry := range object.GetManagedFields() {
		if entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Finalizers map[string]json.RawMessage `json:"f:finalizers"`
			} `json:"f:metadata"`
		}
		if err := json.Unmarshal(entry.FieldsV1.Raw, &fields); err != nil {
			continue
		}
		// A set's items go by their value, in JSON (structured-merge-diff, fieldpath).
		value, _ := json.Marshal(name)
		if _, found := fields.Metadata.Finalizers["v:"+string(value)]; found {
			return entry.Manager
		}
	}
	return ""
}
