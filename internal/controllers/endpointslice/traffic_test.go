// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointslice

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hints returns the hints of each address: its zones, and its nodes.
func (b bench) hints() map[string]string {
	hints := map[string]string{}
	for _, slice := range b.slices() {
		for _, e := range slice.Endpoints {
			text := ""
			if e.Hints != nil {
				for _, zone := range e.Hints.ForZones {
					text += "zone " + zone.Name + " "
				}
				for _, node := range e.Hints.ForNodes {
					text += "node " + node.Name + " "
				}
			}
			hints[e.Addresses[0]] = text
		}
	}
	return hints
}

// change updates the Service, and reconciles it.
func (b bench) change(change func(*corev1.Service)) {
	service := &corev1.Service{}
	b.Must(b.API.Get(ctx, key, service))
	change(service)
	b.Must(b.API.Update(ctx, service))
	b.Sync()
	b.reconcile()
	b.Sync()
}

// TestTrafficDistribution: spec.trafficDistribution leads to hints for zones and nodes, of ready endpoints, and its
// removal removes them (KEP-3015).
func TestTrafficDistribution(t *testing.T) {
	var objs []client.Object
	for i := range 2 {
		objs = append(objs, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("node-", i), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("zone-", i)},
		}})
		pod := newPod(i, corev1.ConditionTrue)
		pod.Spec.NodeName = fmt.Sprint("node-", i)
		objs = append(objs, pod)
	}
	unready := newPod(2, corev1.ConditionFalse)
	unready.Spec.NodeName = "node-1"
	b := newBench(t, append(objs, unready)...)
	none := map[string]string{"10.1.0.1": "", "10.1.0.2": "", "10.1.0.3": ""}
	zones := map[string]string{"10.1.0.1": "zone zone-0 ", "10.1.0.2": "zone zone-1 ", "10.1.0.3": ""}
	nodes := map[string]string{"10.1.0.1": "zone zone-0 node node-0 ", "10.1.0.2": "zone zone-1 node node-1 ", "10.1.0.3": ""}
	for _, tt := range []struct {
		value *string
		want  map[string]string
	}{
		{nil, none},
		{new(corev1.ServiceTrafficDistributionPreferSameNode), nodes},
		{new(corev1.ServiceTrafficDistributionPreferSameZone), zones},
		{nil, none},
		{new(corev1.ServiceTrafficDistributionPreferClose), zones},
	} {
		b.change(func(s *corev1.Service) { s.Spec.TrafficDistribution = tt.value })
		if diff := cmp.Diff(tt.want, b.hints()); diff != "" {
			name := "none"
			if tt.value != nil {
				name = *tt.value
			}
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestPublishNotReadyAddresses: an unready pod is a ready endpoint, because the Service wants it, until the field is reset.
func TestPublishNotReadyAddresses(t *testing.T) {
	b := newBench(t, newPod(0, corev1.ConditionFalse))
	for _, publish := range []bool{false, true, false} {
		b.change(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = publish })
		endpoints := b.slices()[0].Endpoints
		if len(endpoints) != 1 {
			t.Fatalf("%d endpoints", len(endpoints))
		}
		c := endpoints[0].Conditions
		if *c.Ready != publish || *c.Serving || *c.Terminating {
			t.Errorf("published %v: ready %v, serving %v, terminating %v", publish, *c.Ready, *c.Serving, *c.Terminating)
		}
	}
}

// TestNodesChange: the topology of the nodes is read once for many changes, and Services whose hints it outdates are requested.
func TestNodesChange(t *testing.T) {
	var objs []client.Object
	for i := range 2 {
		objs = append(objs, zoneNode(i, "1"))
		pod := newPod(i, corev1.ConditionTrue)
		pod.Spec.NodeName = fmt.Sprint("node-", i)
		objs = append(objs, pod)
	}
	b := newBench(t, objs...)
	reconcileNodes := func() (outdated []string) {
		t.Helper()
		b.Sync()
		done := make(chan error)
		go func() {
			_, err := b.Reconcile(ctx, nodes)
			done <- err
		}()
		for {
			select {
			case e := <-b.outdated:
				outdated = append(outdated, client.ObjectKeyFromObject(e.Object).String())
			case err := <-done:
				b.Must(err)
				return outdated
			}
		}
	}
	if got := reconcileNodes(); len(got) > 0 {
		t.Errorf("at first: %v", got)
	}
	b.change(func(s *corev1.Service) { s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"} })
	if diff := cmp.Diff(map[string]string{"10.1.0.1": "zone zone-0 ", "10.1.0.2": "zone zone-1 "}, b.hints()); diff != "" {
		t.Error(diff)
	}
	b.Must(b.API.Status().Update(ctx, zoneNode(1, "8")))
	if got := reconcileNodes(); len(got) != 1 || got[0] != key.String() {
		t.Errorf("after a node has grown: %v", got)
	}
}

// zoneNode is a Ready node in a zone of its own.
func zoneNode(i int, cpu string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("zone-", i)}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}
