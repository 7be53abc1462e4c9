// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
}

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

// run reconciles until the configuration has a condition, and returns the bootstrap data; none if there are none.
func (b *bed) run(t *testing.T) (made *data) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(b.others, b.cluster, b.machine, b.config)...).
		WithStatusSubresource(&bootstrapv1.KindredConfig{}, &clusterv1.Cluster{}, &clusterv1.Machine{}).Build()
	r := &Reconciler{Client: c, Invite: func(context.Context, *clusterv1.Cluster, time.Duration) ([]string, error) {
		return []string{"join", "https://10.192.255.254:7443", "--token", "a.b"}, nil
	}}
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
	want := &data{
		Args:  []string{"join", "https://10.192.255.254:7443", "--token", "a.b", "--node-name", "m", "--node-ip=10.0.0.1", "--pod-network=vxlan"},
		Files: []file{{Path: "/etc/a", Mode: 0o644, Content: []byte("b")}, {Path: "/etc/kindred/kubelet.conf.d/50-kindredconfig.conf", Mode: 0o644, Content: []byte("maxPods: 5")}},
	}
	if diff := cmp.Diff(want, b.run(t)); diff != "" {
		t.Errorf("bootstrap data (-want +got):\n%s", diff)
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
		"no server":       {change: func(b *bed) { b.cluster.Status.Conditions = nil }, reason: bootstrapv1.WaitingForControlPlaneReason},
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
