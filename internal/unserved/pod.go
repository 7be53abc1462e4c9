// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package unserved

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// podSpec returns the pod's spec that an object has, and the path of it. The creator of a workload does not see the
// warnings that its pods get.
func podSpec(object any) (*corev1.PodSpec, string) {
	switch o := object.(type) {
	case *corev1.Pod:
		return &o.Spec, "spec"
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec, templatePath
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec, templatePath
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec, templatePath
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec, templatePath
	case *batchv1.Job:
		return &o.Spec.Template.Spec, templatePath
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec, "spec.jobTemplate." + templatePath
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			return &o.Spec.Template.Spec, templatePath
		}
	}
	return nil, ""
}

const templatePath = "spec.template.spec"

// podFinder collects what nothing acts on in one pod.
type podFinder struct {
	path    string
	cluster Cluster
	found   []Finding
}

func (f *podFinder) add(fact *Fact, field, effect string) {
	f.found = append(f.found, Finding{fact, f.path + "." + field + ": " + effect})
}

func findInPod(namespace string, spec *corev1.PodSpec, path string, cluster Cluster) []Finding {
	f := podFinder{path: path, cluster: cluster}
	if name := spec.SchedulerName; name != "" && name != corev1.DefaultSchedulerName {
		f.add(&schedulerName, "schedulerName", fmt.Sprintf("the scheduler of this cluster is %q; "+
			"the pod stays Pending until a scheduler with the name %q binds it", corev1.DefaultSchedulerName, name))
	}
	for i := range spec.ResourceClaims {
		if name := spec.ResourceClaims[i].ResourceClaimName; name != nil && !cluster.HasResourceClaim(namespace, *name) {
			f.add(&resourceClaim, fmt.Sprintf("resourceClaims[%d].resourceClaimName", i),
				fmt.Sprintf("the pod stays Pending until there is a ResourceClaim %q", *name))
		}
	}
	for i := range spec.Volumes {
		f.volume(&spec.Volumes[i].VolumeSource, i)
	}
	if !ptr.Deref(spec.HostUsers, true) && lacking(cluster, UserNamespaces) {
		f.add(&hostUsers, "hostUsers", "no node's container runtime supports user namespaces; the pod does not start")
	}
	if c := spec.SecurityContext; c != nil {
		f.podSecurity(c)
	}
	for i := range spec.InitContainers {
		f.container(&spec.InitContainers[i], "initContainers", i)
	}
	for i := range spec.Containers {
		f.container(&spec.Containers[i], "containers", i)
	}
	return f.found
}

func (f *podFinder) volume(v *corev1.VolumeSource, i int) {
	if kind := unsupported(v); kind != "" {
		f.add(&volumeType, fmt.Sprintf("volumes[%d].%s", i, kind), "no node supports volumes of this type; the pod does not start")
	}
	if v.Image != nil && lacking(f.cluster, ImageVolumes) {
		f.add(&imageVolume, fmt.Sprintf("volumes[%d].image", i), "no node's container runtime mounts images as volumes; the pod does not start")
	}
}

func (f *podFinder) podSecurity(c *corev1.PodSecurityContext) {
	f.security("securityContext", c.SELinuxOptions, c.AppArmorProfile, c.WindowsOptions)
	if p := c.SupplementalGroupsPolicy; p != nil && *p == corev1.SupplementalGroupsPolicyStrict && noStrictGroups(f.cluster) {
		f.add(&groupsPolicy, "securityContext.supplementalGroupsPolicy", "no node's container runtime supports Strict; the pod fails")
	}
}

// security finds what a security context of a pod and one of a container have in common.
func (f *podFinder) security(at string, selinux *corev1.SELinuxOptions, profile *corev1.AppArmorProfile, windows *corev1.WindowsSecurityContextOptions) {
	if selinux != nil && lacking(f.cluster, SELinux) {
		f.add(&seLinux, at+".seLinuxOptions", "no node has SELinux; the options have no effect")
	}
	if profile != nil && profile.Type != corev1.AppArmorProfileTypeUnconfined && lacking(f.cluster, AppArmor) {
		f.add(&appArmor, at+".appArmorProfile", "no node has AppArmor; the pod fails")
	}
	if windows != nil && noWindows(f.cluster) {
		f.add(&windowsOptions, at+".windowsOptions", "no node runs Windows; the options have no effect")
	}
}

func (f *podFinder) container(c *corev1.Container, list string, i int) {
	for j := range c.VolumeMounts {
		if mode := c.VolumeMounts[j].RecursiveReadOnly; mode != nil && *mode == corev1.RecursiveReadOnlyEnabled && lacking(f.cluster, RecursiveReadOnlyMounts) {
			f.add(&recursiveReadOnly, fmt.Sprintf("%s[%d].volumeMounts[%d].recursiveReadOnly", list, i, j),
				"no node's container runtime supports recursive read-only mounts; the container does not start")
		}
	}
	s := c.SecurityContext
	if s == nil {
		return
	}
	if s.SELinuxOptions != nil || s.AppArmorProfile != nil || s.WindowsOptions != nil {
		f.security(fmt.Sprintf("%s[%d].securityContext", list, i), s.SELinuxOptions, s.AppArmorProfile, s.WindowsOptions)
	}
	if s.Capabilities == nil {
		return
	}
	for _, change := range []struct {
		name  string
		names []corev1.Capability
	}{{"add", s.Capabilities.Add}, {"drop", s.Capabilities.Drop}} {
		for j, name := range change.names {
			if problem := notACapability(string(name)); problem != "" {
				f.add(&capability, fmt.Sprintf("%s[%d].securityContext.capabilities.%s[%d]", list, i, change.name, j), problem)
			}
		}
	}
}
