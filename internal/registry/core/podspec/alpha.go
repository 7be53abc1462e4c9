// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// DropAlphaFields clears fields of features that are disabled in Kubernetes v1.37, as decoding
// drops unknown fields. PrepareForCreate and PrepareForUpdate call it first; old is nil on create.
func DropAlphaFields(ctx context.Context, pod, old *v1.Pod) {
	var before *v1.PodSpec
	if old != nil {
		before = &old.Spec
	}
	DropAlphaSpecFields(ctx, &pod.Spec, before)
	pod.Status.NodeAllocatableResourceClaimStatuses = nil
	pod.Status.VolumeHealth = nil
	for _, statuses := range [][]v1.ContainerStatus{
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			for j := range statuses[i].VolumeMounts {
				statuses[i].VolumeMounts[j].VolumeStatus = nil
			}
		}
	}
}

// DropAlphaSpecFields is DropAlphaFields for a spec without a pod, such as that of a template.
func DropAlphaSpecFields(ctx context.Context, spec, old *v1.PodSpec) {
	spec.EvictionResponders = nil
	// Pods of a group remain in it when the server no longer serves groups.
	if inGroup := old != nil && old.SchedulingGroup != nil; !inGroup && !generic.Gangs(ctx) {
		spec.SchedulingGroup = nil
	}
	for i := range spec.Volumes {
		dropAlphaVolumeFields(&spec.Volumes[i])
	}
	for _, container := range allContainers(spec, nil) {
		dropAlphaContainerFields(container)
	}
}

// DropAlphaTemplateFields is DropAlphaSpecFields for the template of an object. The template may be
// nil, and old is nil on create.
func DropAlphaTemplateFields[T any](ctx context.Context, obj, old T, template func(T) *v1.PodTemplateSpec) {
	now := template(obj)
	if now == nil {
		return
	}
	var none T
	var before *v1.PodSpec
	if any(old) != any(none) {
		if t := template(old); t != nil {
			before = &t.Spec
		}
	}
	DropAlphaSpecFields(ctx, &now.Spec, before)
}

func dropAlphaContainerFields(container *v1.Container) {
	for i := range container.VolumeMounts {
		container.VolumeMounts[i].BindMountOptions = nil
	}
	for _, probe := range []*v1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
		if probe == nil {
			continue
		}
		dropProtocol(probe.HTTPGet)
		if probe.GRPC != nil {
			probe.GRPC.Mode = nil
		}
	}
	lifecycle := container.Lifecycle
	if lifecycle == nil {
		return
	}
	for _, hook := range []*v1.LifecycleHandler{lifecycle.PostStart, lifecycle.PreStop} {
		if hook != nil {
			dropProtocol(hook.HTTPGet)
		}
	}
	if lifecycle.StopSignal != nil {
		lifecycle.StopSignal = nil
		if *lifecycle == (v1.Lifecycle{}) {
			container.Lifecycle = nil
		}
	}
}

func dropProtocol(get *v1.HTTPGetAction) {
	if get != nil {
		get.Protocol = nil
	}
}

// dropAlphaVolumeFields clears the mode of an emptyDir, and the owners of the
// files that the agent writes.
func dropAlphaVolumeFields(volume *v1.Volume) {
	if volume.EmptyDir != nil {
		volume.EmptyDir.Mode = nil
	}
	if secret := volume.Secret; secret != nil {
		secret.DefaultUser = nil
		dropItemUsers(secret.Items)
	}
	if configMap := volume.ConfigMap; configMap != nil {
		configMap.DefaultUser = nil
		dropItemUsers(configMap.Items)
	}
	if downward := volume.DownwardAPI; downward != nil {
		downward.DefaultUser = nil
		dropFileUsers(downward.Items)
	}
	if volume.Projected == nil {
		return
	}
	volume.Projected.DefaultUser = nil
	for _, source := range volume.Projected.Sources {
		dropProjectionUsers(source)
	}
}

func dropProjectionUsers(source v1.VolumeProjection) {
	if source.Secret != nil {
		dropItemUsers(source.Secret.Items)
	}
	if source.ConfigMap != nil {
		dropItemUsers(source.ConfigMap.Items)
	}
	if source.DownwardAPI != nil {
		dropFileUsers(source.DownwardAPI.Items)
	}
	if source.ServiceAccountToken != nil {
		source.ServiceAccountToken.User = nil
	}
	if source.ClusterTrustBundle != nil {
		source.ClusterTrustBundle.User = nil
	}
	if source.PodCertificate != nil {
		source.PodCertificate.User = nil
	}
}

func dropItemUsers(items []v1.KeyToPath) {
	for i := range items {
		items[i].User = nil
	}
}

func dropFileUsers(files []v1.DownwardAPIVolumeFile) {
	for i := range files {
		files[i].User = nil
	}
}
