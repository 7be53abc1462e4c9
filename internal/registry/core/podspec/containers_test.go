// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestContainers(t *testing.T) {
	const sidecarOnly = "Forbidden: may not be set for init containers without restartPolicy=Always"
	sidecar := func(name string) v1.Container {
		c := container(name)
		c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		return c
	}
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: httpGet(80)}, SuccessThreshold: 1}
	createCases{
		"none": {
			change: spec(func(spec *v1.PodSpec) { spec.Containers = nil }),
			want:   []string{`spec.containers: Required value`},
		},
		"bad and duplicate names": {
			change: spec(func(spec *v1.PodSpec) {
				spec.Containers = []v1.Container{container("app"), container("app"), container("App")}
				spec.InitContainers = []v1.Container{container("app"), container("")}
			}),
			want: []string{
				`spec.containers[1].name: Duplicate value: "app"`,
				`spec.containers[2].name: Invalid value: "App": ` + label,
				`spec.initContainers[0].name: Duplicate value: "app"`,
				`spec.initContainers[1].name: Required value`,
			},
		},
		"images": {
			change: spec(func(spec *v1.PodSpec) {
				spec.Containers[0].Image = ""
				spec.InitContainers = []v1.Container{container("i")}
				spec.InitContainers[0].Image = " padded "
			}),
			want: []string{
				`spec.containers[0].image: Required value`,
				`spec.initContainers[0].image: Invalid value: " padded ": must not have leading or trailing whitespace`,
			},
		},
		"unknown policies": {
			change: first(func(c *v1.Container) { c.ImagePullPolicy, c.TerminationMessagePolicy = "Maybe", "Shout" }),
			want: []string{
				`spec.containers[0].terminationMessagePolicy: Unsupported value: "Shout": supported values: "File", "FallbackToLogsOnError"`,
				`spec.containers[0].imagePullPolicy: Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never"`,
			},
		},
		"a sidecar has probes and hooks": {
			change: spec(func(spec *v1.PodSpec) {
				c := sidecar("proxy")
				c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = probe, probe, probe
				c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 1}}}
				spec.InitContainers = []v1.Container{c}
			}),
		},
		"an init container has no probes and hooks": {
			change: spec(func(spec *v1.PodSpec) {
				c := container("init")
				c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = probe, probe, probe
				c.Lifecycle = &v1.Lifecycle{}
				c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
				spec.InitContainers = []v1.Container{c}
			}),
			want: []string{
				`spec.initContainers[0].lifecycle: ` + sidecarOnly,
				`spec.initContainers[0].livenessProbe: ` + sidecarOnly,
				`spec.initContainers[0].readinessProbe: ` + sidecarOnly,
				`spec.initContainers[0].startupProbe: ` + sidecarOnly,
				`spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": must not be set to 'RestartContainer' for non-sidecar initContainers`,
			},
		},
		"restart rules": {
			change: spec(func(spec *v1.PodSpec) {
				spec.RestartPolicy = v1.RestartPolicyNever
				spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyNever)
				spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
					Action:    v1.ContainerRestartRuleActionRestart,
					ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
				}}
			}),
		},
		"bad restart rules": {
			change: spec(func(spec *v1.PodSpec) {
				spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{
					{Action: "Panic"},
					{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: "Near", Values: make([]int32, 256)}},
				}
				spec.InitContainers = []v1.Container{container("init")}
				spec.InitContainers[0].RestartPolicyRules = make([]v1.ContainerRestartRule, 1)
				spec.Containers = append(spec.Containers, container("other"))
				spec.Containers[1].RestartPolicy = new(v1.ContainerRestartPolicy("Seldom"))
			}),
			want: []string{
				`spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used`,
				`spec.containers[0].restartPolicyRules[0].action: Unsupported value: "Panic": supported values: "Restart", "RestartAllContainers"`,
				`spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified`,
				`spec.containers[0].restartPolicyRules[1].exitCodes.operator: Unsupported value: "Near": supported values: "In", "NotIn"`,
				`spec.containers[0].restartPolicyRules[1].exitCodes.values: Too many: 256: must have at most 255 items`,
				`spec.containers[1].restartPolicy: Unsupported value: "Seldom": supported values: "Always", "Never", "OnFailure"`,
				`spec.initContainers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used`,
			},
		},
		"resize policies": {
			change: spec(func(spec *v1.PodSpec) {
				spec.RestartPolicy = v1.RestartPolicyNever
				spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{
					{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired},
					{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer},
					{ResourceName: "disk", RestartPolicy: v1.NotRequired},
				}
			}),
			want: []string{
				`spec.containers[0].resizePolicy[1]: Duplicate value: "cpu"`,
				`spec.containers[0].resizePolicy: Invalid value: "RestartContainer": must be 'NotRequired' when pod ` + "`restartPolicy` is 'Never'",
				`spec.containers[0].resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"`,
			},
		},
	}.run(t)
}

func TestPorts(t *testing.T) {
	ports := func(ports ...v1.ContainerPort) func(*v1.Pod) {
		return first(func(c *v1.Container) { c.Ports = ports })
	}
	createCases{
		"valid": {change: ports(v1.ContainerPort{Name: "http", ContainerPort: 80, HostPort: 8080, Protocol: v1.ProtocolTCP})},
		"bad": {
			change: ports(
				v1.ContainerPort{Name: "http", ContainerPort: 0, Protocol: v1.ProtocolTCP},
				v1.ContainerPort{Name: "http", ContainerPort: 65536, HostPort: -1, Protocol: "ICMP"},
				v1.ContainerPort{Name: "-", ContainerPort: 1},
			),
			want: []string{
				`spec.containers[0].ports[0].containerPort: Required value`,
				`spec.containers[0].ports[1].name: Duplicate value: "http"`,
				`spec.containers[0].ports[1].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive`,
				`spec.containers[0].ports[1].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive`,
				`spec.containers[0].ports[1].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"`,
				`spec.containers[0].ports[2].name: Invalid value: "-": must contain at least one letter (a-z)`,
				`spec.containers[0].ports[2].name: Invalid value: "-": must not begin or end with a hyphen`,
				`spec.containers[0].ports[2].protocol: Required value`,
			},
		},
		"duplicate host port": {
			change: spec(func(spec *v1.PodSpec) {
				port := v1.ContainerPort{ContainerPort: 80, HostPort: 80, Protocol: v1.ProtocolTCP}
				spec.Containers = append(spec.Containers, container("other"))
				spec.Containers[0].Ports, spec.Containers[1].Ports = []v1.ContainerPort{port}, []v1.ContainerPort{port}
				spec.InitContainers = []v1.Container{container("init")}
				spec.InitContainers[0].Ports = []v1.ContainerPort{port}
			}),
			want: []string{`spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//80"`},
		},
		"host network": {
			change: spec(func(spec *v1.PodSpec) {
				spec.HostNetwork = true
				spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, Protocol: v1.ProtocolTCP}}
			}),
			want: []string{`spec.containers[0].ports[0].hostPort: Invalid value: 0: must match ` + "`containerPort` when `hostNetwork` is true"},
		},
	}.run(t)
}

func TestProbesAndHooks(t *testing.T) {
	liveness := func(probe v1.Probe) func(*v1.Pod) {
		return first(func(c *v1.Container) { c.LivenessProbe = &probe })
	}
	createCases{
		"valid": {change: liveness(v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: httpGet(80)}, SuccessThreshold: 1})},
		"no action": {
			change: liveness(v1.Probe{SuccessThreshold: 1}),
			want:   []string{`spec.containers[0].livenessProbe: Required value: must specify a handler type`},
		},
		"two actions": {
			change: liveness(v1.Probe{SuccessThreshold: 1, ProbeHandler: v1.ProbeHandler{
				Exec: &v1.ExecAction{}, TCPSocket: &v1.TCPSocketAction{Port: intstr.FromString("x y")},
			}}),
			want: []string{
				`spec.containers[0].livenessProbe.exec.command: Required value`,
				`spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type`,
			},
		},
		"http": {
			change: liveness(v1.Probe{SuccessThreshold: 1, ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
				Scheme: "FTP", Port: intstr.FromInt32(0), HTTPHeaders: []v1.HTTPHeader{{Name: "a b"}},
			}}}),
			want: []string{
				`spec.containers[0].livenessProbe.httpGet.path: Required value`,
				`spec.containers[0].livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive`,
				`spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: "FTP": supported values: "HTTP", "HTTPS"`,
				`spec.containers[0].livenessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')`,
			},
		},
		"grpc": {
			change: liveness(v1.Probe{SuccessThreshold: 1, ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 70000}}}),
			want:   []string{`spec.containers[0].livenessProbe.grpc.port: Invalid value: 70000: must be between 1 and 65535, inclusive`},
		},
		"numbers": {
			change: first(func(c *v1.Container) {
				handler := v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
				c.StartupProbe = &v1.Probe{ProbeHandler: handler, PeriodSeconds: -1, SuccessThreshold: 2, TerminationGracePeriodSeconds: new(int64(0))}
				c.ReadinessProbe = &v1.Probe{ProbeHandler: handler, SuccessThreshold: 2, TerminationGracePeriodSeconds: new(int64(1))}
			}),
			want: []string{
				`spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes`,
				`spec.containers[0].startupProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0`,
				`spec.containers[0].startupProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0`,
				`spec.containers[0].startupProbe.successThreshold: Invalid value: 2: must be 1`,
			},
		},
		"a sleep longer than the grace period": {
			change: first(func(c *v1.Container) {
				c.Lifecycle = &v1.Lifecycle{
					PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 30}},
					PreStop:   &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 31}},
				}
			}),
			want: []string{`spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)`},
		},
	}.run(t)
}

func TestEphemeralContainers(t *testing.T) {
	debug := func(change func(*v1.EphemeralContainer)) *v1.Pod {
		pod := validPod()
		ephemeral := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon(container("debug")), TargetContainerName: "app"}
		change(&ephemeral)
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{ephemeral}
		return pod
	}
	none := func(*v1.EphemeralContainer) {}
	mirror := validPod()
	mirror.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
	const detail = "Forbidden: cannot be set for an Ephemeral Container"

	for name, test := range map[string]struct {
		pod, old *v1.Pod
		want     []string
	}{
		"added":     {pod: debug(none), old: validPod()},
		"unchanged": {pod: debug(none), old: debug(none)},
		"valid": {
			pod: debug(func(c *v1.EphemeralContainer) {
				c.Name, c.TargetContainerName = "app", "nobody"
				c.Ports = []v1.ContainerPort{{ContainerPort: 80, Protocol: v1.ProtocolTCP}}
				c.Resources = v1.ResourceRequirements{Limits: list("cpu", "1")}
				c.LivenessProbe, c.Lifecycle = &v1.Probe{}, &v1.Lifecycle{}
			}),
			old: validPod(),
			want: []string{
				`spec.ephemeralContainers[0].name: Duplicate value: "app"`,
				`spec.ephemeralContainers[0].targetContainerName: Not found: "nobody"`,
				`spec.ephemeralContainers[0].ports: ` + detail,
				`spec.ephemeralContainers[0].resources: ` + detail,
				`spec.ephemeralContainers[0].livenessProbe: ` + detail,
				`spec.ephemeralContainers[0].lifecycle: ` + detail,
			},
		},
		"removed": {
			pod: validPod(), old: debug(none),
			want: []string{"spec.ephemeralContainers: Forbidden: existing ephemeral containers \"debug\" may not be removed\n"},
		},
		"in a static pod": {pod: debug(none), old: mirror, want: []string{`[]: Forbidden: static pods do not support ephemeral containers`}},
	} {
		t.Run(name, func(t *testing.T) {
			checktest.Diff(t, test.want, check.Run(func(c *check.Checker) { ValidatePodEphemeralContainersUpdate(c, test.pod, test.old) }))
		})
	}
}
