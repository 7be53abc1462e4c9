// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/kindred-project/kindred/internal/network/nft"
	"github.com/kindred-project/kindred/internal/network/policy"
)

func clusterPolicy(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// Policies of both kinds get an event if the kernel refuses the rules of their pods.
func TestRefusedPoliciesGetEvents(t *testing.T) {
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "np"}}
	cluster := cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	if err := errors.Join(f.Networking().V1().NetworkPolicies().Informer().GetStore().Add(np), cluster.GetStore().Add(clusterPolicy("cnp", nil))); err != nil {
		t.Fatal(err)
	}
	events := record.NewFakeRecorder(10)
	events.IncludeObject = true
	n := &Network{options: Options{Node: "here", Informers: f, ClusterPolicies: cluster, Events: events}}
	n.reportPolicies(nft.Refused{Err: errors.New("too long\nmore")}, []types.NamespacedName{
		{Namespace: "ns", Name: "np"}, {Name: "cnp"}, {Name: "gone"}, {Namespace: "ns", Name: "gone"},
	})
	const want = "Warning RulesRefused Node here cannot apply the policies of some pods and drops their packets: too long"
	for _, kind := range []string{"", "ClusterNetworkPolicy"} {
		if got := <-events.Events; !strings.HasPrefix(got, want) || !strings.Contains(got, "kind="+kind) {
			t.Errorf("got %q", got)
		}
	}
	if len(events.Events) > 0 {
		t.Errorf("one more event: %s", <-events.Events)
	}
}

// Objects are decoded here, so one that the definition of another version let through must not stop the others.
func TestInvalidClusterPoliciesGetEvents(t *testing.T) {
	all := map[string]any{"namespaces": map[string]any{}}
	for name, test := range map[string]struct {
		spec map[string]any
		want string
	}{
		"valid":     {map[string]any{"tier": "Admin", "priority": int64(1), "subject": all}, ""},
		"undecoded": {map[string]any{"tier": "Admin", "priority": "high", "subject": all}, "the policy selects no pods"},
		"unknown":   {map[string]any{"tier": "Middle", "priority": int64(1), "subject": all}, `spec.tier: "Middle" is not known; the policy selects no pods`},
	} {
		events := record.NewFakeRecorder(10)
		n := &Network{options: Options{Events: events}}
		n.setClusterPolicy(policy.New(policy.Options{}), clusterPolicy(name, test.spec))
		got := ""
		if len(events.Events) > 0 {
			got = <-events.Events
		}
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
