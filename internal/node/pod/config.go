// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/environment"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// Host is what pods' configurations need to know of the node.
type Host struct {
	Layout Layout
	// Owner is the value of runtime.LabelOwner.
	Owner string
	// IPs are the node's addresses, one a family.
	IPs []string
	DNS DNS
	// Memory is the node's memory in bytes.
	Memory int64
}

// sandboxConfig describes a pod's sandbox to the runtime.
func (h Host) sandboxConfig(pod *v1.Pod, attempt uint32, cgroupParent string, dns *runtimeapi.DNSConfig) (*runtimeapi.PodSandboxConfig, error) {
	if isFalse(pod.Spec.HostUsers) {
		return nil, fmt.Errorf("the node does not support user namespaces (hostUsers: false)")
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt,
		},
		Labels:       h.podLabels(pod),
		Annotations:  pod.Annotations,
		LogDirectory: h.Layout.PodLogsDir(pod.Namespace, pod.Name, pod.UID),
		DnsConfig:    dns,
		PortMappings: portMappings(pod),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    cgroupParent,
			SecurityContext: sandboxSecurity(pod),
			Sysctls:         sysctls(pod),
			Resources:       podResources(pod),
		},
	}
	if pod.Spec.Overhead != nil {
		config.Linux.Overhead = LinuxResources(pod.Spec.Overhead, pod.Spec.Overhead)
	}
	if pod.Spec.HostNetwork {
		return config, nil
	}
	name, domain, err := hostname(pod, h.DNS.Domain)
	if err != nil {
		return nil, err
	}
	config.Hostname, err = kernelHostname(pod, name, domain)
	return config, err
}

func (h Host) podLabels(pod *v1.Pod) map[string]string {
	labels := maps.Clone(pod.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, h.identity(pod))
	return labels
}

func (h Host) identity(pod *v1.Pod) map[string]string {
	return map[string]string{
		runtime.LabelPodName:      pod.Name,
		runtime.LabelPodNamespace: pod.Namespace,
		runtime.LabelPodUID:       string(pod.UID),
		runtime.LabelOwner:        h.Owner,
	}
}

// portMappings lists the container ports that have a host port.
func portMappings(pod *v1.Pod) []*runtimeapi.PortMapping {
	if pod.Spec.HostNetwork {
		return nil
	}
	var mappings []*runtimeapi.PortMapping
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, p := range list[i].Ports {
				if p.HostPort == 0 {
					continue
				}
				mappings = append(mappings, &runtimeapi.PortMapping{
					Protocol:      protocols[p.Protocol],
					ContainerPort: p.ContainerPort,
					HostPort:      p.HostPort,
					HostIp:        p.HostIP,
				})
			}
		}
	}
	return mappings
}

var protocols = map[v1.Protocol]runtimeapi.Protocol{
	v1.ProtocolTCP:  runtimeapi.Protocol_TCP,
	v1.ProtocolUDP:  runtimeapi.Protocol_UDP,
	v1.ProtocolSCTP: runtimeapi.Protocol_SCTP,
}

// sysctls are those which the node's admission let pass, by the names with dots.
func sysctls(pod *v1.Pod) map[string]string {
	out := map[string]string{}
	if pod.Spec.SecurityContext != nil {
		for _, s := range pod.Spec.SecurityContext.Sysctls {
			out[sysctl.NormalizeName(s.Name)] = s.Value
		}
	}
	return out
}

// newRun is one run of a container that is about to be created.
type newRun struct {
	pod       *v1.Pod
	container *v1.Container
	action    Action
	image     Image
	// volumeImages are the IDs of the images of its image volumes, by their reference.
	volumeImages map[string]string
	env          []*runtimeapi.KeyValue
	mounts       []*runtimeapi.Mount
	target       string // the container whose processes an ephemeral container joins
}

// containerConfig describes a container to the runtime.
func (h Host) containerConfig(r newRun) (*runtimeapi.ContainerConfig, error) {
	c := r.container
	security, err := containerSecurity(h.Layout, r.pod, c, r.image)
	if err != nil {
		return nil, err
	}
	if r.target != "" {
		security.NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET
		security.NamespaceOptions.TargetId = r.target
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: r.action.Attempt},
		Image:       &runtimeapi.ImageSpec{Image: r.image.Ref, UserSpecifiedImage: c.Image},
		Command:     expandAll(c.Command, r.env),
		Args:        expandAll(c.Args, r.env),
		WorkingDir:  c.WorkingDir,
		Envs:        r.env,
		Mounts:      r.mounts,
		Labels:      h.containerLabels(r.pod, c),
		Annotations: h.containerAnnotations(r),
		LogPath:     h.Layout.ContainerLog(c.Name, r.action.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  stopSignal(c),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       containerResources(r.pod, c, h.Memory),
			SecurityContext: security,
		},
	}, nil
}

func (h Host) containerLabels(pod *v1.Pod, c *v1.Container) map[string]string {
	labels := h.identity(pod)
	labels[runtime.LabelContainerName] = c.Name
	return labels
}

func (h Host) containerAnnotations(r newRun) map[string]string {
	a := map[string]string{
		runtime.AnnotationHash:            hashOf(r.container),
		runtime.AnnotationRestartCount:    strconv.FormatUint(uint64(r.action.Attempt), 10),
		runtime.AnnotationTerminationPath: r.container.TerminationMessagePath,
		runtime.AnnotationTerminationRule: string(r.container.TerminationMessagePolicy),
		runtime.AnnotationMessageFile:     h.Layout.TerminationLog(r.pod.UID, r.container.Name, r.action.Attempt),
		runtime.AnnotationBackOff:         r.action.BackOff.String(),
		runtime.AnnotationSize:            containerSize(r.pod, r.container).text(),
	}
	if grace := r.pod.Spec.TerminationGracePeriodSeconds; grace != nil {
		a[runtime.AnnotationTerminationGrace] = strconv.FormatInt(*grace, 10)
	}
	return a
}

// stopSignal is the container's own stop signal (KEP-4960) in CRI's terms: SIGRTMIN+1 is called
// SIGNAL_SIGRTMINPLUS1 there. Runtimes that do not know the field use the image's.
func stopSignal(c *v1.Container) runtimeapi.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	name := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*c.Lifecycle.StopSignal))
	return runtimeapi.Signal(runtimeapi.Signal_value["SIGNAL_"+name])
}

// expandAll expands $(VAR) in a command line.
func expandAll(texts []string, env []*runtimeapi.KeyValue) []string {
	values := make(map[string]string, len(env))
	for _, e := range env {
		values[e.Key] = string(e.Value)
	}
	lookup := func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
	var expanded []string
	for _, text := range texts {
		expanded = append(expanded, environment.Expand(text, lookup))
	}
	return expanded
}
