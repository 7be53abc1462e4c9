// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// newServer returns a server whose informers have the objects, and which forwards to the resolvers.
func newServer(t testing.TB, c clock.PassiveClock, resolvers []string, objects ...metav1.Object) *Server {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	writeResolvConf(t, conf, resolvers...)
	shared := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	s, err := New(Options{Informers: shared, Domain: "cluster.local", ResolvConf: conf, Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	s.zone.records.synced = nil // the objects are added without an API server
	for _, object := range objects {
		add(t, s, object)
	}
	return s
}

func writeResolvConf(t testing.TB, path string, resolvers ...string) {
	t.Helper()
	var text strings.Builder
	for _, address := range resolvers {
		fmt.Fprintf(&text, "nameserver %s\n", address)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func add(t testing.TB, s *Server, object metav1.Object) {
	t.Helper()
	indexer := s.zone.records.slices
	switch object.(type) {
	case *corev1.Namespace:
		indexer = s.zone.records.namespaces
	case *corev1.Service:
		indexer = s.zone.records.services
	}
	if err := indexer.Add(object); err != nil {
		t.Fatal(err)
	}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func service(namespace, name string, clusterIPs []string, ports ...corev1.ServicePort) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.Spec.Type, s.Spec.ClusterIPs, s.Spec.Ports = corev1.ServiceTypeClusterIP, clusterIPs, ports
	if len(clusterIPs) > 0 {
		s.Spec.ClusterIP = clusterIPs[0]
	}
	return s
}

func external(namespace, name, host string) *corev1.Service {
	s := service(namespace, name, nil)
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, host
	return s
}

func port(name string, protocol corev1.Protocol, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: protocol, Port: number}
}

func slice(service *corev1.Service, name string, ports []discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service.Name},
		},
		Ports: ports, Endpoints: endpoints,
	}
}

func endpointPort(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: ptr.To(name), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(number)}
}

func endpoint(hostname string, ready *bool, addresses ...string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
	if hostname != "" {
		e.Hostname = ptr.To(hostname)
	}
	return e
}

// query returns a request as a client sends it.
func query(name, rrtype string) *dns.Msg {
	return new(dns.Msg).SetQuestion(name, dns.StringToType[rrtype])
}

// printed returns records as "name TTL type data", sorted, because their order is random.
func printed(records []dns.RR) []string {
	out := []string{}
	for _, record := range records {
		out = append(out, strings.Join(strings.Fields(strings.Replace(record.String(), "\tIN\t", "\t", 1)), " "))
	}
	slices.Sort(out)
	return out
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
