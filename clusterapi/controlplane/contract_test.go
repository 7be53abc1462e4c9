// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
	controlplanev1 "github.com/kindred-project/kindred/clusterapi/api/controlplane/v1alpha1"
	infrav1 "github.com/kindred-project/kindred/clusterapi/api/infrastructure/v1alpha1"
)

// workload is a cluster whose API answers if the error is nil.
type workload struct{ silence error }

func (w workload) Answers(context.Context, *clusterv1.Cluster) error { return w.silence }

func (w workload) Leave(context.Context, *clusterv1.Cluster, string, []string) error { return nil }

// bed is a Cluster that has its endpoint, with a KindredControlPlane without machines.
type bed struct {
	*testing.T
	client.Client
	plane   *controlplanev1.KindredControlPlane
	cluster *clusterv1.Cluster
	*Reconciler
}

func newBed(t *testing.T, change func(*clusterv1.Cluster, *controlplanev1.KindredControlPlane)) *bed {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		apiextensionsv1.AddToScheme, corev1.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme, bootstrapv1.AddToScheme, infrav1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := newScope()
	p, cluster := s.KindredControlPlane, s.cluster
	p.Finalizers = []string{controlplanev1.Finalizer}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: "c"}}
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.192.255.254", Port: 6443}
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	change(cluster, p)
	var definitions []client.Object
	for plural, group := range map[string]string{"kindredmachinetemplates": infrav1.GroupVersion.Group, "kindredmachines": infrav1.GroupVersion.Group} {
		definitions = append(definitions, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			Name: plural + "." + group, Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1alpha1"},
		}})
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(definitions, p, cluster,
		&infrav1.KindredMachineTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Namespace: "default"}})...).
		WithStatusSubresource(p, &clusterv1.Cluster{}, &clusterv1.Machine{}).Build()
	return &bed{t, c, p, cluster, &Reconciler{Client: c, Reader: c, Workload: workload{}, Clock: clock.RealClock{}}}
}

// run reconciles three times: the first time only notes that nothing is paused.
func (b *bed) run() {
	b.Helper()
	key := client.ObjectKeyFromObject(b.plane)
	for range 3 {
		if _, err := b.Reconcile(b.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			b.Fatal(err)
		}
	}
	if err := b.Get(b.Context(), key, b.plane); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) machines() []clusterv1.Machine {
	b.Helper()
	var all clusterv1.MachineList
	if err := b.List(b.Context(), &all); err != nil {
		b.Fatal(err)
	}
	return all.Items
}

func (b *bed) secret(name string) *corev1.Secret {
	b.Helper()
	s := &corev1.Secret{}
	if err := b.Get(b.Context(), client.ObjectKey{Namespace: "default", Name: name}, s); err != nil {
		b.Fatal(err)
	}
	return s
}

func unchanged(*clusterv1.Cluster, *controlplanev1.KindredControlPlane) {}

// TestOrphan: a KindredControlPlane that no Cluster owns says what it waits for.
func TestOrphan(t *testing.T) {
	b := newBed(t, func(_ *clusterv1.Cluster, p *controlplanev1.KindredControlPlane) { p.OwnerReferences = nil })
	b.run()
	got := conditions.Get(b.plane, clusterv1.AvailableCondition)
	if got == nil || got.Status != metav1.ConditionFalse || got.Reason != "WaitingForCluster" || got.Message == "" {
		t.Errorf("Available is %+v", got)
	}
	if all := b.machines(); len(all) > 0 {
		t.Errorf("machines %+v", all)
	}
}

// TestPaused: nothing is made while the Cluster or the KindredControlPlane is paused.
func TestPaused(t *testing.T) {
	for name, pause := range map[string]func(*clusterv1.Cluster, *controlplanev1.KindredControlPlane){
		"spec.paused of the Cluster": func(c *clusterv1.Cluster, _ *controlplanev1.KindredControlPlane) { c.Spec.Paused = ptr.To(true) },
		"annotation": func(_ *clusterv1.Cluster, p *controlplanev1.KindredControlPlane) {
			p.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, pause)
			b.run()
			if !conditions.IsTrue(b.plane, clusterv1.PausedCondition) || conditions.Has(b.plane, clusterv1.AvailableCondition) || len(b.machines()) > 0 {
				t.Errorf("conditions %+v, machines %+v", b.plane.Status.Conditions, b.machines())
			}
		})
	}
}

// TestSecrets: the authorities and the kubeconfig of the cluster are Secrets with the type, the label and the key of the contract.
func TestSecrets(t *testing.T) {
	b := newBed(t, unchanged)
	b.run()
	for _, name := range []string{"c-ca", "c-etcd", "c-proxy", "c-sa", "c-kubeconfig"} {
		s := b.secret(name)
		if s.Type != "cluster.x-k8s.io/secret" || s.Labels["cluster.x-k8s.io/cluster-name"] != "c" || !metav1.IsControlledBy(s, b.plane) {
			t.Errorf("%s has the type %q, the labels %v and the owners %v", name, s.Type, s.Labels, s.OwnerReferences)
		}
	}
	config, err := clientcmd.Load(b.secret("c-kubeconfig").Data["value"])
	if err != nil {
		t.Fatal(err)
	}
	if server := config.Clusters["c"].Server; server != "https://10.192.255.254:6443" {
		t.Errorf("the kubeconfig names the server %s", server)
	}
	if left := time.Until(b.clientCertificate().NotAfter); left > 366*24*time.Hour {
		t.Errorf("the certificate of the kubeconfig is valid for %v", left)
	}
}

// clientCertificate is that of the kubeconfig.
func (b *bed) clientCertificate() *x509.Certificate {
	b.Helper()
	config, err := clientcmd.Load(b.secret("c-kubeconfig").Data["value"])
	if err != nil {
		b.Fatal(err)
	}
	certificate, err := certs.DecodeCertPEM(config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].ClientCertificateData)
	if err != nil {
		b.Fatal(err)
	}
	return certificate
}

// TestKubeconfigIsRenewed: a certificate that ends in less than 180 days is replaced.
func TestKubeconfigIsRenewed(t *testing.T) {
	b := newBed(t, unchanged)
	b.run()
	fresh, limit := b.clientCertificate(), time.Now().Add(180*24*time.Hour)
	b.issue(fresh, limit.Add(-time.Hour))
	b.run()
	if now := b.clientCertificate(); !now.NotAfter.After(limit) {
		t.Errorf("the certificate still ends %v", now.NotAfter)
	}
	b.issue(fresh, limit.Add(time.Hour))
	kept := b.clientCertificate()
	b.run()
	if now := b.clientCertificate(); !now.Equal(kept) {
		t.Errorf("the certificate that ends %v was replaced by one that ends %v", kept.NotAfter, now.NotAfter)
	}
}

// issue puts a certificate into the kubeconfig that is like another one, with another end.
func (b *bed) issue(like *x509.Certificate, end time.Time) {
	b.Helper()
	ca := b.secret("c-ca")
	authority, err := certs.DecodeCertPEM(ca.Data["tls.crt"])
	if err != nil {
		b.Fatal(err)
	}
	key, err := certs.DecodePrivateKeyPEM(ca.Data["tls.key"])
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{Subject: like.Subject, SerialNumber: big.NewInt(1), NotBefore: like.NotBefore, NotAfter: end, KeyUsage: like.KeyUsage, ExtKeyUsage: like.ExtKeyUsage}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, like.PublicKey, key)
	if err != nil {
		b.Fatal(err)
	}
	s := b.secret("c-kubeconfig")
	config, err := clientcmd.Load(s.Data["value"])
	if err != nil {
		b.Fatal(err)
	}
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].ClientCertificateData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if s.Data["value"], err = clientcmd.Write(*config); err != nil {
		b.Fatal(err)
	}
	if err := b.Update(b.Context(), s); err != nil {
		b.Fatal(err)
	}
}

// TestMachine: the first machine has the label and the fields of the contract.
func TestMachine(t *testing.T) {
	b := newBed(t, func(_ *clusterv1.Cluster, p *controlplanev1.KindredControlPlane) { p.Spec.Version = "1.37.1" })
	b.run()
	all := b.machines()
	if len(all) != 1 {
		t.Fatalf("machines %+v", all)
	}
	m := all[0]
	label, labelled := m.Labels["cluster.x-k8s.io/control-plane"]
	if !labelled || label != "" || m.Labels["cluster.x-k8s.io/cluster-name"] != "c" || !metav1.IsControlledBy(&m, b.plane) {
		t.Errorf("labels %v, owners %v", m.Labels, m.OwnerReferences)
	}
	if m.Spec.Version != "v1.37.1" || m.Spec.ClusterName != "c" || m.Spec.InfrastructureRef.Kind != "KindredMachine" || m.Spec.Bootstrap.ConfigRef.Kind != "KindredConfig" {
		t.Errorf("spec %+v", m.Spec)
	}
	if b.plane.Status.Version != "v1.37.1" {
		t.Errorf("the version of the control plane is %q", b.plane.Status.Version)
	}
}

// TestInPlace: changes of labels, annotations, time limits, readiness gates and taints reach the machines that exist, and replace none.
func TestInPlace(t *testing.T) {
	b := newBed(t, unchanged)
	b.run()
	template := &b.plane.Spec.MachineTemplate
	template.ObjectMeta.Labels, template.ObjectMeta.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
	template.Spec.Deletion = controlplanev1.KindredControlPlaneMachineDeletion{
		NodeDrainTimeoutSeconds: ptr.To[int32](1), NodeVolumeDetachTimeoutSeconds: ptr.To[int32](2), NodeDeletionTimeoutSeconds: ptr.To[int32](3),
	}
	template.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "Checked"}}
	template.Spec.Taints = []clusterv1.MachineTaint{{Key: "k", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways}}
	if err := b.Update(b.Context(), b.plane); err != nil {
		t.Fatal(err)
	}
	before := b.machines()[0].Name
	b.run()
	m := b.machines()[0]
	if len(b.machines()) != 1 || m.Name != before || !conditions.IsTrue(&m, clusterv1.MachineUpToDateCondition) {
		t.Fatalf("machines %+v", b.machines())
	}
	want := clusterv1.MachineDeletionSpec{NodeDrainTimeoutSeconds: ptr.To[int32](1), NodeVolumeDetachTimeoutSeconds: ptr.To[int32](2), NodeDeletionTimeoutSeconds: ptr.To[int32](3)}
	if diff := cmp.Diff(want, m.Spec.Deletion); diff != "" || m.Labels["a"] != "b" || m.Annotations["c"] != "d" {
		t.Errorf("labels %v, annotations %v, time limits (-want +got):\n%s", m.Labels, m.Annotations, diff)
	}
	if diff := cmp.Diff(template.Spec.ReadinessGates, m.Spec.ReadinessGates); diff != "" {
		t.Errorf("readiness gates (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(template.Spec.Taints, m.Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
}

// TestInitialized: a control plane is initialized once its API has answered, and stays so when the API is silent later.
func TestInitialized(t *testing.T) {
	b := newBed(t, unchanged)
	b.Workload = workload{errors.New("connection refused")}
	expect := func(initialized bool, available metav1.ConditionStatus) {
		t.Helper()
		b.run()
		got := conditions.Get(b.plane, clusterv1.AvailableCondition)
		if ptr.Deref(b.plane.Status.Initialization.ControlPlaneInitialized, false) != initialized || got == nil || got.Status != available {
			t.Errorf("initialization %+v, Available is %+v", b.plane.Status.Initialization, got)
		}
	}
	expect(false, metav1.ConditionFalse)
	b.Workload = workload{}
	expect(true, metav1.ConditionTrue)
	b.Workload = workload{errors.New("connection refused")}
	expect(true, metav1.ConditionFalse)
}

// TestReplicas: the status counts the machines, and has the selector of the scale subresource.
func TestReplicas(t *testing.T) {
	b := newBed(t, unchanged)
	b.run()
	m := b.machines()[0]
	conditions.Set(&m, metav1.Condition{Type: clusterv1.MachineReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready"})
	if err := b.Status().Update(b.Context(), &m); err != nil {
		t.Fatal(err)
	}
	b.run()
	status := b.plane.Status
	for name, counts := range map[string][2]*int32{
		"replicas": {status.Replicas, ptr.To[int32](1)}, "readyReplicas": {status.ReadyReplicas, ptr.To[int32](1)},
		"availableReplicas": {status.AvailableReplicas, ptr.To[int32](0)}, "upToDateReplicas": {status.UpToDateReplicas, ptr.To[int32](1)},
	} {
		if diff := cmp.Diff(counts[1], counts[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	selector, err := metav1.ParseToLabelSelector(status.Selector)
	if err != nil {
		t.Fatal(err)
	}
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || !matches.Matches(labels.Set(m.Labels)) {
		t.Errorf("the selector %q does not match the labels %v: %v", status.Selector, m.Labels, err)
	}
	if len(status.Versions) != 1 || status.Versions[0].Version != "v1.37.1" || status.Versions[0].Replicas != 1 {
		t.Errorf("versions %+v", status.Versions)
	}
}

// TestNoEndpoint: there is no machine before the Cluster has its endpoint, which the infrastructure provider chooses.
func TestNoEndpoint(t *testing.T) {
	b := newBed(t, func(c *clusterv1.Cluster, _ *controlplanev1.KindredControlPlane) {
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
	})
	b.run()
	if all := b.machines(); len(all) > 0 {
		t.Errorf("machines %+v", all)
	}
}

// TestRolloutAfter: a machine that is older than a time which has passed is not up to date; one is not replaced before that time.
func TestRolloutAfter(t *testing.T) {
	b := newBed(t, unchanged)
	b.run()
	created := b.machines()[0].CreationTimestamp.Time
	for name, tt := range map[string]struct {
		after, now time.Time
		upToDate   bool
	}{
		"to come":                {created.Add(time.Hour), created.Add(time.Minute), true},
		"passed":                 {created.Add(time.Hour), created.Add(2 * time.Hour), false},
		"older than the machine": {created.Add(-time.Hour), created.Add(time.Hour), true},
	} {
		b.plane.Spec.Rollout.After = metav1.NewTime(tt.after)
		r := &Reconciler{Client: b.Client, Clock: testingclock.NewFakePassiveClock(tt.now)}
		m := b.machines()[0]
		why, err := r.differences(t.Context(), &scope{KindredControlPlane: b.plane, cluster: b.cluster}, &m)
		if err != nil || (len(why) == 0) != tt.upToDate {
			t.Errorf("%s: %q, %v", name, why, err)
		}
	}
}
