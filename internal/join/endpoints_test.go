// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestDial: a connection goes to the server that accepted the last one, to another one if that is lost, and to another one if the
// last connection was of no use.
func TestDial(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	a, b := accepting(t), accepting(t)
	e := newEndpoints(c, a.Addr().String(), b.Addr().String())
	dial := func() string {
		c.Step(time.Minute)
		connection, err := e.dial(t.Context(), "tcp", "whatever:1")
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		return connection.RemoteAddr().String()
	}
	if first, again := dial(), dial(); first != a.Addr().String() || again != first {
		t.Errorf("connected to %s and %s, not to the first server %s", first, again, a.Addr())
	}
	_ = a.Close()
	if other, again := dial(), dial(); other != b.Addr().String() || again != other {
		t.Errorf("connected to %s and %s, not to the server that is left, %s", other, again, b.Addr())
	}
	_ = b.Close()
	if connection, err := e.dial(t.Context(), "tcp", "whatever:1"); err == nil {
		t.Errorf("connected to %s", connection.RemoteAddr())
	}

	d := accepting(t)
	e.learn(a.Addr().String(), []string{b.Addr().String(), d.Addr().String()})
	if again := dial(); again != d.Addr().String() {
		t.Errorf("connected to %s, not to the new server %s", again, d.Addr())
	}
	if order := e.next(); order[0] == d.Addr().String() || len(order) != 3 {
		t.Errorf("right after a connection to %s, the order is %v", d.Addr(), order)
	}
}

func accepting(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestLearn: a node learns the servers from the EndpointSlices of the Service kubernetes alone, keeps the address that it was given,
// and has them after a restart.
func TestLearn(t *testing.T) {
	dir := t.TempDir()
	member := Membership{Server: "https://lb.example", Node: "n", CA: selfSigned(t, dir)}
	credentials := credentialsIn(t, member, dir)
	kubernetes := slice("default", "kubernetes", "10.0.0.1", "10.0.0.2")
	for name, other := range map[string]*discoveryv1.EndpointSlice{
		"another Service": slice("default", "web", "10.0.0.9"), "another namespace": slice("kube-system", "kubernetes", "10.0.0.9"),
		"no endpoints": slice("default", "kubernetes"),
	} {
		if _, changed := credentials.Learn(other); changed {
			t.Errorf("%s: learnt %v", name, credentials.servers.next())
		}
	}
	learnt, changed := credentials.Learn(kubernetes)
	if !changed || !slices.Equal(learnt.Servers, []string{"10.0.0.1:6443", "10.0.0.2:6443"}) {
		t.Fatalf("learnt %+v, %v", learnt, changed)
	}
	if _, changed := credentials.Learn(kubernetes); changed {
		t.Error("learnt the same again")
	}
	path := filepath.Join(dir, "membership")
	if err := learnt.Write(path); err != nil {
		t.Fatal(err)
	}
	stored, err := ReadMembership(path)
	if err != nil {
		t.Fatal(err)
	}
	if known := credentialsIn(t, stored, dir).servers.next(); !slices.Equal(known, []string{"lb.example:443", "10.0.0.1:6443", "10.0.0.2:6443"}) {
		t.Errorf("after a restart the servers are %v", known)
	}
	if _, changed := credentials.Learn(slice("default", "kubernetes", "10.0.0.2")); !changed || !slices.Equal(credentials.servers.next(), []string{"lb.example:443", "10.0.0.2:6443"}) {
		t.Errorf("after a server has left: %v", credentials.servers.next())
	}
}

func slice(namespace, service string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Ports:      []discoveryv1.EndpointPort{{Port: new(int32(6443))}},
	}
	for _, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	return s
}

// selfSigned stores a certificate as that of the node, and returns it as its authority.
func selfSigned(t *testing.T, dir string) []byte {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("n", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	store, err := openStore(dir, clientPair)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Update(certificate, key); err != nil {
		t.Fatal(err)
	}
	return certificate
}

func credentialsIn(t *testing.T, member Membership, dir string) *Credentials {
	t.Helper()
	credentials, err := Open(member, dir, clocktesting.NewFakeClock(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	return credentials
}
