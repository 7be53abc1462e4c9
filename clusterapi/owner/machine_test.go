// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
	infrav1 "github.com/kindred-project/kindred/clusterapi/api/infrastructure/v1alpha1"
)

func TestMachine(t *testing.T) {
	const namespace = "default"
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, bootstrapv1.AddToScheme, infrav1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	machine := func(name, config, infrastructure string) client.Object {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: "uid"}}
		m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KindredConfig", Name: config}
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "KindredMachine", Name: infrastructure}
		return m
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(machine("a", "config", "infra"), machine("b", "other", "else")).Build()
	meta := func(name, namespace string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: namespace, OwnerReferences: owners}
	}
	b := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "b", UID: "uid"}
	for name, tt := range map[string]struct {
		object client.Object
		want   string
	}{
		"the configuration that a Machine names":    {&bootstrapv1.KindredConfig{ObjectMeta: meta("config", namespace)}, "a"},
		"the infrastructure that a Machine names":   {&infrav1.KindredMachine{ObjectMeta: meta("infra", namespace)}, "a"},
		"the owner, if there is one":                {&bootstrapv1.KindredConfig{ObjectMeta: meta("config", namespace, b)}, "b"},
		"the name of something else":                {&infrav1.KindredMachine{ObjectMeta: meta("config", namespace)}, ""},
		"the same name in another namespace":        {&bootstrapv1.KindredConfig{ObjectMeta: meta("config", "elsewhere")}, ""},
		"a configuration that no Machine has named": {&bootstrapv1.KindredConfig{ObjectMeta: meta("none", namespace)}, ""},
	} {
		got, err := Machine(t.Context(), c, tt.object)
		if err != nil || (got == nil) != (tt.want == "") || got != nil && got.Name != tt.want {
			t.Errorf("%s: %v, %v, want %q", name, got, err, tt.want)
		}
	}
}
