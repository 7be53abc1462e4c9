// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
)

// TestServersOfNodes: what a node announces is published for it, and owned by its Node, if the address is one of its own range.
func TestServersOfNodes(t *testing.T) {
	node := func(name, cidr string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}, Spec: corev1.NodeSpec{PodCIDRs: []string{cidr}}}
	}
	client := fake.NewClientset(node("honest", "10.244.1.0/24"), node("other", "10.244.2.0/24"))
	shared := informers.NewSharedInformerFactory(client, 0)
	publisher := NewPublisher(client, shared, clock.RealClock{})
	nodes := shared.Core().V1().Nodes()
	nodes.Informer()
	ctx, stop := context.WithCancel(t.Context())
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	endpoint := netip.MustParseAddrPort("10.244.1.1:53")
	done := make(chan error)
	for _, name := range []string{"honest", "other"} {
		go func() { done <- Announce(ctx, client, nodes, name, endpoint, clock.RealClock{}) }()
	}
	go func() { done <- publisher.RunNodes(ctx, nodes, addr("10.96.0.10")) }()

	var slices []discoveryv1.EndpointSlice
	for end := time.Now().Add(30 * time.Second); len(slices) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing is published")
		}
		slices = slicesOf(t, client)
	}
	slice := slices[0]
	if len(slice.OwnerReferences) != 1 || slice.OwnerReferences[0].Kind != "Node" || slice.OwnerReferences[0].Name != "honest" ||
		slice.Endpoints[0].Addresses[0] != "10.244.1.1" || slice.Endpoints[0].Hints.ForNodes[0].Name != "honest" {
		t.Errorf("published %+v", slice)
	}
	if err := publisher.ensureNodes(ctx, nodes, addr("10.96.0.10")); err == nil {
		t.Error("no error for the node that announces an address of another one")
	}
	if slices = slicesOf(t, client); len(slices) != 1 {
		t.Errorf("%d EndpointSlices", len(slices))
	}
	stop()
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	shared.Shutdown()
}

func slicesOf(t *testing.T, client kubernetes.Interface) []discoveryv1.EndpointSlice {
	t.Helper()
	all, err := client.DiscoveryV1().EndpointSlices(Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return all.Items
}
