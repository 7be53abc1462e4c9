// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// TestDefaultsAreIdempotent defaults random objects of each kind of the group twice, because a
// stored object must not change when it is read.
func TestDefaultsAreIdempotent(t *testing.T) {
	scheme := newScheme(t)
	for kind, goType := range scheme.KnownTypes(v1.SchemeGroupVersion) {
		if goType.PkgPath() != reflect.TypeFor[v1.Pod]().PkgPath() {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(1, 2).MaxDepth(12).Funcs(
				func(q *resource.Quantity, c randfill.Continue) {
					*q = *resource.NewMilliQuantity(c.Int63n(5000), resource.DecimalSI)
				},
				func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(c.Int31n(3)) },
				func(*runtime.RawExtension, randfill.Continue) {},
				func(*metav1.Time, randfill.Continue) {},
				func(*metav1.FieldsV1, randfill.Continue) {},
			)
			for range 20 {
				object := reflect.New(goType).Interface().(runtime.Object)
				fill.Fill(object)
				scheme.Default(object)
				again := object.DeepCopyObject()
				scheme.Default(again)
				if diff := cmp.Diff(object, again); diff != "" {
					t.Fatalf("the second defaulting changed (-once +twice):\n%s", diff)
				}
			}
		})
	}
}

func TestPodDefaults(t *testing.T) {
	cpu := func(q string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(q)} }
	pod := &v1.Pod{Spec: v1.PodSpec{
		HostNetwork:                   true,
		DeprecatedServiceAccount:      "builder",
		TerminationGracePeriodSeconds: new(int64(-1)),
		Volumes: []v1.Volume{
			{Name: "scratch"},
			{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		},
		Containers: []v1.Container{{
			Name: "web", Image: "web",
			Ports:          []v1.ContainerPort{{ContainerPort: 80}},
			Resources:      v1.ResourceRequirements{Limits: cpu("1.0001"), Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}},
			LivenessProbe:  &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{}}},
			ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 1}}},
			Env:            []v1.EnvVar{{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}}},
		}},
	}}
	newScheme(t).Default(pod)

	probe := v1.Probe{TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
	live, ready := probe, probe
	live.HTTPGet = &v1.HTTPGetAction{Path: "/", Scheme: v1.URISchemeHTTP}
	ready.GRPC = &v1.GRPCAction{Port: 1, Service: new("")}
	want := v1.PodSpec{
		HostNetwork:                   true,
		ServiceAccountName:            "builder",
		DeprecatedServiceAccount:      "builder",
		TerminationGracePeriodSeconds: new(int64(1)),
		RestartPolicy:                 v1.RestartPolicyAlways,
		DNSPolicy:                     v1.DNSClusterFirst,
		SchedulerName:                 "default-scheduler",
		SecurityContext:               &v1.PodSecurityContext{},
		EnableServiceLinks:            new(true),
		Volumes: []v1.Volume{
			{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{DefaultMode: new(int32(0o644))}}},
		},
		Containers: []v1.Container{{
			Name: "web", Image: "web",
			ImagePullPolicy:          v1.PullAlways,
			TerminationMessagePath:   "/dev/termination-log",
			TerminationMessagePolicy: v1.TerminationMessageReadFile,
			Ports:                    []v1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: v1.ProtocolTCP}},
			Resources: v1.ResourceRequirements{
				Limits:   cpu("1001m"),
				Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourceCPU: resource.MustParse("1001m")},
			},
			LivenessProbe:  &live,
			ReadinessProbe: &ready,
			Env:            []v1.EnvVar{{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}}},
		}},
	}
	if diff := cmp.Diff(want, pod.Spec); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]v1.PullPolicy{
		"web":                            v1.PullAlways,
		"web:latest":                     v1.PullAlways,
		"localhost:5000/web":             v1.PullAlways,
		"web:1.0":                        v1.PullIfNotPresent,
		"localhost:5000/web:1.0":         v1.PullIfNotPresent,
		"web@sha256:" + digest:           v1.PullIfNotPresent,
		"web:latest@sha256:" + digest:    v1.PullAlways,
		"Not An Image":                   v1.PullIfNotPresent,
		"":                               v1.PullIfNotPresent,
		"ghcr.io/project/deep/web:v1-rc": v1.PullIfNotPresent,
	} {
		if got := pullPolicyOf(image); got != want {
			t.Errorf("pullPolicyOf(%q) = %s, want %s", image, got, want)
		}
	}
}

const digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestPodLevelResources(t *testing.T) {
	list := func(pairs ...string) v1.ResourceList {
		out := v1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return out
	}
	for name, test := range map[string]struct{ pod, container, want *v1.ResourceRequirements }{
		"no pod-level resources": {
			container: &v1.ResourceRequirements{Requests: list("cpu", "1")},
		},
		"requests default to the containers' requests, else to the limit": {
			pod:       &v1.ResourceRequirements{Limits: list("cpu", "2", "memory", "1Gi")},
			container: &v1.ResourceRequirements{Requests: list("cpu", "1")},
			want:      &v1.ResourceRequirements{Limits: list("cpu", "2", "memory", "1Gi"), Requests: list("cpu", "1", "memory", "1Gi")},
		},
		"limits default to huge pages of the containers": {
			pod:       &v1.ResourceRequirements{Limits: list("cpu", "2")},
			container: &v1.ResourceRequirements{Limits: list("hugepages-2Mi", "4Mi")},
			want:      &v1.ResourceRequirements{Limits: list("cpu", "2", "hugepages-2Mi", "4Mi"), Requests: list("cpu", "2", "hugepages-2Mi", "4Mi")},
		},
		"limits default if each container has one, and to at least the request": {
			pod:       &v1.ResourceRequirements{Requests: list("cpu", "3")},
			container: &v1.ResourceRequirements{Limits: list("cpu", "2", "memory", "1Gi"), Requests: list("cpu", "2", "memory", "1Gi")},
			want:      &v1.ResourceRequirements{Limits: list("cpu", "3", "memory", "1Gi"), Requests: list("cpu", "3", "memory", "1Gi")},
		},
		"the pod's own values are kept": {
			pod:       &v1.ResourceRequirements{Limits: list("cpu", "2"), Requests: list("cpu", "100m")},
			container: &v1.ResourceRequirements{Requests: list("cpu", "1")},
			want:      &v1.ResourceRequirements{Limits: list("cpu", "2"), Requests: list("cpu", "100m")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{Resources: test.pod, Containers: []v1.Container{{Name: "c", Resources: *test.container}}}}
			DefaultPodResources(pod)
			if diff := cmp.Diff(test.want, pod.Spec.Resources); diff != "" {
				t.Errorf("spec.resources (-want +got):\n%s", diff)
			}
		})
	}
}

func TestServiceDefaults(t *testing.T) {
	service := &v1.Service{Spec: v1.ServiceSpec{
		Type:            v1.ServiceTypeLoadBalancer,
		SessionAffinity: v1.ServiceAffinityClientIP,
		Ports:           []v1.ServicePort{{Port: 80}},
	}}
	newScheme(t).Default(service)
	want := v1.ServiceSpec{
		Type:                          v1.ServiceTypeLoadBalancer,
		SessionAffinity:               v1.ServiceAffinityClientIP,
		SessionAffinityConfig:         &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: new(int32(10800))}},
		Ports:                         []v1.ServicePort{{Port: 80, Protocol: v1.ProtocolTCP, TargetPort: intstr.FromInt32(80)}},
		ExternalTrafficPolicy:         v1.ServiceExternalTrafficPolicyCluster,
		InternalTrafficPolicy:         new(v1.ServiceInternalTrafficPolicyCluster),
		AllocateLoadBalancerNodePorts: new(true),
	}
	if diff := cmp.Diff(want, service.Spec); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}
