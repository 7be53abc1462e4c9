// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
	controlplanev1 "github.com/kindred-project/kindred/clusterapi/api/controlplane/v1alpha1"
	infrav1 "github.com/kindred-project/kindred/clusterapi/api/infrastructure/v1alpha1"
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
	a, b, foreign, lost := machine("a", own), machine("b", own), machine("foreign", other), machine("lost", own)
	intruder := foreign.DeepCopy()
	intruder.Labels[clusterv1.MachineControlPlaneLabel] = ""
	lost.Labels[clusterv1.MachineControlPlaneLabel], lost.OwnerReferences = "", nil
	lost.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KindredConfig", Name: "lost"}
	for _, test := range []struct {
		name     string
		existing []client.Object
		known    []*clusterv1.Machine
		current  bool
	}{
		{"none", nil, nil, true},
		{"that of another control plane", []client.Object{foreign}, nil, true},
		{"one that something else manages", []client.Object{intruder}, nil, false},
		{"one without an owner", []client.Object{lost}, nil, false},
		{"one without an owner, known", []client.Object{lost}, []*clusterv1.Machine{lost}, true},
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

// TestCreateFails: the parts of a machine are deleted with a creation that fails, unless the Machine exists all the same.
func TestCreateFails(t *testing.T) {
	for _, test := range []struct {
		name  string
		lost  bool // the Machine is created, and the answer is lost
		parts int
	}{{"refused", false, 0}, {"the answer is lost", true, 2}} {
		t.Run(test.name, func(t *testing.T) {
			failure := errors.New("connection reset")
			c := newAPI(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if _, isMachine := o.(*clusterv1.Machine); !isMachine {
					return c.Create(ctx, o, opts...)
				}
				if test.lost {
					return errors.Join(c.Create(ctx, o, opts...), failure)
				}
				return failure
			}})
			if err := (&Reconciler{Client: c, Reader: c}).create(t.Context(), newScope(), true); !errors.Is(err, failure) {
				t.Fatal(err)
			}
			if got := len(parts(t, c)); got != test.parts {
				t.Errorf("%d parts are left, want %d", got, test.parts)
			}
		})
	}
}

// TestHandOver: a Machine is the only owner of its parts, or the control plane stays their owner until Cluster API changes that.
func TestHandOver(t *testing.T) {
	for _, test := range []struct {
		name    string
		refused error
		owner   string
	}{{"allowed", nil, "Machine"}, {"refused", errors.New("forbidden"), "KindredControlPlane"}} {
		t.Run(test.name, func(t *testing.T) {
			c := newAPI(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if test.refused != nil {
					return test.refused
				}
				return c.Patch(ctx, o, p, opts...)
			}})
			if err := (&Reconciler{Client: c, Reader: c}).create(t.Context(), newScope(), true); err != nil {
				t.Fatal(err)
			}
			all := parts(t, c)
			if len(all) != 2 {
				t.Fatalf("%d parts, want 2", len(all))
			}
			for _, part := range all {
				owners := part.GetOwnerReferences()
				if len(owners) != 1 || owners[0].Kind != test.owner || (test.owner == "Machine") != ptr.Deref(owners[0].Controller, false) {
					t.Errorf("owners of %T: %+v", part, owners)
				}
			}
		})
	}
}

// newScope returns a control plane without machines.
func newScope() *scope {
	p := &controlplanev1.KindredControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "p"}}
	p.Spec.Version = "v1.37.1"
	p.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "KindredMachineTemplate", Name: "t"}
	return &scope{KindredControlPlane: p, cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"}}}
}

// parts returns the infrastructure and the configurations of all machines.
func parts(t *testing.T, c client.Client) (all []client.Object) {
	t.Helper()
	machines, configs := &infrav1.KindredMachineList{}, &bootstrapv1.KindredConfigList{}
	if err := errors.Join(c.List(t.Context(), machines), c.List(t.Context(), configs)); err != nil {
		t.Fatal(err)
	}
	for i := range machines.Items {
		all = append(all, &machines.Items[i])
	}
	for i := range configs.Items {
		all = append(all, &configs.Items[i])
	}
	return all
}

// newAPI returns an API with the template of a machine.
func newAPI(t *testing.T, funcs interceptor.Funcs) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, infrav1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(funcs).WithObjects(
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			Name: "kindredmachinetemplates." + infrav1.GroupVersion.Group, Labels: map[string]string{"cluster.x-k8s.io/v1beta2": infrav1.GroupVersion.Version},
		}},
		&infrav1.KindredMachineTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Namespace: "default"}},
	).Build()
}
