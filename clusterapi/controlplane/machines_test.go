// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	controlplanev1 "github.com/kindred-project/kindred/clusterapi/api/controlplane/v1alpha1"
)

// TestIsCurrent: a decision is current if it knows all machines of the control plane that the API has.
func TestIsCurrent(t *testing.T) {
	p := &controlplanev1.KindredControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "p"}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"}}
	machine := func(name string, owner metav1.OwnerReference) *clusterv1.Machine {
		return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}, OwnerReferences: []metav1.OwnerReference{owner},
		}}
	}
	own := *metav1.NewControllerRef(p, kind)
	other := own
	other.Kind, other.Name, other.UID = "KindredControlPlane", "other", "other"
	a, b, foreign := machine("a", own), machine("b", own), machine("foreign", other)
	for _, test := range []struct {
		name     string
		existing []client.Object
		known    []*clusterv1.Machine
		current  bool
	}{
		{"none", nil, nil, true},
		{"that of another control plane", []client.Object{foreign}, nil, true},
		{"all known", []client.Object{a, b}, []*clusterv1.Machine{a, b}, true},
		{"the first is not known yet", []client.Object{a}, nil, false},
		{"another one is not known yet", []client.Object{a, b}, []*clusterv1.Machine{a}, false},
		{"one has gone that is still known", []client.Object{a}, []*clusterv1.Machine{a, b}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := clusterv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(test.existing...).Build()}
			s := &scope{KindredControlPlane: p, cluster: cluster, machines: collections.FromMachines(test.known...)}
			if current, err := r.isCurrent(t.Context(), s); err != nil || current != test.current {
				t.Errorf("current: %v, %v, want %v", current, err, test.current)
			}
		})
	}
}
