// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/node/rootdir"
)

var testHost = Host{Layout: rootdir.Layout{Root: "/node"}, Owner: "me", DNS: DNS{Domain: "cluster.local"}, Memory: 1 << 30}

func testPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: "u", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "x"},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i:1"}}},
	}
}

func TestSandboxConfig(t *testing.T) {
	pod := testPod()
	pod.Spec.ShareProcessNamespace = new(true)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{
		RunAsUser: new(int64(7)), FSGroup: new(int64(8)), SupplementalGroups: []int64{9},
		Sysctls: []v1.Sysctl{{Name: "net.core.somaxconn", Value: "99"}},
	}
	pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: v1.ProtocolUDP, HostIP: "127.0.0.1"}, {ContainerPort: 81}}
	pod.Spec.InitContainers = append(pod.Spec.InitContainers,
		v1.Container{Name: "sidecar", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways), Ports: []v1.ContainerPort{{ContainerPort: 82, HostPort: 82}}},
		v1.Container{Name: "exits", Ports: []v1.ContainerPort{{ContainerPort: 83, HostPort: 83}}})
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")},
		Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("64Mi")},
	}
	dns := &runtimeapi.DNSConfig{Servers: []string{"10.0.0.10"}}
	got, err := testHost.Sandbox(pod, 2, "/parent/podu", dns, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "u", Attempt: 2},
		Hostname:     "p",
		LogDirectory: "/node/logs/ns_p_u",
		DnsConfig:    dns,
		PortMappings: []*runtimeapi.PortMapping{
			{ContainerPort: 82, HostPort: 82},
			{Protocol: runtimeapi.Protocol_UDP, ContainerPort: 80, HostPort: 8080, HostIp: "127.0.0.1"},
		},
		Labels: map[string]string{
			"app": "web", "io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.uid": "u", "kindred.dev/cluster": "me",
		},
		Annotations: map[string]string{"note": "x"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: "/parent/podu",
			Sysctls:      map[string]string{"net.core.somaxconn": "99"},
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions:   &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD},
				RunAsUser:          &runtimeapi.Int64Value{Value: 7},
				SupplementalGroups: []int64{8, 9},
				Seccomp:            &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
			Resources: &runtimeapi.LinuxContainerResources{CpuShares: 256, CpuQuota: 50000, CpuPeriod: 100000, MemoryLimitInBytes: 64 << 20},
		},
	}
	if diff := cmp.Diff(want.String(), got.String()); diff != "" {
		t.Errorf("sandbox (-want +got):\n%s", diff)
	}
}

func TestHostNamespaces(t *testing.T) {
	pod := testPod()
	pod.Spec.HostNetwork, pod.Spec.HostPID, pod.Spec.HostIPC = true, true, true
	pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	got, err := testHost.Sandbox(pod, 0, "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	node := runtimeapi.NamespaceMode_NODE
	want := &runtimeapi.NamespaceOption{Network: node, Pid: node, Ipc: node}
	if diff := cmp.Diff(want.String(), got.Linux.SecurityContext.NamespaceOptions.String()); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	if got.Hostname != "" || len(got.PortMappings) > 0 {
		t.Errorf("on the host's network it has host name %q and port mappings %v", got.Hostname, got.PortMappings)
	}
}

// A pod in a user namespace has it in its sandbox and its containers, and its mounts are mapped to it.
func TestUserNamespace(t *testing.T) {
	pod := testPod()
	pod.Spec.HostUsers = new(false)
	ids := []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}
	users := &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
	sandbox, err := testHost.Sandbox(pod, 0, "", nil, users)
	if err != nil {
		t.Fatal(err)
	}
	container, err := testHost.Container(Run{
		Pod: pod, Container: &pod.Spec.Containers[0], Users: users, Mounts: []*runtimeapi.Mount{{ContainerPath: "/a"}, {ContainerPath: "/b"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, options := range []*runtimeapi.NamespaceOption{
		sandbox.Linux.SecurityContext.NamespaceOptions, container.Linux.SecurityContext.NamespaceOptions,
	} {
		if options.UsernsOptions != users {
			t.Errorf("user namespace %v", options.UsernsOptions)
		}
	}
	for _, m := range container.Mounts {
		if len(m.UidMappings) != 1 || len(m.GidMappings) != 1 {
			t.Errorf("mount %v is not mapped", m)
		}
	}
}

func TestContainerConfig(t *testing.T) {
	pod := testPod()
	pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	c := &pod.Spec.Containers[0]
	c.Command, c.Args = []string{"$(NAME)", "$$(NAME)"}, []string{"$(UNKNOWN)"}
	c.TerminationMessagePath, c.TerminationMessagePolicy = "/dev/termination-log", v1.TerminationMessageReadFile
	c.Lifecycle = &v1.Lifecycle{StopSignal: new(v1.SIGUSR1)}
	c.SecurityContext = &v1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities:   &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}, Drop: []v1.Capability{"ALL"}},
		SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: new("p.json")},
	}
	env := []*runtimeapi.KeyValue{{Key: "NAME", Value: []byte("value")}}
	got, err := testHost.Container(Run{
		Pod: pod, Container: c, Env: env, Image: Image{Ref: "sha256:1", UID: new(int64(5))},
		Attempt: 3, BackOff: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: 3},
		Image:    &runtimeapi.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "i:1"},
		Command:  []string{"value", "$(NAME)"}, Args: []string{"$(UNKNOWN)"},
		Envs:       env,
		LogPath:    "c/3.log",
		StopSignal: runtimeapi.Signal_SIGNAL_SIGUSR1,
		Labels: map[string]string{
			"io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.uid": "u",
			"io.kubernetes.container.name": "c", "kindred.dev/cluster": "me",
		},
		Annotations: map[string]string{
			"io.kubernetes.container.hash": Hash(pod, c), "io.kubernetes.container.restartCount": "3",
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.pod.terminationGracePeriod":         "30",
			"kindred.dev/back-off":                             "20s",
			"kindred.dev/size":                                 "{}",
			"kindred.dev/termination-message-file":             "/node/pods/u/containers/c/3",
		},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 1000},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				NoNewPrivs:       true, ReadonlyRootfs: true,
				Capabilities: &runtimeapi.Capability{AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"ALL"}},
				RunAsUser:    &runtimeapi.Int64Value{Value: 5},
				Seccomp:      &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/node/seccomp/p.json"},
				MaskedPaths:  maskedPaths, ReadonlyPaths: readonlyPaths,
			},
		},
	}
	if diff := cmp.Diff(want.String(), got.String()); diff != "" {
		t.Errorf("container (-want +got):\n%s", diff)
	}
}

func TestRunAsNonRoot(t *testing.T) {
	for _, test := range []struct {
		name  string
		user  *int64
		image Image
		want  string
	}{
		{"user of the pod", new(int64(1)), Image{}, ""},
		{"root of the pod", new(int64(0)), Image{}, "container's runAsUser breaks non-root policy"},
		{"user of the image", nil, Image{UID: new(int64(1))}, ""},
		{"root of the image", nil, Image{}, "container has runAsNonRoot and image will run as root"},
		{"name of the image", nil, Image{Username: "bin"}, "container has runAsNonRoot and image has non-numeric user (bin), cannot verify user is non-root"},
	} {
		pod := testPod()
		pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: test.user}
		_, err := testHost.containerSecurity(pod, &pod.Spec.Containers[0], test.image)
		if got := strings.TrimSuffix(errorText(err), ` (pod: "p_ns(u)", container: c)`); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestOOMScores(t *testing.T) {
	requests := func(memory string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}}
	}
	guaranteed := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi"), v1.ResourceCPU: resource.MustParse("1")}
	for _, test := range []struct {
		name      string
		resources v1.ResourceRequirements
		class     string
		podMemory string
		want      int64
	}{
		{"best effort", v1.ResourceRequirements{}, "", "", 1000},
		{"a quarter of the node", requests("256Mi"), "", "", 750},
		{"1 KiB of the node", requests("1Ki"), "", "", 999},
		{"the whole node", requests("1Gi"), "", "", 3},
		{"guaranteed", v1.ResourceRequirements{Requests: guaranteed, Limits: guaranteed}, "", "", -997},
		{"node critical", v1.ResourceRequirements{}, "system-node-critical", "", -997},
		{"cluster critical", v1.ResourceRequirements{}, "system-cluster-critical", "", 1000},
		{"a pod that requests more than its container", requests("256Mi"), "", "512Mi", 500},
	} {
		pod := testPod()
		pod.Spec.InitContainers, pod.Spec.Containers = nil, pod.Spec.Containers[:1]
		pod.Spec.PriorityClassName, pod.Spec.Containers[0].Resources = test.class, test.resources
		if test.podMemory != "" {
			pod.Spec.Resources = ptr.To(requests(test.podMemory))
		}
		if got := oomScore(pod, &pod.Spec.Containers[0], 1<<30); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// TestOOMScoreOfSidecar: a sidecar is not killed before the app container that requests least.
func TestOOMScoreOfSidecar(t *testing.T) {
	pod := testPod()
	of := func(name, memory string) v1.Container {
		return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}}}
	}
	pod.Spec.Containers = []v1.Container{of("large", "512Mi"), of("small", "256Mi")}
	for memory, want := range map[string]int64{"1Mi": 750, "768Mi": 250} {
		sidecar := of("sidecar", memory)
		sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = []v1.Container{sidecar}
		if got := oomScore(pod, &pod.Spec.InitContainers[0], 1<<30); got != want {
			t.Errorf("sidecar with %s: %d, want %d", memory, got, want)
		}
	}
}

// TestKillTogether: with cgroup v2, the kernel kills a container as a whole.
func TestKillTogether(t *testing.T) {
	pod := testPod()
	for together, want := range map[bool]string{true: "1", false: ""} {
		if got := (Host{KillTogether: together}).resources(pod, &pod.Spec.Containers[0]).Unified["memory.oom.group"]; got != want {
			t.Errorf("together %t: memory.oom.group %q", together, got)
		}
	}
}

func TestDNS(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("# made by hand\nnameserver 192.0.2.53\nsearch example.com. example.org\noptions ndots:1 rotate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dns := DNS{Servers: []string{"10.0.0.10"}, Domain: "cluster.local", ResolvConf: file}
	host := &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"example.com", "example.org"}, Options: []string{"ndots:1", "rotate"}}
	cluster := &runtimeapi.DNSConfig{
		Servers:  []string{"10.0.0.10"},
		Searches: []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com", "example.org"},
		Options:  []string{"ndots:5"},
	}
	merged := &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53", "192.0.2.1"}, Searches: []string{"example.com", "example.org", "own"}, Options: []string{"rotate", "ndots:3"}}
	own := &v1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}, Searches: []string{"own", "example.com"}, Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: new("3")}}}
	for _, test := range []struct {
		name        string
		policy      v1.DNSPolicy
		hostNetwork bool
		own         *v1.PodDNSConfig
		servers     []string
		want        *runtimeapi.DNSConfig
	}{
		{"cluster first", v1.DNSClusterFirst, false, nil, dns.Servers, cluster},
		{"cluster first on the host's network", v1.DNSClusterFirst, true, nil, dns.Servers, host},
		{"cluster first with host network", v1.DNSClusterFirstWithHostNet, true, nil, dns.Servers, cluster},
		{"default", v1.DNSDefault, false, nil, dns.Servers, host},
		{"default and own", v1.DNSDefault, false, own, dns.Servers, merged},
		{"none", v1.DNSNone, false, &v1.PodDNSConfig{Nameservers: []string{"a", "b", "c", "d"}}, dns.Servers, &runtimeapi.DNSConfig{Servers: []string{"a", "b", "c"}}},
		{"no cluster DNS", v1.DNSClusterFirst, false, nil, nil, host},
	} {
		pod := testPod()
		pod.Spec.DNSPolicy, pod.Spec.HostNetwork, pod.Spec.DNSConfig = test.policy, test.hostNetwork, test.own
		dns.Servers = test.servers
		got, err := dns.For(pod)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if diff := cmp.Diff(test.want.String(), got.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestHosts(t *testing.T) {
	pod := testPod()
	pod.Spec.Hostname, pod.Spec.Subdomain = "me", "sub"
	pod.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"a", "b"}}}
	name, domain, err := hostname(pod, "cluster.local")
	if err != nil {
		t.Fatal(err)
	}
	want := "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n" +
		"10.0.0.2\tme.sub.ns.svc.cluster.local\tme\n\n# Entries added by HostAliases.\n192.0.2.9\ta\tb\n"
	if diff := cmp.Diff(want, string(hostsFile(pod, []string{"10.0.0.2"}, name, domain, nil))); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	pod.Spec.HostNetwork = true
	want = "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n\n# Entries added by HostAliases.\n192.0.2.9\ta\tb\n"
	if diff := cmp.Diff(want, string(hostsFile(pod, nil, name, domain, []byte("127.0.0.1 node\n")))); diff != "" {
		t.Errorf("hosts on the host's network (-want +got):\n%s", diff)
	}
}

func TestHostnames(t *testing.T) {
	long := strings.Repeat("a", 61) + "-.b"
	for _, test := range []struct {
		name, want string
		set        func(*v1.PodSpec)
	}{
		{"p", "p", func(*v1.PodSpec) {}},
		{long, long[:61], func(*v1.PodSpec) {}},
		{"p", "given", func(s *v1.PodSpec) { s.Hostname = "given" }},
		{"p", "over.ride", func(s *v1.PodSpec) { s.Hostname, s.HostnameOverride = "given", new("over.ride") }},
		{"p", "p.s.ns.svc.cluster.local", func(s *v1.PodSpec) { s.Subdomain, s.SetHostnameAsFQDN = "s", new(true) }},
	} {
		pod := testPod()
		pod.Name = test.name
		test.set(&pod.Spec)
		got, err := testHost.Sandbox(pod, 0, "", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Hostname != test.want {
			t.Errorf("pod %s has host name %q, want %q", test.name, got.Hostname, test.want)
		}
	}
}

// A container without a profile is unconfined unless the node has a default.
func TestSeccomp(t *testing.T) {
	local := &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: new("a/b.json")}
	for name, test := range map[string]struct {
		profile *v1.SeccompProfile
		byNode  bool
		want    string
	}{
		"none":                     {nil, false, "Unconfined"},
		"none, with a default":     {nil, true, "RuntimeDefault"},
		"unconfined, with default": {&v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}, true, "Unconfined"},
		"default":                  {&v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}, false, "RuntimeDefault"},
		"localhost":                {local, true, "Localhost/node/seccomp/a/b.json"},
	} {
		h := testHost
		h.SeccompDefault = test.byNode
		got, err := h.seccomp(test.profile)
		if err != nil || got.ProfileType.String()+got.LocalhostRef != test.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := testHost.seccomp(&v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost}); err == nil {
		t.Errorf("a local profile without a name: %v", got)
	}
}
