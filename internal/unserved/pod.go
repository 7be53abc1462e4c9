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

func findInPod(spec *corev1.PodSpec, path string, cluster Cluster) (found []Finding) {
	if spec.SchedulerName != "" && spec.SchedulerName != corev1.DefaultSchedulerName {
		found = append(found, Finding{&schedulerName, fmt.Sprintf("%s.schedulerName: the scheduler of this cluster is %q; "+
			"the pod stays Pending until a scheduler with the name %q binds it", path, corev1.DefaultSchedulerName, spec.SchedulerName)})
	}
	for i := range spec.Volumes {
		if kind := unsupported(&spec.Volumes[i].VolumeSource); kind != "" {
			found = append(found, Finding{&volumeType, fmt.Sprintf("%s.volumes[%d].%s: no node supports volumes of this type; "+
				"the pod does not start", path, i, kind)})
		}
	}
	if !ptr.Deref(spec.HostUsers, true) && !anyHandler(cluster, func(f *corev1.NodeRuntimeHandlerFeatures) *bool { return f.UserNamespaces }) {
		found = append(found, Finding{&hostUsers, path + ".hostUsers: no node's container runtime supports user namespaces; the pod does not start"})
	}
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"initContainers", spec.InitContainers}, {"containers", spec.Containers}} {
		for i := range list.containers {
			mounts := list.containers[i].VolumeMounts
			for j := range mounts {
				if mounts[j].RecursiveReadOnly == nil || *mounts[j].RecursiveReadOnly != corev1.RecursiveReadOnlyEnabled ||
					anyHandler(cluster, func(f *corev1.NodeRuntimeHandlerFeatures) *bool { return f.RecursiveReadOnlyMounts }) {
					continue
				}
				found = append(found, Finding{&recursiveReadOnly, fmt.Sprintf("%s.%s[%d].volumeMounts[%d].recursiveReadOnly: "+
					"no node's container runtime supports recursive read-only mounts; the container does not start", path, list.name, i, j)})
			}
		}
	}
	return found
}

// anyHandler reports whether a runtime handler of any node has a feature. A node that reports no features may have it,
// and so may the first node if there is none yet.
func anyHandler(cluster Cluster, feature func(*corev1.NodeRuntimeHandlerFeatures) *bool) bool {
	nodes := cluster.Nodes()
	for _, node := range nodes {
		if len(node.Status.RuntimeHandlers) == 0 {
			return true
		}
		for i := range node.Status.RuntimeHandlers {
			features := node.Status.RuntimeHandlers[i].Features
			if features == nil || ptr.Deref(feature(features), false) {
				return true
			}
		}
	}
	return len(nodes) == 0
}
