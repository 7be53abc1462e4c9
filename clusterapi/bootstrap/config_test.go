// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	tokenutil "k8s.io/cluster-bootstrap/token/util"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
)

const namespace = "default"

// bed is a Cluster with a Machine and its KindredConfig.
type bed struct {
	cluster *clusterv1.Cluster
	machine *clusterv1.Machine
	config  *bootstrapv1.KindredConfig
	others  []client.Object
	// workload is the cluster that the machine joins.
	workload standIn
}

// began is the time at which a test begins.
var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newBed(role bootstrapv1.Role) *bed {
	b := &bed{
		cluster: &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: namespace},
			Spec: clusterv1.ClusterSpec{
				ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "10.192.255.254", Port: 7443},
				ClusterNetwork: clusterv1.ClusterNetwork{
					Services: clusterv1.NetworkRanges{CIDRBlocks: []string{"10.128.0.0/16"}}, Pods: clusterv1.NetworkRanges{CIDRBlocks: []string{"192.168.0.0/16"}}, ServiceDomain: "cluster.local",
				},
			},
			Status: clusterv1.ClusterStatus{
				Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: ptr.To(true)},
				Conditions:     []metav1.Condition{{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue}},
			},
		},
		machine: &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: namespace, UID: "machine", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}},
			Spec:       clusterv1.MachineSpec{ClusterName: "c"},
		},
		config: &bootstrapv1.KindredConfig{
			ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: namespace, UID: "config", OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: "machine"}}},
			Spec:       bootstrapv1.KindredConfigSpec{Role: role},
		},
	}
	for _, name := range []string{"ca", "proxy", "etcd", "sa"} {
		b.others = append(b.others, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "c-" + name, Namespace: namespace},
			Data:       map[string][]byte{"tls.crt": []byte(name + " certificate"), "tls.key": []byte(name + " key")},
		})
	}
	return b
}

// standIn stands for the cluster that a machine joins.
type standIn struct {
	unknown, silent, refuses bool
	// admitted are the tokens that it knows.
	admitted []string
	// asked counts the calls of Answers.
	asked int
}

const authority = "sha256:abc"

func (s *standIn) Authority(context.Context, *clusterv1.Cluster) (string, error) {
	if s.unknown {
		return "", apierrors.NewNotFound(corev1.Resource("secrets"), "c-kubeconfig")
	}
	return authority, nil
}

func (s *standIn) Answers(context.Context, *clusterv1.Cluster) error {
	s.asked++
	if s.silent {
		return errors.New("connection refused")
	}
	return nil
}

func (s *standIn) Admit(_ context.Context, _ *clusterv1.Cluster, token string, _ time.Duration) error {
	if s.refuses {
		return errors.New("not allowed")
	}
	s.admitted = append(s.admitted, token)
	return nil
}

// start returns a controller, and its client of an API that has the objects.
func (b *bed) start(t *testing.T) (*Reconciler, client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(b.others, b.cluster, b.machine, b.config)...).
		WithStatusSubresource(&bootstrapv1.KindredConfig{}, &clusterv1.Cluster{}, &clusterv1.Machine{}).Build()
	return &Reconciler{Client: c, Workload: &b.workload, Clock: testingclock.NewFakePassiveClock(began)}, c
}

// run reconciles until the configuration has a condition, and returns the bootstrap data; none if there are none.
func (b *bed) run(t *testing.T) (made *data) {
	t.Helper()
	r, c := b.start(t)
	key := client.ObjectKeyFromObject(b.config)
	for range 3 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Get(t.Context(), key, b.config); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), key, secret); err != nil {
		return nil
	}
	if !metav1.IsControlledBy(secret, b.config) || secret.Labels[clusterv1.ClusterNameLabel] != "c" || string(secret.Data["format"]) != "kindred" {
		t.Errorf("the Secret: %+v", secret)
	}
	if b.config.Status.DataSecretName != "m" || !ptr.Deref(b.config.Status.Initialization.DataSecretCreated, false) {
		t.Errorf("status %+v", b.config.Status)
	}
	made = &data{}
	if err := json.Unmarshal(secret.Data["value"], made); err != nil {
		t.Fatal(err)
	}
	return made
}

func TestNode(t *testing.T) {
	b := newBed(bootstrapv1.Node)
	b.config.Spec.Flags = map[string]string{"pod-network": "vxlan", "node-ip": "10.0.0.1"}
	b.config.Spec.KubeletConfiguration = "maxPods: 5"
	b.config.Spec.Files = []bootstrapv1.File{{Path: "/etc/a", Permissions: "0644", Content: "b"}}
	got := b.run(t)
	if len(b.workload.admitted) != 1 || !tokenutil.IsValidBootstrapToken(b.workload.admitted[0]) {
		t.Fatalf("the cluster knows the tokens %q", b.workload.admitted)
	}
	want := &data{
		Args: []string{
			"join", "https://10.192.255.254:7443", "--token", b.workload.admitted[0], "--ca-hash", authority, "--wait", "1h0m0s",
			"--node-name", "m", "--node-ip=10.0.0.1", "--pod-network=vxlan",
		},
		Files: []file{{Path: "/etc/a", Mode: 0o644, Content: []byte("b")}, {Path: "/etc/kindred/kubelet.conf.d/50-kindredconfig.conf", Mode: 0o644, Content: []byte("maxPods: 5")}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(data{})); diff != "" {
		t.Errorf("bootstrap data (-want +got):\n%s", diff)
	}
	if !conditions.IsTrue(b.config, machineAdmitted) || !conditions.IsTrue(b.config, clusterv1.ReadyCondition) {
		t.Errorf("conditions %+v", b.config.Status.Conditions)
	}
}

// TestSecret: the Secret with the bootstrap data has the type, the label, the owner and the key of Cluster API's contract. Beside it, it has their
// format, as kubeadm's, and the token of a node.
func TestSecret(t *testing.T) {
	for role, want := range map[bootstrapv1.Role][]string{bootstrapv1.Node: {"format", "token", "value"}, bootstrapv1.FirstServer: {"format", "value"}} {
		b := newBed(role)
		b.workload.silent = true
		r, c := b.start(t)
		key := client.ObjectKeyFromObject(b.config)
		for range 3 {
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
		}
		secret := &corev1.Secret{}
		if err := errors.Join(c.Get(t.Context(), key, b.config), c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: b.config.Status.DataSecretName}, secret)); err != nil {
			t.Fatal(err)
		}
		if secret.Type != "cluster.x-k8s.io/secret" || secret.Labels["cluster.x-k8s.io/cluster-name"] != "c" || !metav1.IsControlledBy(secret, b.config) {
			t.Errorf("%s: type %s, labels %v, owners %v", role, secret.Type, secret.Labels, secret.OwnerReferences)
		}
		if keys := slices.Sorted(maps.Keys(secret.Data)); !slices.Equal(keys, want) {
			t.Errorf("%s: keys %v, want %v", role, keys, want)
		}
	}
}

// TestBeforeServer: the bootstrap data of a node exist before a server answers, and the same token is made known once one does, and only then.
func TestBeforeServer(t *testing.T) {
	b := newBed(bootstrapv1.Node)
	b.cluster.Status.Conditions, b.workload.silent = nil, true
	r, c := b.start(t)
	key := client.ObjectKeyFromObject(b.config)
	reconcile := func() (ctrl.Result, error) {
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if err := c.Get(t.Context(), key, b.config); err != nil {
			t.Fatal(err)
		}
		return result, err
	}
	expect := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		for _, kind := range []string{machineAdmitted, clusterv1.ReadyCondition} {
			if got := conditions.Get(b.config, kind); got == nil || got.Status != status || got.Reason != reason {
				t.Errorf("%s is %+v, want %s because of %s", kind, got, status, reason)
			}
		}
		if !conditions.IsTrue(b.config, dataSecretAvailable) || !ptr.Deref(b.config.Status.Initialization.DataSecretCreated, false) {
			t.Errorf("there are no bootstrap data: %+v", b.config.Status)
		}
	}
	for range 3 { // the first one only notes that it is not paused
		if _, err := reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	expect(metav1.ConditionFalse, bootstrapv1.WaitingForControlPlaneReason)
	version := b.config.ResourceVersion
	if result, err := reconcile(); err != nil || result.RequeueAfter < minPause || b.config.ResourceVersion != version {
		t.Errorf("while it waits: %+v, %v, resource version %s after %s", result, err, b.config.ResourceVersion, version)
	}
	b.workload.silent, b.workload.refuses = false, true
	if _, err := reconcile(); err == nil {
		t.Error("no error if the cluster refuses the token")
	}
	expect(metav1.ConditionFalse, bootstrapv1.AdmissionFailedReason)
	b.workload.refuses = false
	if _, err := reconcile(); err != nil {
		t.Fatal(err)
	}
	expect(metav1.ConditionTrue, bootstrapv1.AdmittedReason)
	asked := b.workload.asked
	if _, err := reconcile(); err != nil || b.workload.asked != asked || len(b.workload.admitted) != 1 {
		t.Errorf("afterwards: %v, asked %d times, %d tokens", err, b.workload.asked-asked, len(b.workload.admitted))
	}
}

// TestPause: a cluster that answers soon is noticed at once, and one that never does costs little.
func TestPause(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		0: minPause, time.Second: minPause, 20 * time.Second: 2 * time.Second, time.Hour: maxPause, -time.Minute: minPause,
	} {
		r := &Reconciler{Clock: testingclock.NewFakePassiveClock(began.Add(age))}
		if got := r.pause(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(began)}}); got != want {
			t.Errorf("after %v: %v, want %v", age, got, want)
		}
	}
}

func TestServers(t *testing.T) {
	first := []string{
		"up", "--server", "--etcd-embedded", "--authorities", "/etc/kindred/authorities", "--secure-port", "7443", "--tls-san", "10.192.255.254",
		"--service-cidr", "10.128.0.0/16", "--cluster-cidr", "192.168.0.0/16",
	}
	got := newBed(bootstrapv1.FirstServer).run(t)
	if diff := cmp.Diff(append(slices.Clone(first), "--node-name", "m"), got.Args); diff != "" {
		t.Errorf("arguments of the first server (-want +got):\n%s", diff)
	}
	var files []string
	for _, f := range got.Files {
		files = append(files, strings.TrimPrefix(f.Path, "/etc/kindred/authorities/")+": "+string(f.Content))
	}
	want := []string{
		"ca.key: ca key", "ca.crt: ca certificate", "front-proxy-ca.key: proxy key", "front-proxy-ca.crt: proxy certificate",
		"etcd-ca.key: etcd key", "etcd-ca.crt: etcd certificate", "sa.key: sa key",
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	b := newBed(bootstrapv1.Server)
	b.others = append(b.others, &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: ""}},
		Status:     clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "one"}, Addresses: []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.192.0.2"}}},
	})
	if diff := cmp.Diff(append(first, "--join-etcd", "https://10.192.0.2:2379", "--node-name", "m"), b.run(t).Args); diff != "" {
		t.Errorf("arguments of another server (-want +got):\n%s", diff)
	}
}

func TestWaits(t *testing.T) {
	tests := map[string]struct {
		role   bootstrapv1.Role
		change func(*bed)
		reason string
	}{
		"no endpoint":     {change: func(b *bed) { b.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{} }, reason: bootstrapv1.WaitingForInfrastructureReason},
		"no kubeconfig":   {change: func(b *bed) { b.workload.unknown = true }, reason: bootstrapv1.WaitingForControlPlaneReason},
		"no keys":         {role: bootstrapv1.FirstServer, change: func(b *bed) { b.others = nil }, reason: bootstrapv1.WaitingForControlPlaneReason},
		"no member":       {role: bootstrapv1.Server, change: func(*bed) {}, reason: bootstrapv1.WaitingForServersReason},
		"a reserved flag": {change: func(b *bed) { b.config.Spec.Flags = map[string]string{"data-dir": "/"} }, reason: bootstrapv1.InvalidReason},
		"no flag":         {change: func(b *bed) { b.config.Spec.Flags = map[string]string{"--pod-network": "vxlan"} }, reason: bootstrapv1.InvalidReason},
		"another domain":  {role: bootstrapv1.FirstServer, change: func(b *bed) { b.cluster.Spec.ClusterNetwork.ServiceDomain = "example.com" }, reason: bootstrapv1.InvalidReason},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(tt.role)
			tt.change(b)
			if got := b.run(t); got != nil {
				t.Errorf("bootstrap data %+v", got)
			}
			got := conditions.Get(b.config, clusterv1.ReadyCondition)
			if got == nil || got.Status != metav1.ConditionFalse || got.Reason != tt.reason || got.Message == "" {
				t.Errorf("Ready is %+v, want the reason %s", got, tt.reason)
			}
		})
	}
}

// TestRestoredSecret: a Secret that was restored without its owner, or moved with that of another cluster, gets its owner.
func TestRestoredSecret(t *testing.T) {
	b := newBed(bootstrapv1.Node)
	b.others = append(b.others, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "m", Namespace: namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "KindredConfig", Name: "m", UID: "elsewhere", Controller: ptr.To(true)}},
		},
		Data: map[string][]byte{"format": []byte("kindred"), "value": []byte(`{"args":["join","kept"]}`)},
	})
	if got := b.run(t); got == nil || !slices.Equal(got.Args, []string{"join", "kept"}) {
		t.Errorf("bootstrap data %+v", got)
	}
}
