// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalizer knows the finalizers that Kubernetes' own components set. Every cluster sets
// these again where it needs them. All other finalizers belong to installed controllers, which have
// work to do before the object is deleted.
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

// builtin has Kubernetes' own finalizers, with the component that removes each and its condition.
// Only complete names match: a name without a domain, or in a domain of Kubernetes, need not be
// Kubernetes' own (cluster.cluster.x-k8s.io, foo.kubernetes.io/bar). Names without a constant here
// are defined in k8s.io/kubernetes or k8s.io/cloud-provider.
var builtin = map[string]string{
	metav1.FinalizerDeleteDependents:   "the garbage collector removes it when no dependent blocks it",
	metav1.FinalizerOrphanDependents:   "the garbage collector removes it when the dependents are orphaned",
	string(corev1.FinalizerKubernetes): "",

	"kubernetes.io/pvc-protection":             "the claim protection controller removes it when no pod uses the claim",
	"kubernetes.io/pv-protection":              "the volume protection controller removes it when no claim is bound to the volume",
	"kubernetes.io/vac-protection":             "the VolumeAttributesClass protection controller removes it when no claim or volume uses the class",
	"kubernetes.io/pvc-as-source-protection":   "the CSI snapshotter or provisioner removes it when nothing is provisioned from the claim any more",
	volume.PVDeletionInTreeProtectionFinalizer: "the volume controller removes it when the volume is deleted",
	volume.PVDeletionProtectionFinalizer:       "the provisioner of the volume removes it when the data is deleted",

	batchv1.JobTrackingFinalizer:                   "the Job controller removes it when it has counted the pod",
	"service.kubernetes.io/load-balancer-cleanup":  "the service controller of the cloud removes it when the load balancer is gone",
	"networking.k8s.io/service-cidr-finalizer":     "the ServiceCIDR controller removes it when no address of the range is in use",
	resourcev1.Finalizer:                           "the ResourceClaim controller removes it when no pod uses the claim",
	"scheduling.k8s.io/podgroup-protection":        "the PodGroup protection controller removes it when no pod of the group is left",
	apiextensionsv1.CustomResourceCleanupFinalizer: "the API server removes it when no custom resource of this kind is left",
}

// known has the components that remove other finalizers, by domain.
var known = map[string]string{
	"external-attacher": "the attacher of the CSI driver removes it when the volume is detached",
}

// IsKubernetes reports whether a finalizer is one of Kubernetes' own.
func IsKubernetes(name string) bool {
	_, found := builtin[name]
	return found
}

// Remover returns which component removes a finalizer, and when; "" if that is not known.
func Remover(name string) string {
	if remover, found := builtin[name]; found {
		return remover
	}
	domain, _, _ := strings.Cut(name, "/")
	return known[domain]
}

// Foreign returns the finalizers of an object that are not Kubernetes' own.
func Foreign(object metav1.Object) []string {
	var foreign []string
	for _, name := range object.GetFinalizers() {
		if !IsKubernetes(name) {
			foreign = append(foreign, name)
		}
	}
	return foreign
}

// SetBy returns the field manager that owns a finalizer of an object, or "" if none does.
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
		// Items of a set are keyed by their value in JSON (structured-merge-diff, fieldpath).
		value, _ := json.Marshal(name)
		if _, found := fields.Metadata.Finalizers["v:"+string(value)]; found {
			return entry.Manager
		}
	}
	return ""
}
