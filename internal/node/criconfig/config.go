// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/node/environment"
	"github.com/kindred-project/kindred/internal/node/rootdir"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// Host holds the facts of the node that the configuration of its pods depends on.
type Host struct {
	Layout rootdir.Layout
	// Owner is the value of runtime.LabelOwner.
	Owner string
	// IPs are the node's addresses, one for each IP family.
	IPs []string
	DNS DNS
	// Memory is the node's memory in bytes.
	Memory int64
	Quota  Quota
	// KillTogether has the kernel kill all processes of a container that runs out of memory, not only one: needs cgroup v2.
	KillTogether bool
	Swap         Swap
	MemoryQoS    MemoryQoS
	// PageSizes are the sizes of the node's huge pages in bytes.
	PageSizes []int64
	// SeccompDefault gives containers without a seccomp profile the runtime's default one.
	SeccompDefault bool
}

// Sandbox returns the configuration of a pod's sandbox. users is its user namespace; nil for the host's.
func (h Host) Sandbox(pod *v1.Pod, attempt uint32, cgroupParent string, dns *runtimeapi.DNSConfig, users *runtimeapi.UserNamespace) (*runtimeapi.PodSandboxConfig, error) {
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
			SecurityContext: sandboxSecurity(pod, users),
			Sysctls:         sysctls(pod),
			Resources:       h.podResources(pod),
		},
	}
	if pod.Spec.Overhead != nil {
		config.Linux.Overhead = h.Quota.Resources(pod.Spec.Overhead, pod.Spec.Overhead)
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

// portMappings returns the host ports that a pod has as long as it runs, which the scheduler reserves: those of containers
// and sidecars. The runtime's network plugin translates them, if it has one for that.
func portMappings(pod *v1.Pod) []*runtimeapi.PortMapping {
	if pod.Spec.HostNetwork {
		return nil
	}
	var mappings []*runtimeapi.PortMapping
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; ptr.Deref(c.RestartPolicy, "") == v1.ContainerRestartPolicyAlways {
			mappings = appendMappings(mappings, c)
		}
	}
	for i := range pod.Spec.Containers {
		mappings = appendMappings(mappings, &pod.Spec.Containers[i])
	}
	return mappings
}

func appendMappings(mappings []*runtimeapi.PortMapping, c *v1.Container) []*runtimeapi.PortMapping {
	for _, p := range c.Ports {
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
	return mappings
}

var protocols = map[v1.Protocol]runtimeapi.Protocol{
	v1.ProtocolTCP:  runtimeapi.Protocol_TCP,
	v1.ProtocolUDP:  runtimeapi.Protocol_UDP,
	v1.ProtocolSCTP: runtimeapi.Protocol_SCTP,
}

// sysctls returns the pod's sysctls under their dotted names. Package admission has checked them.
func sysctls(pod *v1.Pod) map[string]string {
	out := map[string]string{}
	if pod.Spec.SecurityContext != nil {
		for _, s := range pod.Spec.SecurityContext.Sysctls {
			out[sysctl.NormalizeName(s.Name)] = s.Value
		}
	}
	return out
}

// Run is one run of a container that is to be created.
type Run struct {
	Pod       *v1.Pod
	Container *v1.Container
	// Attempt numbers the runs of the container, from 0. BackOff is the delay of the next run
	// after this one ends.
	Attempt uint32
	BackOff time.Duration
	// Life is the life of the pod's containers to which the run belongs (KEP-5532).
	Life    int
	Image   Image
	Env     []*runtimeapi.KeyValue
	Mounts  []*runtimeapi.Mount
	Devices []*runtimeapi.Device
	// CDIDevices are the devices of the container's ResourceClaims.
	CDIDevices []*runtimeapi.CDIDevice
	// Users is the pod's user namespace; nil for the host's.
	Users *runtimeapi.UserNamespace
	// Target is the ID of the container whose process namespace an ephemeral container joins.
	Target   string
	Assigned Assigned
}

// Assigned is what a container gets of the node's resources that it does not share, or shares with some containers
// only.
type Assigned struct {
	// CPUs are those that it runs on, and MemoryNodes the NUMA nodes of its memory: lists (0-3,7); empty for all.
	CPUs, MemoryNodes string
	// Exclusive is set if the CPUs are its own. Then its CPU limit is not enforced: it cannot use more.
	Exclusive bool
	// What device plugins give to it.
	Env         []*runtimeapi.KeyValue
	Mounts      []*runtimeapi.Mount
	Devices     []*runtimeapi.Device
	CDIDevices  []*runtimeapi.CDIDevice
	Annotations map[string]string
}

// limit sets what is assigned in the container's resources.
func (a *Assigned) limit(r *runtimeapi.LinuxContainerResources) {
	r.CpusetCpus, r.CpusetMems = a.CPUs, a.MemoryNodes
	if a.Exclusive {
		r.CpuQuota = NoQuota
	}
}

// Image is an image that is present on the node.
type Image struct {
	// Ref is what goes in ContainerConfig.image: the runtime's image ID.
	Ref string
	// UID or Username is the image's configured user, for the runAsNonRoot check. UID is set if the
	// user is numeric. If neither is set, the user is root.
	UID      *int64
	Username string
}

// Container returns the configuration of a run. It fails if the run would break runAsNonRoot.
func (h Host) Container(r Run) (*runtimeapi.ContainerConfig, error) {
	c := r.Container
	security, err := h.containerSecurity(r.Pod, c, r.Image)
	if err != nil {
		return nil, err
	}
	security.NamespaceOptions.UsernsOptions = r.Users
	mounts := slices.Concat(r.Assigned.Mounts, r.Mounts)
	for _, m := range mounts {
		// The IDs of files are translated like those of processes: root inside is the host's root on the volume.
		m.UidMappings, m.GidMappings = r.Users.GetUids(), r.Users.GetGids()
	}
	if r.Target != "" {
		security.NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET
		security.NamespaceOptions.TargetId = r.Target
	}
	r.Env = slices.Concat(r.Assigned.Env, r.Env)
	resources := h.resources(r.Pod, c)
	r.Assigned.limit(resources)
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: r.Attempt},
		Image:       &runtimeapi.ImageSpec{Image: r.Image.Ref, UserSpecifiedImage: c.Image},
		Command:     expandAll(c.Command, r.Env),
		Args:        expandAll(c.Args, r.Env),
		WorkingDir:  c.WorkingDir,
		Envs:        r.Env,
		Mounts:      mounts,
		Devices:     slices.Concat(r.Assigned.Devices, r.Devices),
		CDIDevices:  slices.Concat(r.CDIDevices, r.Assigned.CDIDevices),
		Labels:      h.containerLabels(r.Pod, c),
		Annotations: h.containerAnnotations(r),
		LogPath:     h.Layout.ContainerLog(c.Name, r.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  stopSignal(c),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       resources,
			SecurityContext: security,
		},
	}, nil
}

func (h Host) containerLabels(pod *v1.Pod, c *v1.Container) map[string]string {
	labels := h.identity(pod)
	labels[runtime.LabelContainerName] = c.Name
	return labels
}

func (h Host) containerAnnotations(r Run) map[string]string {
	a := map[string]string{}
	maps.Copy(a, r.Assigned.Annotations)
	maps.Copy(a, map[string]string{
		runtime.AnnotationHash:            Hash(r.Pod, r.Container),
		runtime.AnnotationRestartCount:    strconv.FormatUint(uint64(r.Attempt), 10),
		runtime.AnnotationTerminationPath: r.Container.TerminationMessagePath,
		runtime.AnnotationTerminationRule: string(r.Container.TerminationMessagePolicy),
		runtime.AnnotationMessageFile:     h.Layout.TerminationLog(r.Pod.UID, r.Container.Name, r.Attempt),
		runtime.AnnotationBackOff:         r.BackOff.String(),
		runtime.AnnotationSize:            ContainerSize(r.Pod, r.Container).String(),
	})
	if r.Life > 0 {
		a[runtime.AnnotationLife] = strconv.Itoa(r.Life)
	}
	if grace := r.Pod.Spec.TerminationGracePeriodSeconds; grace != nil {
		a[runtime.AnnotationTerminationGrace] = strconv.FormatInt(*grace, 10)
	}
	return a
}

// stopSignal returns the container's own stop signal (KEP-4960) under CRI's name: SIGRTMIN+1 is
// SIGNAL_SIGRTMINPLUS1 there. Runtimes that do not know the field use the image's signal.
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

// resources returns the resources of a new container.
func (h Host) resources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	resources := h.ContainerResources(pod, c)
	if h.KillTogether {
		if resources.Unified == nil {
			resources.Unified = map[string]string{}
		}
		resources.Unified["memory.oom.group"] = "1"
	}
	return resources
}
