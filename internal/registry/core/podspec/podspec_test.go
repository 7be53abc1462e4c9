// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

// validPod returns a small pod with defaults.
func validPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", ResourceVersion: "1"},
		Spec: v1.PodSpec{
			RestartPolicy:                 v1.RestartPolicyAlways,
			DNSPolicy:                     v1.DNSClusterFirst,
			TerminationGracePeriodSeconds: new(int64(30)),
			SecurityContext:               &v1.PodSecurityContext{},
			ServiceAccountName:            "default",
			DeprecatedServiceAccount:      "default",
			Containers:                    []v1.Container{container("app")},
		},
	}
}

func container(name string) v1.Container {
	return v1.Container{Name: name, Image: "image:1", ImagePullPolicy: v1.PullIfNotPresent, TerminationMessagePolicy: v1.TerminationMessageReadFile}
}

func withVolume(source v1.VolumeSource) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: source})
	}
}

// first changes the pod's container.
func first(change func(*v1.Container)) func(*v1.Pod) {
	return func(pod *v1.Pod) { change(&pod.Spec.Containers[0]) }
}

func spec(change func(*v1.PodSpec)) func(*v1.Pod) {
	return func(pod *v1.Pod) { change(&pod.Spec) }
}

func list(namesAndQuantities ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for pair := range slices.Chunk(namesAndQuantities, 2) {
		list[v1.ResourceName(pair[0])] = resource.MustParse(pair[1])
	}
	return list
}

// createCases are changes of a valid pod, and the errors of its creation; none if it stays valid.
type createCases map[string]struct {
	change func(*v1.Pod)
	want   []string
}

func (cases createCases) run(t *testing.T) {
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			pod := validPod()
			test.change(pod)
			checktest.Diff(t, test.want, check.Run(func(c *check.Checker) { ValidatePodCreate(c, pod) }))
		})
	}
}

func TestPod(t *testing.T) {
	createCases{
		"a valid pod": {change: func(*v1.Pod) {}},
		"no name": {
			change: func(pod *v1.Pod) { pod.Name = "" },
			want:   []string{`metadata.name: Required value: name or generateName is required`},
		},
		"finalizer without a domain": {
			change: func(pod *v1.Pod) { pod.Finalizers = []string{"mine", "example.com/mine", "foregroundDeletion"} },
			want:   []string{`metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified`},
		},
		"without defaults": {
			change: func(pod *v1.Pod) {
				pod.Spec = v1.PodSpec{Containers: []v1.Container{{Name: "app", Image: "i"}}}
			},
			want: []string{
				`spec.terminationGracePeriodSeconds: Required value`,
				`spec.containers[0].terminationMessagePolicy: Required value`,
				`spec.containers[0].imagePullPolicy: Required value`,
				`spec.restartPolicy: Required value`,
				`spec.dnsPolicy: Required value`,
			},
		},
		"unknown policies": {
			change: spec(func(spec *v1.PodSpec) {
				spec.RestartPolicy, spec.DNSPolicy, spec.PreemptionPolicy = "Sometimes", "Guess", new(v1.PreemptionPolicy("Push"))
			}),
			want: []string{
				`spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`,
				`spec.dnsPolicy: Unsupported value: "Guess": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"`,
				`spec.preemptionPolicy: Unsupported value: "Push": supported values: "PreemptLowerPriority", "Never"`,
			},
		},
		"names of other objects": {
			change: spec(func(spec *v1.PodSpec) {
				spec.NodeName, spec.PriorityClassName, spec.RuntimeClassName = "node_1", "High", new("gVisor")
			}),
			want: []string{
				`spec.nodeName: Invalid value: "node_1": ` + subdomain,
				`spec.priorityClassName: Invalid value: "High": ` + subdomain,
				`spec.runtimeClassName: Invalid value: "gVisor": ` + subdomain,
			},
		},
		"two names of one service account": {
			change: spec(func(spec *v1.PodSpec) { spec.DeprecatedServiceAccount = "other" }),
			want:   []string{`spec.deprecatedServiceAccount: Invalid value: "other": must be the same as serviceAccountName: "default"`},
		},
		"deadline": {
			change: spec(func(spec *v1.PodSpec) { spec.ActiveDeadlineSeconds = new(int64(0)) }),
			want:   []string{`spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive`},
		},
		"negative grace": {
			change: spec(func(spec *v1.PodSpec) { spec.TerminationGracePeriodSeconds = new(int64(-1)) }),
			want:   []string{`spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0`},
		},
		"ephemeral containers and a node too early": {
			change: spec(func(spec *v1.PodSpec) {
				spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon(container("debug"))}}
				spec.NodeName = "n"
				spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/quota"}}
			}),
			want: []string{
				`spec.ephemeralContainers: Forbidden: cannot be set on create`,
				`spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared`,
			},
		},
		"token without service account": {
			change: func(pod *v1.Pod) {
				pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount = "", ""
				withVolume(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
					{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3600))}},
				}}})(pod)
			},
			want: []string{`spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set`},
		},
	}.run(t)
}

const (
	label     = checktest.NotDNSLabel
	subdomain = checktest.NotDNSSubdomain
	qualified = checktest.NotQualifiedName
	value     = checktest.NotLabelValue
)

func TestAnnotations(t *testing.T) {
	annotate := func(pairs ...string) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.Annotations = map[string]string{}
			for pair := range slices.Chunk(pairs, 2) {
				pod.Annotations[pair[0]] = pair[1]
			}
		}
	}
	both := func(change, and func(*v1.Pod)) func(*v1.Pod) {
		return func(pod *v1.Pod) { change(pod); and(pod) }
	}
	createCases{
		"costs":                          {change: annotate(v1.PodDeletionCost, "-10")},
		"deletion cost with a plus sign": {change: annotate(v1.PodDeletionCost, "+10"), want: []string{`metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "+10": must be a 32bit integer`}},
		"mirror pod without node": {
			change: annotate(v1.MirrorPodAnnotationKey, "x"),
			want:   []string{`metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "x": must set spec.nodeName if mirror pod annotation is set`},
		},
		"tolerations": {
			change: annotate(v1.TolerationsAnnotationKey, `[{"operator":"Exists","value":"x"}]`),
			want:   []string{`metadata.annotations.scheduler.alpha.kubernetes.io/tolerations[0].operator: Invalid value: "x": value must be empty when ` + "`operator` is 'Exists'"},
		},
		"seccomp": {
			change: annotate(v1.SeccompPodAnnotationKey, "best"),
			want:   []string{`metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: "best": must be a valid seccomp profile`},
		},
		"AppArmor": {
			change: annotate(v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+"other", "best"),
			want: []string{
				`metadata.annotations[container.apparmor.security.beta.kubernetes.io/other]: Invalid value: "other": container not found`,
				`metadata.annotations[container.apparmor.security.beta.kubernetes.io/other]: Invalid value: "best": invalid AppArmor profile name: "best"`,
			},
		},
		"an annotation and a field with equal values": {
			change: both(
				annotate(v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+"app", "localhost/a", v1.SeccompPodAnnotationKey, "docker/default"),
				spec(func(spec *v1.PodSpec) {
					spec.SecurityContext.AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("a")}
					spec.SecurityContext.SeccompProfile = &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}
				})),
		},
		"an annotation and a field with different values": {
			change: both(
				annotate(v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+"app", "localhost/b", v1.SeccompPodAnnotationKey, "unconfined"),
				spec(func(spec *v1.PodSpec) {
					spec.SecurityContext.AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("a")}
					spec.SecurityContext.SeccompProfile = &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}
				})),
			want: []string{
				`spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match`,
				`spec.containers[0].securityContext.appArmorProfile.localhostProfile: Forbidden: apparmor profile in annotation and field must match`,
			},
		},
	}.run(t)
}

func TestTemplate(t *testing.T) {
	template := &v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a b"}},
		Spec:       validPod().Spec,
	}
	// A template may omit images and host ports: admission and defaults set them in pods.
	template.Spec.Containers[0].Image = " "
	template.Spec.HostNetwork = true
	template.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, Protocol: v1.ProtocolTCP}}
	template.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon(container("debug"))}}
	checktest.Diff(t, []string{
		`spec.template.labels: Invalid value: "a b": ` + value,
		`spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template`,
	}, check.Run(func(c *check.Checker) { ValidatePodTemplateSpec(c, template, field.NewPath("spec", "template")) }))
}

func TestBinding(t *testing.T) {
	for name, test := range map[string]struct {
		target v1.ObjectReference
		want   []string
	}{
		"node":    {target: v1.ObjectReference{Kind: "Node", Name: "n"}},
		"no kind": {target: v1.ObjectReference{Name: "n"}},
		"no name": {want: []string{`target.name: Required value`}},
		"other": {
			target: v1.ObjectReference{Kind: "Machine", Name: "M"},
			want:   []string{`target.kind: Unsupported value: "Machine": supported values: "Node", "<empty>"`},
		},
		"bad name": {
			target: v1.ObjectReference{Kind: "Node", Name: "N"},
			want:   []string{`target.name: Invalid value: "N": ` + subdomain},
		},
	} {
		t.Run(name, func(t *testing.T) {
			checktest.Diff(t, test.want, check.Run(func(c *check.Checker) { ValidatePodBinding(c, &v1.Binding{Target: test.target}) }))
		})
	}
}

func TestLogOptions(t *testing.T) {
	checktest.Diff(t, nil, check.Run(func(c *check.Checker) {
		ValidatePodLogOptions(c, &v1.PodLogOptions{TailLines: new(int64(0)), LimitBytes: new(int64(1)), SinceSeconds: new(int64(1))})
	}))
	checktest.Diff(t, []string{
		`tailLines: Invalid value: -1: must be greater than or equal to 0`,
		`limitBytes: Invalid value: 0: must be greater than 0`,
		`sinceSeconds: Invalid value: 0: must be greater than 0`,
		`stream: Forbidden: may not be specified`,
	}, check.Run(func(c *check.Checker) {
		ValidatePodLogOptions(c, &v1.PodLogOptions{TailLines: new(int64(-1)), LimitBytes: new(int64(0)), SinceSeconds: new(int64(0)), Stream: new("stdout")})
	}))
	checktest.Diff(t, []string{"[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"},
		check.Run(func(c *check.Checker) {
			ValidatePodLogOptions(c, &v1.PodLogOptions{SinceSeconds: new(int64(0)), SinceTime: &metav1.Time{}})
		}))
}

func httpGet(port int) *v1.HTTPGetAction {
	return &v1.HTTPGetAction{Path: "/", Scheme: v1.URISchemeHTTP, Port: intstr.FromInt(port)}
}
