// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/utils/ptr"
)

// References are the objects of its own namespace that a pod refers to.
type References struct {
	Secrets, ConfigMaps, Claims, ResourceClaims []string
	ServiceAccount                              string
}

// ReferencesOf returns what a pod refers to, each name once.
func ReferencesOf(pod *corev1.Pod) References {
	refs := References{ServiceAccount: pod.Spec.ServiceAccountName}
	for _, secret := range pod.Spec.ImagePullSecrets {
		refs.secret(secret.Name)
	}
	for i := range pod.Spec.InitContainers {
		refs.environment(pod.Spec.InitContainers[i].EnvFrom, pod.Spec.InitContainers[i].Env)
	}
	for i := range pod.Spec.Containers {
		refs.environment(pod.Spec.Containers[i].EnvFrom, pod.Spec.Containers[i].Env)
	}
	for i := range pod.Spec.EphemeralContainers {
		refs.environment(pod.Spec.EphemeralContainers[i].EnvFrom, pod.Spec.EphemeralContainers[i].Env)
	}
	for i := range pod.Spec.Volumes {
		refs.volume(pod, &pod.Spec.Volumes[i])
	}
	refs.resourceClaims(pod)
	return refs.unique()
}

func (r *References) secret(name string)    { r.Secrets = append(r.Secrets, name) }
func (r *References) configMap(name string) { r.ConfigMaps = append(r.ConfigMaps, name) }

func (r *References) environment(from []corev1.EnvFromSource, env []corev1.EnvVar) {
	for _, source := range from {
		if source.SecretRef != nil {
			r.secret(source.SecretRef.Name)
		}
		if source.ConfigMapRef != nil {
			r.configMap(source.ConfigMapRef.Name)
		}
	}
	for _, variable := range env {
		source := variable.ValueFrom
		if source == nil {
			continue
		}
		if source.SecretKeyRef != nil {
			r.secret(source.SecretKeyRef.Name)
		}
		if source.ConfigMapKeyRef != nil {
			r.configMap(source.ConfigMapKeyRef.Name)
		}
	}
}

func (r *References) volume(pod *corev1.Pod, v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		r.configMap(v.ConfigMap.Name)
	case v.Secret != nil:
		r.secret(v.Secret.SecretName)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			if source.Secret != nil {
				r.secret(source.Secret.Name)
			}
			if source.ConfigMap != nil {
				r.configMap(source.ConfigMap.Name)
			}
		}
	case v.PersistentVolumeClaim != nil:
		r.Claims = append(r.Claims, v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		r.Claims = append(r.Claims, ephemeral.VolumeClaimName(pod, v))
	case v.AzureFile != nil:
		r.secret(v.AzureFile.SecretName)
	default:
		r.secret(driverSecret(v))
	}
}

// driverSecret returns the secret with the credentials of a volume's driver.
func driverSecret(v *corev1.Volume) string {
	var ref *corev1.LocalObjectReference
	switch {
	case v.CephFS != nil:
		ref = v.CephFS.SecretRef
	case v.Cinder != nil:
		ref = v.Cinder.SecretRef
	case v.FlexVolume != nil:
		ref = v.FlexVolume.SecretRef
	case v.RBD != nil:
		ref = v.RBD.SecretRef
	case v.ScaleIO != nil:
		ref = v.ScaleIO.SecretRef
	case v.ISCSI != nil:
		ref = v.ISCSI.SecretRef
	case v.StorageOS != nil:
		ref = v.StorageOS.SecretRef
	case v.CSI != nil:
		ref = v.CSI.NodePublishSecretRef
	}
	return ptr.Deref(ref, corev1.LocalObjectReference{}).Name
}

// resourceClaims adds the claims for a pod's devices: named in its spec, or created from a template
// and named in its status.
func (r *References) resourceClaims(pod *corev1.Pod) {
	for _, claim := range pod.Spec.ResourceClaims {
		if claim.ResourceClaimName != nil {
			r.ResourceClaims = append(r.ResourceClaims, *claim.ResourceClaimName)
		}
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		r.ResourceClaims = append(r.ResourceClaims, ptr.Deref(status.ResourceClaimName, ""))
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		r.ResourceClaims = append(r.ResourceClaims, extended.ResourceClaimName)
	}
}

func (r References) unique() References {
	for _, names := range []*[]string{&r.Secrets, &r.ConfigMaps, &r.Claims, &r.ResourceClaims} {
		slices.Sort(*names)
		*names = slices.DeleteFunc(slices.Compact(*names), func(name string) bool { return name == "" })
	}
	return r
}

// volumeSecret is a secret by namespace and name.
type volumeSecret struct{ namespace, name string }

// volumeSecrets returns the secrets that a node needs to mount a persistent volume, without those
// for the controller part of a CSI driver.
func volumeSecrets(pv *corev1.PersistentVolume) []volumeSecret {
	source := &pv.Spec.PersistentVolumeSource
	// In volumes from before the secret had a namespace, it is in the claim's.
	claimNamespace := ptr.Deref(pv.Spec.ClaimRef, corev1.ObjectReference{}).Namespace
	if source.AzureFile != nil {
		return secretIn(claimNamespace, ptr.Deref(source.AzureFile.SecretNamespace, ""), source.AzureFile.SecretName)
	}
	var refs []*corev1.SecretReference
	switch {
	case source.CephFS != nil:
		refs = append(refs, source.CephFS.SecretRef)
	case source.Cinder != nil:
		refs = append(refs, source.Cinder.SecretRef)
	case source.FlexVolume != nil:
		refs = append(refs, source.FlexVolume.SecretRef)
	case source.RBD != nil:
		refs = append(refs, source.RBD.SecretRef)
	case source.ScaleIO != nil:
		refs = append(refs, source.ScaleIO.SecretRef)
	case source.ISCSI != nil:
		refs = append(refs, source.ISCSI.SecretRef)
	case source.StorageOS != nil && source.StorageOS.SecretRef != nil:
		return secretIn("", source.StorageOS.SecretRef.Namespace, source.StorageOS.SecretRef.Name)
	case source.CSI != nil:
		refs = append(refs, source.CSI.NodePublishSecretRef, source.CSI.NodeStageSecretRef, source.CSI.NodeExpandSecretRef)
	}
	var found []volumeSecret
	for _, ref := range refs {
		if ref != nil {
			found = append(found, secretIn(claimNamespace, ref.Namespace, ref.Name)...)
		}
	}
	return found
}

func secretIn(fallback, namespace, name string) []volumeSecret {
	if name == "" {
		return nil
	}
	if namespace == "" {
		namespace = fallback
	}
	return []volumeSecret{{namespace: namespace, name: name}}
}
