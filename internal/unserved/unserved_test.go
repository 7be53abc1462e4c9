// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package unserved

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type fakeCluster struct {
	nodes   []*corev1.Node
	classes []*networkingv1.IngressClass
	claims  []string
}

func (c fakeCluster) Nodes() []*corev1.Node                        { return c.nodes }
func (c fakeCluster) IngressClasses() []*networkingv1.IngressClass { return c.classes }

func (c fakeCluster) HasResourceClaim(namespace, name string) bool {
	return slices.Contains(c.claims, namespace+"/"+name)
}

// node returns a node with a handler that has both features, or neither.
func node(capable bool) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{RuntimeHandlers: []corev1.NodeRuntimeHandler{
		{Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: &capable, RecursiveReadOnlyMounts: &capable}},
	}}}
}

func TestFind(t *testing.T) {
	old, both := fakeCluster{nodes: []*corev1.Node{node(false)}}, fakeCluster{nodes: []*corev1.Node{node(false), node(true)}}
	classes := fakeCluster{classes: []*networkingv1.IngressClass{{ObjectMeta: metav1.ObjectMeta{Name: "nginx"}}}}
	deep := &corev1.Pod{Spec: corev1.PodSpec{HostUsers: new(false), Containers: []corev1.Container{
		{VolumeMounts: []corev1.VolumeMount{{RecursiveReadOnly: new(corev1.RecursiveReadOnlyEnabled)}}},
	}}}
	volumes := corev1.PodSpec{Volumes: []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}},
	}}
	lacks := func(features string) fakeCluster {
		return fakeCluster{nodes: []*corev1.Node{{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{LacksAnnotation: features}},
			Status:     corev1.NodeStatus{Features: &corev1.NodeFeatures{SupplementalGroupsPolicy: new(features == "")}},
		}}}
	}
	const everything = "apparmor,image-volumes,recursive-read-only-mounts,selinux,user-namespaces"
	windows := lacks("")
	windows.nodes[0].Labels = map[string]string{corev1.LabelOSStable: "windows"}
	demanding := &corev1.Pod{Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}}},
		SecurityContext: &corev1.PodSecurityContext{
			SELinuxOptions: &corev1.SELinuxOptions{}, AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault},
			WindowsOptions: &corev1.WindowsSecurityContextOptions{}, SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict),
		},
		InitContainers: []corev1.Container{{SecurityContext: &corev1.SecurityContext{
			SELinuxOptions: &corev1.SELinuxOptions{}, AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
			WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: new(true)},
		}}},
	}}
	capable := func(add ...corev1.Capability) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{SecurityContext: &corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Add: add, Drop: []corev1.Capability{"ALL", "NONE"}},
		}}}}}
	}
	devices := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}, Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{
		{Name: "template", ResourceClaimTemplateName: new("t")}, {Name: "shared", ResourceClaimName: new("gpu")},
	}}}
	signing := func(signer string) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer}}
	}
	balancer := func(class string) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class}}
	}
	for _, test := range []struct {
		name    string
		object  any
		cluster fakeCluster
		want    []string
	}{
		{"a plain pod", plainPod(), old, nil},
		{"another scheduler", &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "mine"}}, old, []string{"spec.schedulerName"}},
		{"a type of volume", &corev1.Pod{Spec: volumes}, old, []string{"spec.volumes[1].iscsi"}},
		{"in a template", &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: volumes}}}, old, []string{"spec.template.spec.volumes[1].iscsi"}},
		{"no capable node", deep, old, []string{"spec.hostUsers", "spec.containers[0].volumeMounts[0].recursiveReadOnly"}},
		{"one capable node", deep, both, nil},
		{"a node that reports nothing", deep, fakeCluster{nodes: []*corev1.Node{{}}}, nil},
		{"no nodes yet", deep, fakeCluster{}, nil},
		{"another class of load balancers", balancer("example.com/lb"), old, []string{"spec.loadBalancerClass"}},
		{"our class of load balancers", balancer("kindred.dev/gateway"), old, nil},
		{"no IngressClass", &networkingv1.Ingress{}, old, []string{"spec.ingressClassName"}},
		{"no such IngressClass", &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: new("other")}}, classes, []string{"spec.ingressClassName"}},
		{"an IngressClass", &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: new("nginx")}}, classes, nil},
		{"a volume", &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			ISCSI: &corev1.ISCSIPersistentVolumeSource{}}}}, old, []string{"spec.iscsi"}},
		{"a node that lacks everything", demanding, lacks(everything), []string{
			"spec.volumes[0].image", "spec.securityContext.seLinuxOptions", "spec.securityContext.appArmorProfile",
			"spec.securityContext.windowsOptions", "spec.securityContext.supplementalGroupsPolicy",
			"spec.initContainers[0].securityContext.seLinuxOptions", "spec.initContainers[0].securityContext.windowsOptions"}},
		{"a node that lacks nothing", demanding, windows, nil},
		{"an old runtime", deep, lacks(everything), []string{"spec.hostUsers", "spec.containers[0].volumeMounts[0].recursiveReadOnly"}},
		{"names of capabilities", capable("NET_ADMIN", "net_admin", "CAP_NET_ADMIN", "FLY"), old, []string{
			"spec.containers[0].securityContext.capabilities.add[2]", "spec.containers[0].securityContext.capabilities.add[3]",
			"spec.containers[0].securityContext.capabilities.drop[1]"}},
		{"no such ResourceClaim", devices, fakeCluster{claims: []string{"b/gpu"}}, []string{"spec.resourceClaims[1].resourceClaimName"}},
		{"a ResourceClaim", devices, fakeCluster{claims: []string{"a/gpu"}}, nil},
		{"another controller of Jobs", &batchv1.Job{Spec: batchv1.JobSpec{ManagedBy: new("example.com/queue")}}, old, []string{"spec.managedBy"}},
		{"another controller of a CronJob's Jobs", &batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{
			Spec: batchv1.JobSpec{ManagedBy: new("example.com/queue")}}}}, old, []string{"spec.jobTemplate.spec.managedBy"}},
		{"the controller of Jobs", &batchv1.Job{Spec: batchv1.JobSpec{ManagedBy: new(batchv1.JobControllerName)}}, old, nil},
		{"another signer", signing("example.com/signer"), old, []string{"spec.signerName"}},
		{"a signer", signing(certificatesv1.KubeAPIServerClientSignerName), old, nil},
		{"another kind", &corev1.ConfigMap{}, old, nil},
	} {
		var got []string
		for _, f := range Find(test.object, test.cluster) {
			path, _, _ := strings.Cut(f.Text, ": ")
			got = append(got, path)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestTypesOfVolumes: each type of volume of the API is either supported or named.
func TestTypesOfVolumes(t *testing.T) {
	for _, test := range []struct {
		source    reflect.Type
		supported string
		name      func(reflect.Value) string
	}{
		{reflect.TypeFor[corev1.VolumeSource](), "emptyDir hostPath configMap downwardAPI secret projected image csi nfs persistentVolumeClaim ephemeral",
			func(v reflect.Value) string { return unsupported(v.Addr().Interface().(*corev1.VolumeSource)) }},
		{reflect.TypeFor[corev1.PersistentVolumeSource](), "hostPath local csi nfs",
			func(v reflect.Value) string {
				return unsupportedPersistent(v.Addr().Interface().(*corev1.PersistentVolumeSource))
			}},
	} {
		for i := range test.source.NumField() {
			source := reflect.New(test.source).Elem()
			source.Field(i).Set(reflect.New(test.source.Field(i).Type.Elem()))
			want, _, _ := strings.Cut(test.source.Field(i).Tag.Get("json"), ",")
			if strings.Contains(" "+test.supported+" ", " "+want+" ") {
				want = ""
			}
			if got := test.name(source); got != want {
				t.Errorf("%s.%s: %q, want %q", test.source.Name(), test.source.Field(i).Name, got, want)
			}
		}
	}
}

func TestNewNamesOnlyWhatIsNew(t *testing.T) {
	other := &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "mine"}}
	if got := New(other, nil, fakeCluster{}); len(got) != 1 {
		t.Errorf("a new pod: %q", got)
	}
	if got := New(other, other, fakeCluster{}); got != nil {
		t.Errorf("an update that changes something else: %q", got)
	}
	if got := New(other, plainPod(), fakeCluster{}); len(got) != 1 {
		t.Errorf("an update of the field: %q", got)
	}
}

func TestActed(t *testing.T) {
	pending := corev1.PodStatus{Phase: corev1.PodPending}
	if Acted(&corev1.Pod{Status: pending}) || Acted(&corev1.Service{}) || Acted(&networkingv1.Ingress{}) {
		t.Error("acted on a new object")
	}
	if Acted(&batchv1.Job{}) || !Acted(&batchv1.Job{Status: batchv1.JobStatus{StartTime: &metav1.Time{}}}) {
		t.Error("a Job is acted on once it has a status")
	}
	if Acted(&certificatesv1.CertificateSigningRequest{}) ||
		!Acted(&certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte("c")}}) {
		t.Error("a CertificateSigningRequest is acted on once it has a certificate")
	}
	if !Acted(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: pending}) {
		t.Error("not acted on a pod that is bound")
	}
	pending.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	if !Acted(&corev1.Pod{Status: pending}) {
		t.Error("not acted on a pod that a scheduler has reported about")
	}
}

// TestFactsAreDocumented: docs/unserved.md has a row for each Fact, and no other.
func TestFactsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/unserved.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, f := range Facts() {
		event := "`" + Reason + "`"
		if f.EventBy != "" {
			event = "by " + f.EventBy
		}
		if f.Waits {
			event += ", after 10 s"
		}
		want = append(want, "| "+f.Kind+" | `"+f.Field+"` | "+f.Effect+" | "+event+" |")
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| ") && strings.Contains(line, "`") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/unserved.md (-want +got):\n%s", diff)
	}
}

func plainPod() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{
		SchedulerName: corev1.DefaultSchedulerName,
		Volumes:       []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}},
		Containers:    []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "token", ReadOnly: true}}}},
	}}
}

func TestPlainPodDoesNotAllocate(t *testing.T) {
	pod := plainPod()
	if n := testing.AllocsPerRun(100, func() { New(pod, nil, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPlainPod(b *testing.B) {
	pod := plainPod()
	for b.Loop() {
		New(pod, nil, nil)
	}
}
