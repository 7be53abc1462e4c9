// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAddressOfANodeChanges: a machine that gets another address stays the node that it is. The Node has the new address, its agent a
// certificate for it, and its pods run on and are reached.
func TestAddressOfANodeChanges(t *testing.T) {
	needContainers(t)
	if userRuntime != "" {
		t.Skip("two machines cannot share one runtime")
	}
	l := newLAN(t)
	m := l.machine(1)
	s := newSession(t, l.serverWithNode(2, "--bind-address", l.address(2), "--node-name", "first"))
	m.resetAfterwards()
	joined := m.join(append(s.invitation(), "--node-name", secondNode)...)
	m.loadImages()
	s.connects()
	before := s.pod("on-second")

	at := handleAt(t, m.at)
	link, err := at.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	const next = "10.247.8.211"
	was, err := netlink.ParseAddr(m.address + "/24")
	if err != nil {
		t.Fatal(err)
	}
	now, err := netlink.ParseAddr(next + "/24")
	if err := errors.Join(err, at.AddrDel(link, was), at.AddrAdd(link, now)); err != nil {
		t.Fatal(err)
	}
	route(t, m.at, "0.0.0.0/0", l.host) // which went with the address
	s.within(time.Minute, "the Node has the new address", func() error {
		node, err := s.cluster.client(t).CoreV1().Nodes().Get(t.Context(), secondNode, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, a := range node.Status.Addresses {
			if a.Type == corev1.NodeInternalIP && a.Address == next {
				return nil
			}
		}
		return fmt.Errorf("it has %v", node.Status.Addresses)
	})
	m.await(joined, "the node is started again")
	s.within(20*time.Second, "the agent is reached", func() error {
		if r := s.try("exec", "on-second", "--", "true"); r.code != 0 {
			return errors.New(r.err)
		}
		return nil
	})
	s.reaches("on-first", before.Status.PodIP+":8080", "on-second")
	s.reaches("on-second", s.pod("on-first").Status.PodIP+":8080", "on-first")
	if after := s.pod("on-second"); after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the pod was replaced or restarted: %v", after.Status.ContainerStatuses)
	}
}
