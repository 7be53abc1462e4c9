// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/kindred-project/kindred/clusterapi/api/controlplane/v1alpha1"
	infrav1 "github.com/kindred-project/kindred/clusterapi/api/infrastructure/v1alpha1"
)

// TestAdopt: a machine that has lost its control plane, or names another version of it, gets it again, and no second first server is made.
func TestAdopt(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.Machine){
		"no owner":        func(m *clusterv1.Machine) { m.OwnerReferences = nil },
		"another version": func(m *clusterv1.Machine) { m.OwnerReferences[0].APIVersion = kind.Group + "/v1alpha0" },
		"another UID":     func(m *clusterv1.Machine) { m.OwnerReferences[0].UID = "elsewhere" },
		"not controlled":  func(m *clusterv1.Machine) { m.OwnerReferences[0].Controller = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, unchanged)
			b.run()
			b.changeMachine(change)
			b.run()
			all := b.machines()
			want := []metav1.OwnerReference{*metav1.NewControllerRef(b.plane, kind)}
			if len(all) != 1 || len(all[0].OwnerReferences) != 1 || all[0].OwnerReferences[0].String() != want[0].String() {
				t.Errorf("%d machines, owners of the first %+v, want %+v", len(all), all[0].OwnerReferences, want)
			}
		})
	}
}

// changeMachine changes the only Machine, and returns it.
func (b *bed) changeMachine(change func(*clusterv1.Machine)) *clusterv1.Machine {
	b.Helper()
	m := &b.machines()[0]
	change(m)
	if err := b.Update(b.Context(), m); err != nil {
		b.Fatal(err)
	}
	return m
}

// TestAdoptDeleted: machines are not taken back by a control plane that was deleted, which the cache may not know yet.
func TestAdoptDeleted(t *testing.T) {
	b := newBed(t, unchanged)
	b.run()
	b.changeMachine(func(m *clusterv1.Machine) { m.OwnerReferences = nil })
	cached := b.plane.DeepCopy()
	if err := b.Delete(b.Context(), b.plane); err != nil {
		t.Fatal(err)
	}
	s := &scope{KindredControlPlane: cached, cluster: b.cluster}
	var err error
	if s.machines, _, err = s.existing(b.Context(), b.Client); err != nil {
		t.Fatal(err)
	}
	if err := b.adopt(b.Context(), s); err == nil || !strings.Contains(err.Error(), "was deleted") {
		t.Error(err)
	}
	if owners := b.machines()[0].OwnerReferences; len(owners) > 0 {
		t.Errorf("owners %+v", owners)
	}
}

// TestForeignMachines: nothing is changed while something else manages a machine of the control plane, and a condition says so.
func TestForeignMachines(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.Machine){
		"another controller": func(m *clusterv1.Machine) {
			m.OwnerReferences[0].Kind, m.OwnerReferences[0].Name = "KubeadmControlPlane", "k"
		},
		"another provider": func(m *clusterv1.Machine) { m.OwnerReferences, m.Spec.Bootstrap.ConfigRef.Kind = nil, "KubeadmConfig" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, unchanged)
			b.run()
			m := b.changeMachine(change)
			b.run()
			got := conditions.Get(b.plane, controlplanev1.MachinesOwnedCondition)
			if got == nil || got.Status != metav1.ConditionFalse || !strings.Contains(got.Message, m.Name) {
				t.Errorf("MachinesOwned is %+v", got)
			}
			if all := b.machines(); len(all) != 1 {
				t.Errorf("%d machines", len(all))
			}
			if err := b.Delete(b.Context(), m); err != nil {
				t.Fatal(err)
			}
			b.release(client.ObjectKeyFromObject(m))
			b.run()
			if conditions.Has(b.plane, controlplanev1.MachinesOwnedCondition) || len(b.machines()) != 1 {
				t.Errorf("conditions %+v, %d machines", b.plane.Status.Conditions, len(b.machines()))
			}
		})
	}
}

// release removes the finalizers of a Machine that is being deleted.
func (b *bed) release(key client.ObjectKey) {
	b.Helper()
	m := &clusterv1.Machine{}
	if err := b.Get(b.Context(), key, m); err != nil {
		b.Fatal(err)
	}
	m.Finalizers = nil
	if err := b.Update(b.Context(), m); err != nil {
		b.Fatal(err)
	}
}

// TestRemoveWithoutOwner: a control plane that is deleted deletes its machines also if they have lost it, and lets them be removed.
func TestRemoveWithoutOwner(t *testing.T) {
	b := newBed(t, unchanged)
	b.run()
	b.changeMachine(func(m *clusterv1.Machine) { m.OwnerReferences = nil })
	if err := b.Delete(b.Context(), b.plane); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reconcile(b.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b.plane)}); err != nil {
		t.Fatal(err)
	}
	all := b.machines()
	if len(all) != 1 || all[0].DeletionTimestamp.IsZero() || all[0].Annotations[controlplanev1.LeaveHook] != "" {
		t.Errorf("machines %+v", all)
	}
}

// TestOwnTemplate: the template of the machines belongs to the Cluster, beside owners that it has.
func TestOwnTemplate(t *testing.T) {
	b := newBed(t, func(c *clusterv1.Cluster, _ *controlplanev1.KindredControlPlane) { c.UID = "c" })
	template := &infrav1.KindredMachineTemplate{}
	key := client.ObjectKey{Namespace: "default", Name: "t"}
	owners := func() (all []string) {
		t.Helper()
		if err := b.Get(b.Context(), key, template); err != nil {
			t.Fatal(err)
		}
		for _, o := range template.OwnerReferences {
			all = append(all, o.Kind+" "+string(o.UID))
		}
		return all
	}
	b.run()
	if got := strings.Join(owners(), ", "); got != "Cluster c" {
		t.Errorf("owners %s", got)
	}
	template.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "o"}, {APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: "elsewhere"},
	}
	if err := b.Update(b.Context(), template); err != nil {
		t.Fatal(err)
	}
	b.run()
	if got := strings.Join(owners(), ", "); got != "ConfigMap o, Cluster c" {
		t.Errorf("owners %s", got)
	}
	if err := b.Delete(b.Context(), template); err != nil {
		t.Fatal(err)
	}
	b.run() // a control plane whose machines exist does not need it
	if !conditions.IsTrue(b.plane, clusterv1.AvailableCondition) {
		t.Errorf("conditions %+v", b.plane.Status.Conditions)
	}
}

// TestRemediating: a condition says why an unhealthy machine is not replaced.
func TestRemediating(t *testing.T) {
	b := newBed(t, unchanged)
	b.run()
	if got := conditions.Get(b.plane, clusterv1.RemediatingCondition); got == nil || got.Status != metav1.ConditionFalse {
		t.Errorf("Remediating is %+v", got)
	}
	m := b.machines()[0]
	for _, kind := range []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition} {
		conditions.Set(&m, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "NodeUnhealthy"})
	}
	if err := b.Status().Update(b.Context(), &m); err != nil {
		t.Fatal(err)
	}
	b.run()
	want := "Unhealthy machines: " + m.Name + "; machine " + m.Name + " is not replaced: 0 of 1 servers are healthy beside it, and etcd needs 1"
	if got := conditions.Get(b.plane, clusterv1.RemediatingCondition); got == nil || got.Status != metav1.ConditionTrue || got.Message != want {
		t.Errorf("Remediating is %+v, want the message %q", got, want)
	}
}
