// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/kindred-project/kindred/clusterapi/api/infrastructure/v1alpha1"
	"github.com/kindred-project/kindred/clusterapi/hostclient"
)

// fakeHost is a host in memory.
type fakeHost struct {
	machines  map[string]hostclient.Spec
	phases    map[string]string
	endpoints map[string]hostclient.Endpoint
	// ends are those of Kindred in every machine.
	ends hostclient.Ends
	// fails is the error of each change.
	fails error
}

func newFakeHost() *fakeHost {
	return &fakeHost{machines: map[string]hostclient.Spec{}, phases: map[string]string{}, endpoints: map[string]hostclient.Endpoint{}}
}

func (h *fakeHost) ProgramOf(version string) (string, bool, error) {
	return "/bin/" + version, version == "v1.37.1", nil
}

func (h *fakeHost) Versions() ([]string, error) { return []string{"v1.37.1"}, nil }

func (h *fakeHost) Apply(_ context.Context, spec hostclient.Spec) (hostclient.Machine, error) {
	if h.fails != nil {
		return hostclient.Machine{}, h.fails
	}
	if _, found := h.machines[spec.Name]; !found {
		h.phases[spec.Name] = hostclient.Running
	}
	h.machines[spec.Name] = spec
	m, _, err := h.Get(context.Background(), spec.Name)
	return m, err
}

func (h *fakeHost) Get(_ context.Context, name string) (hostclient.Machine, bool, error) {
	spec, found := h.machines[name]
	return hostclient.Machine{Name: name, Owner: spec.Owner, Address: "10.192.0.2/16", Phase: h.phases[name], Ends: h.ends}, found, nil
}

func (h *fakeHost) Delete(_ context.Context, name string) error {
	delete(h.machines, name)
	return h.fails
}

func (h *fakeHost) SetEndpoint(_ context.Context, e hostclient.Endpoint) (hostclient.Endpoint, error) {
	if e.Address == "" {
		e.Address = fmt.Sprintf("10.192.255.%d", 254-len(h.endpoints))
	}
	h.endpoints[e.Name], e.Network = e, "10.192.0.0/16"
	return e, h.fails
}

func (h *fakeHost) DeleteEndpoint(_ context.Context, name string) error {
	delete(h.endpoints, name)
	return h.fails
}

const namespace = "default"

// objects are a Cluster with a Machine, its bootstrap data, and their infrastructure.
func objects() (*clusterv1.Cluster, *clusterv1.Machine, *corev1.Secret, *infrav1.KindredMachine, *infrav1.KindredCluster) {
	labels := map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: ""}
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: namespace, UID: "cluster"},
		Spec:       clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "KindredCluster", Name: "c"}},
		Status:     clusterv1.ClusterStatus{Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: ptr.To(true)}},
	}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: namespace, UID: "machine", Labels: labels},
		Spec:       clusterv1.MachineSpec{ClusterName: "c", Version: "v1.37.1", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("m")}},
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: namespace},
		Data:       map[string][]byte{"format": []byte("kindred"), "value": []byte(`{"args":["up","--server"],"files":[{"path":"/etc/kindred/a","mode":384,"content":"YQ=="}]}`)},
	}
	m := &infrav1.KindredMachine{ObjectMeta: metav1.ObjectMeta{
		Name: "m", Namespace: namespace, UID: "12345678-aaaa", Labels: labels, Finalizers: []string{infrav1.MachineFinalizer},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: "machine"}},
	}}
	c := &infrav1.KindredCluster{ObjectMeta: metav1.ObjectMeta{
		Name: "c", Namespace: namespace, UID: "12345678-bbbb", Finalizers: []string{infrav1.ClusterFinalizer},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: "cluster"}},
	}}
	return cluster, machine, secret, m, c
}

func newClient(t *testing.T, all ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).
		WithStatusSubresource(&infrav1.KindredMachine{}, &infrav1.KindredCluster{}, &clusterv1.Cluster{}, &clusterv1.Machine{}).Build()
}

// settle reconciles until nothing changes any more.
func settle(t *testing.T, c client.Client, reconcile func(context.Context, ctrl.Request) (ctrl.Result, error), object client.Object) error {
	t.Helper()
	key := client.ObjectKeyFromObject(object)
	for range 10 {
		before := object.DeepCopyObject()
		_, failed := reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if err := c.Get(t.Context(), key, object); err != nil || failed != nil {
			return errors.Join(client.IgnoreNotFound(err), failed)
		}
		if cmp.Equal(before, object) {
			return nil
		}
	}
	t.Fatal("the object never stays as it is")
	return nil
}

func TestMachineIsMade(t *testing.T) {
	cluster, machine, secret, m, _ := objects()
	c, host := newClient(t, cluster, machine, secret, m), newFakeHost()
	r := &MachineReconciler{Client: c, Host: host, Owner: "one", Clock: clock.RealClock{}}
	if err := settle(t, c, r.Reconcile, m); err != nil {
		t.Fatal(err)
	}
	name, _ := nameOnHost(m)
	if !strings.HasPrefix(name, "m-") || len(host.machines) != 1 {
		t.Fatalf("provider ID %q, machines %v", m.Spec.ProviderID, host.machines)
	}
	kubelet := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nproviderID: kindred:///" + name + "\n"
	want := hostclient.Spec{
		Name: name, Owner: "one", Program: "/bin/v1.37.1", Args: []string{"up", "--server", "--kubelet-config-dir", "/etc/kindred/kubelet.conf.d"},
		Files: []hostclient.File{{Path: "/etc/kindred/a", Mode: 0o600, Content: []byte("a")}, {Path: "/etc/kindred/kubelet.conf.d/90-provider-id.conf", Mode: 0o644, Content: []byte(kubelet)}},
	}
	if diff := cmp.Diff(want, host.machines[name]); diff != "" {
		t.Errorf("machine on the host (-want +got):\n%s", diff)
	}
	if !conditions.IsTrue(m, clusterv1.ReadyCondition) || !ptr.Deref(m.Status.Initialization.Provisioned, false) || m.Status.Addresses[1].Address != "10.192.0.2" {
		t.Errorf("status: %+v", m.Status)
	}
}

// TestMachineOfAnotherCluster: a KindredMachine that was moved here has another UID and no status, and is the same machine on the host.
func TestMachineOfAnotherCluster(t *testing.T) {
	cluster, machine, secret, m, _ := objects()
	m.UID, m.Spec.ProviderID = "other", "kindred:///m-1"
	c, host := newClient(t, cluster, machine, secret, m), newFakeHost()
	host.machines["m-1"], host.phases["m-1"] = hostclient.Spec{Name: "m-1", Owner: "one"}, hostclient.Running
	r := &MachineReconciler{Client: c, Host: host, Owner: "two", Clock: clock.RealClock{}}
	if err := settle(t, c, r.Reconcile, m); err != nil {
		t.Fatal(err)
	}
	if len(host.machines) != 1 || host.machines["m-1"].Owner != "two" {
		t.Errorf("machines on the host: %+v", host.machines)
	}
}

func TestMachineIsNotReady(t *testing.T) {
	tests := map[string]struct {
		change func(*clusterv1.Cluster, *clusterv1.Machine, *corev1.Secret, *infrav1.KindredMachine, *fakeHost)
		reason string
		says   string
		fails  bool
	}{
		"no endpoint": {change: func(c *clusterv1.Cluster, _ *clusterv1.Machine, _ *corev1.Secret, _ *infrav1.KindredMachine, _ *fakeHost) {
			c.Status.Initialization.InfrastructureProvisioned = nil
		}, reason: infrav1.WaitingForClusterReason},
		"no bootstrap data": {change: func(_ *clusterv1.Cluster, m *clusterv1.Machine, _ *corev1.Secret, _ *infrav1.KindredMachine, _ *fakeHost) {
			m.Spec.Bootstrap.DataSecretName = nil
		}, reason: infrav1.WaitingForBootstrapDataReason},
		"data of kubeadm": {change: func(_ *clusterv1.Cluster, _ *clusterv1.Machine, s *corev1.Secret, _ *infrav1.KindredMachine, _ *fakeHost) {
			s.Data["format"] = []byte("cloud-config")
		}, reason: infrav1.BootstrapFormatReason, says: "cloud-config"},
		"a version that the host lacks": {change: func(_ *clusterv1.Cluster, m *clusterv1.Machine, _ *corev1.Secret, _ *infrav1.KindredMachine, _ *fakeHost) {
			m.Spec.Version = "v1.38.0"
		}, reason: infrav1.NotInstalledReason, says: "it has v1.37.1"},
		"an ID of another provider": {change: func(_ *clusterv1.Cluster, _ *clusterv1.Machine, _ *corev1.Secret, m *infrav1.KindredMachine, _ *fakeHost) {
			m.Spec.ProviderID = "aws:///x"
		}, reason: infrav1.HostReason, says: "aws:///x"},
		"the host fails": {change: func(_ *clusterv1.Cluster, _ *clusterv1.Machine, _ *corev1.Secret, _ *infrav1.KindredMachine, h *fakeHost) {
			h.fails = errors.New("no space left on device")
		}, reason: infrav1.HostReason, says: "no space left", fails: true},
		"killed": {change: func(_ *clusterv1.Cluster, _ *clusterv1.Machine, _ *corev1.Secret, m *infrav1.KindredMachine, h *fakeHost) {
			m.Spec.ProviderID, m.Status.Initialization.Provisioned = "kindred:///m-1", ptr.To(true)
			h.machines["m-1"], h.phases["m-1"] = hostclient.Spec{Name: "m-1"}, hostclient.Dead
		}, reason: infrav1.DeadReason},
		"Kindred ends again and again": {change: func(_ *clusterv1.Cluster, _ *clusterv1.Machine, _ *corev1.Secret, m *infrav1.KindredMachine, h *fakeHost) {
			m.Spec.ProviderID, m.Status.Initialization.Provisioned = "kindred:///m-1", ptr.To(true)
			h.machines["m-1"], h.phases["m-1"] = hostclient.Spec{Name: "m-1"}, hostclient.Running
			h.ends = hostclient.Ends{Count: restless, Last: "signal: killed"}
		}, reason: infrav1.KindredEndsReason, says: `ended 3 times, the last time with "signal: killed"`},
		"gone from the host": {change: func(_ *clusterv1.Cluster, _ *clusterv1.Machine, _ *corev1.Secret, m *infrav1.KindredMachine, _ *fakeHost) {
			m.Spec.ProviderID, m.Status.Initialization.Provisioned = "kindred:///m-1", ptr.To(true)
		}, reason: infrav1.GoneReason},
		"restored, and gone from the host": {change: func(_ *clusterv1.Cluster, _ *clusterv1.Machine, _ *corev1.Secret, m *infrav1.KindredMachine, _ *fakeHost) {
			m.Spec.ProviderID = infrav1.ProviderIDPrefix + chooseName(m)
			m.UID = "of the restored object"
		}, reason: infrav1.GoneReason},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cluster, machine, secret, m, _ := objects()
			host := newFakeHost()
			tt.change(cluster, machine, secret, m, host)
			c := newClient(t, cluster, machine, secret, m)
			before := len(host.machines)
			err := settle(t, c, (&MachineReconciler{Client: c, Host: host, Clock: clock.RealClock{}}).Reconcile, m)
			if (err != nil) != tt.fails {
				t.Errorf("error %v", err)
			}
			got := conditions.Get(m, clusterv1.ReadyCondition)
			if got == nil || got.Status != metav1.ConditionFalse || got.Reason != tt.reason || !strings.Contains(got.Message, tt.says) {
				t.Errorf("Ready is %+v, want the reason %s and %q", got, tt.reason, tt.says)
			}
			if len(host.machines) != before {
				t.Errorf("machines on the host: %v", host.machines)
			}
		})
	}
}

func TestMachineIsRemoved(t *testing.T) {
	cluster, machine, secret, m, _ := objects()
	m.Spec.ProviderID = "kindred:///m-1"
	c, host := newClient(t, cluster, machine, secret, m), newFakeHost()
	host.machines["m-1"] = hostclient.Spec{Name: "m-1"}
	if err := c.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r := &MachineReconciler{Client: c, Host: host, Clock: clock.RealClock{}}
	host.fails = errors.New("busy")
	if err := settle(t, c, r.Reconcile, m); err == nil {
		t.Error("no error while the host fails")
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil || len(m.Finalizers) == 0 {
		t.Fatalf("after a failure: %v, finalizers %v", err, m.Finalizers)
	}
	host.fails = nil
	if err := settle(t, c, r.Reconcile, m); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), m); err == nil || len(host.machines) > 0 {
		t.Errorf("the object: %v, machines %v", err, host.machines)
	}
}

func TestEndpoint(t *testing.T) {
	cluster, machine, secret, m, kc := objects()
	second := m.DeepCopy()
	second.Name, second.UID = "n", "n"
	m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.192.0.2"}}
	second.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.192.0.3"}}
	c, host := newClient(t, cluster, machine, secret, m, second, kc), newFakeHost()
	accepting := []string{"10.192.0.2:6443", "10.192.0.3:6443"}
	r := &ClusterReconciler{Client: c, Host: host, Owner: "one", Clock: clock.RealClock{}, Accepts: func(_ context.Context, address string) bool { return slices.Contains(accepting, address) }}
	servers := func(want ...string) {
		t.Helper()
		if err := settle(t, c, r.Reconcile, kc); err != nil {
			t.Fatal(err)
		}
		if len(host.endpoints) != 1 {
			t.Fatalf("endpoints %v", host.endpoints)
		}
		for _, e := range host.endpoints {
			if diff := cmp.Diff(want, e.Servers); diff != "" {
				t.Errorf("servers (-want +got):\n%s", diff)
			}
		}
	}
	servers("10.192.0.2", "10.192.0.3")
	if want := (clusterv1.APIEndpoint{Host: "10.192.255.254", Port: 6443}); kc.Spec.ControlPlaneEndpoint != want {
		t.Errorf("endpoint %v, want %v", kc.Spec.ControlPlaneEndpoint, want)
	}
	accepting = accepting[1:]
	servers("10.192.0.3")
	accepting = nil
	servers("10.192.0.2", "10.192.0.3")

	leaving := machine.DeepCopy()
	leaving.ResourceVersion, leaving.Name, leaving.UID, leaving.Finalizers = "", "n", "leaving", []string{"kept"}
	second.OwnerReferences[0].Name = "n"
	if err := errors.Join(c.Create(t.Context(), leaving), c.Delete(t.Context(), leaving), c.Update(t.Context(), second)); err != nil {
		t.Fatal(err)
	}
	servers("10.192.0.2")

	if err := c.Delete(t.Context(), kc); err != nil {
		t.Fatal(err)
	}
	servers("10.192.0.2") // as long as machines are left
	for _, left := range []client.Object{m, second} {
		left.SetFinalizers(nil)
		if err := errors.Join(c.Update(t.Context(), left), c.Delete(t.Context(), left)); err != nil {
			t.Fatal(err)
		}
	}
	if err := settle(t, c, r.Reconcile, kc); err != nil {
		t.Fatal(err)
	}
	if len(host.endpoints) > 0 {
		t.Errorf("endpoints that are left: %v", host.endpoints)
	}
}

func TestChooseName(t *testing.T) {
	long := &infrav1.KindredMachine{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("abc.", 40), UID: "1"}}
	if name := chooseName(long); len(name) > 63 || strings.Contains(name, ".") || strings.Contains(name, "--") {
		t.Errorf("%q is no name of a host", name)
	}
	a := &infrav1.KindredMachine{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
	b := &infrav1.KindredMachine{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "2"}}
	if chooseName(a) == chooseName(b) || chooseName(a) != chooseName(a.DeepCopy()) {
		t.Errorf("names %q and %q", chooseName(a), chooseName(b))
	}
}

// TestEndpointBeforeOwner: a KindredCluster has its endpoint as soon as a Cluster names it.
func TestEndpointBeforeOwner(t *testing.T) {
	tests := map[string]struct {
		change func(*clusterv1.Cluster)
		made   bool
	}{
		"named":         {change: func(*clusterv1.Cluster) {}, made: true},
		"named, paused": {change: func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) }},
		"not named":     {change: func(c *clusterv1.Cluster) { c.Spec.InfrastructureRef.Name = "other" }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cluster, _, _, _, kc := objects()
			kc.OwnerReferences, kc.Finalizers = nil, nil
			test.change(cluster)
			c, host := newClient(t, cluster, kc), newFakeHost()
			r := &ClusterReconciler{Client: c, Host: host, Owner: "one", Clock: clock.RealClock{}}
			if err := settle(t, c, r.Reconcile, kc); err != nil {
				t.Fatal(err)
			}
			if made := ptr.Deref(kc.Status.Initialization.Provisioned, false); made != test.made || len(host.endpoints) > 0 != test.made {
				t.Errorf("provisioned: %v, endpoints: %v", made, host.endpoints)
			}
		})
	}
}
