// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"path"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// SetDefaults_Pod defaults fields of pods, but not of pod templates: a controller does not see these
// defaults as a change of its template.
func SetDefaults_Pod(obj *v1.Pod) {
	spec := &obj.Spec
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	spec.EnableServiceLinks = cmp.Or(spec.EnableServiceLinks, new(v1.DefaultEnableServiceLinks))
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			requestLimits(&containers[i].Resources)
			if spec.HostNetwork {
				publishOnHost(containers[i].Ports)
			}
		}
	}
}

// requestLimits sets missing requests to the limits.
func requestLimits(resources *v1.ResourceRequirements) {
	if resources.Limits != nil && resources.Requests == nil {
		resources.Requests = v1.ResourceList{}
	}
	addMissing(&resources.Requests, resources.Limits)
}

// publishOnHost sets hostPort of pods in the host network.
func publishOnHost(ports []v1.ContainerPort) {
	for i := range ports {
		ports[i].HostPort = cmp.Or(ports[i].HostPort, ports[i].ContainerPort)
	}
}

// SetDefaults_PodStatus keeps podIP and podIPs[0] the same; podIP wins.
func SetDefaults_PodStatus(obj *v1.PodStatus) {
	switch {
	case obj.PodIP == "" && len(obj.PodIPs) > 0:
		obj.PodIP = obj.PodIPs[0].IP
	case obj.PodIP != "" && (len(obj.PodIPs) == 0 || obj.PodIPs[0].IP != obj.PodIP):
		obj.PodIPs = []v1.PodIP{{IP: obj.PodIP}}
	}
}

// SetDefaults_PodSpec defaults pods and pod templates alike. Do not add to it:
// a new default here changes every stored template, and so starts a rollout of
// every workload.
func SetDefaults_PodSpec(obj *v1.PodSpec) {
	obj.ServiceAccountName = cmp.Or(obj.ServiceAccountName, obj.DeprecatedServiceAccount)
	obj.DeprecatedServiceAccount = obj.ServiceAccountName
	obj.DNSPolicy = cmp.Or(obj.DNSPolicy, v1.DNSClusterFirst)
	obj.RestartPolicy = cmp.Or(obj.RestartPolicy, v1.RestartPolicyAlways)
	obj.SecurityContext = cmp.Or(obj.SecurityContext, &v1.PodSecurityContext{})
	obj.TerminationGracePeriodSeconds = cmp.Or(obj.TerminationGracePeriodSeconds, new(int64(v1.DefaultTerminationGracePeriodSeconds)))
	obj.SchedulerName = cmp.Or(obj.SchedulerName, v1.DefaultSchedulerName)
}

func SetDefaults_Container(obj *v1.Container) {
	obj.ImagePullPolicy = cmp.Or(obj.ImagePullPolicy, pullPolicyOf(obj.Image))
	obj.TerminationMessagePath = cmp.Or(obj.TerminationMessagePath, v1.TerminationMessagePathDefault)
	obj.TerminationMessagePolicy = cmp.Or(obj.TerminationMessagePolicy, v1.TerminationMessageReadFile)
}

func SetDefaults_EphemeralContainer(obj *v1.EphemeralContainer) {
	SetDefaults_Container((*v1.Container)(&obj.EphemeralContainerCommon))
}

// pullPolicyOf returns Always for an image with the tag latest, explicit or implied, because a later
// push moves that tag. Validation or the runtime refuses an image that cannot be parsed.
func pullPolicyOf(image string) v1.PullPolicy {
	// Pods are decoded often, and parsing a name is expensive.
	name, _, _ := strings.Cut(path.Base(image), "@")
	if _, tag, ok := strings.Cut(name, ":"); ok && tag != latest {
		return v1.PullIfNotPresent
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == latest {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

const latest = "latest"

// SetDefaults_ResourceList rounds up to a thousandth, the finest unit that the
// API keeps.
func SetDefaults_ResourceList(obj *v1.ResourceList) {
	for name, quantity := range *obj {
		quantity.RoundUp(resource.Milli)
		(*obj)[name] = quantity
	}
}

func SetDefaults_Probe(obj *v1.Probe) {
	obj.TimeoutSeconds = cmp.Or(obj.TimeoutSeconds, 1)
	obj.PeriodSeconds = cmp.Or(obj.PeriodSeconds, 10)
	obj.SuccessThreshold = cmp.Or(obj.SuccessThreshold, 1)
	obj.FailureThreshold = cmp.Or(obj.FailureThreshold, 3)
}

func SetDefaults_HTTPGetAction(obj *v1.HTTPGetAction) {
	obj.Path = cmp.Or(obj.Path, "/")
	obj.Scheme = cmp.Or(obj.Scheme, v1.URISchemeHTTP)
}

func SetDefaults_ObjectFieldSelector(obj *v1.ObjectFieldSelector) {
	obj.APIVersion = cmp.Or(obj.APIVersion, "v1")
}
