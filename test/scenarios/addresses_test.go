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

	const next = "10.247.8.211"
	l.readdress(m, next)
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

// readdress gives a machine another address.
func (l *lan) readdress(m *otherMachine, next string) {
	l.t.Helper()
	at := handleAt(l.t, m.at)
	link, err := at.LinkByName("eth0")
	if err != nil {
		l.t.Fatal(err)
	}
	was, err := netlink.ParseAddr(m.address + "/24")
	if err != nil {
		l.t.Fatal(err)
	}
	now, err := netlink.ParseAddr(next + "/24")
	if err := errors.Join(err, at.AddrDel(link, was), at.AddrAdd(link, now)); err != nil {
		l.t.Fatal(err)
	}
	m.address = next
	route(l.t, m.at, "0.0.0.0/0", l.host) // which went with the address
}

// TestAddressOfTheServerChanges: the only server of a cluster moves to another address. A node of it joins again with the new URL and without a
// token, and its pods run on.
func TestAddressOfTheServerChanges(t *testing.T) {
	needContainers(t)
	if userRuntime != "" {
		t.Skip("two machines cannot share one runtime")
	}
	l := newLAN(t)
	home, c := l.machine(2), stoppedCluster(t, "")
	home.serve(c, "--bind-address", home.address, "--no-node")
	s := newSession(t, c)
	m := l.machine(1)
	m.resetAfterwards()
	joined := m.join(append(s.invitation(), "--node-name", secondNode)...)
	m.loadImages()
	s.deploys("web", 1)
	before := s.pods("app=web")[0]

	c.terminate(t)
	l.readdress(home, "10.247.8.212")
	home.serve(c, "--bind-address", home.address, "--no-node")
	if err := joined.cmd.Process.Kill(); err != nil { // nsenter has become kindred
		t.Fatal(err)
	}
	<-joined.done
	m.join("https://" + home.address + ":6443")
	s.scales("web", 2)
	for _, after := range s.pods("app=web") {
		if after.Name == before.Name && (after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount > 0) {
			t.Errorf("the pod was replaced or restarted: %v", after.Status.ContainerStatuses)
		}
	}
	if r := s.try("logs", before.Name); r.code != 0 {
		t.Errorf("the server does not reach the node's agent: %s", r.err)
	}
}
