// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// dnsName is the name of the Service of a cluster's DNS server, by which tools find it.
	dnsName = "kube-dns"
	// dnsAddress is the address of that Service, in serviceCIDR, and the one that installers use.
	dnsAddress   = "10.96.0.10"
	dnsPort      = 53
	dnsReadyPort = 8181
)

// buildDNS builds CoreDNS, as [BuildUpstream] does. It has a module of its own, because it requires
// other versions of the libraries than Kubernetes.
func buildDNS(ctx context.Context, dir string) (string, error) {
	program := Program{Name: "coredns", Package: "github.com/coredns/coredns", LDFlags: "-s -w"}
	return program.Build(ctx, filepath.Join(dir, "coredns"), filepath.Join(dir, "bin"))
}

// corefile returns CoreDNS's configuration: the plugins and settings of upstream's manifest that
// answer queries, on the node's address.
func corefile(kubeconfig string, address netip.Addr) string {
	return fmt.Sprintf(`.:%[2]d {
    bind %[1]s
    errors
    ready %[3]s
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %[4]s
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    forward . /etc/resolv.conf
    cache 30
}
`, address, dnsPort, at(address, dnsReadyPort), kubeconfig)
}

// startDNS starts CoreDNS and the Service by which pods reach it. Upstream's manifest runs it in
// pods; here it is a process, as the rest of the cluster, and answers before the first pod runs.
func (c *Cluster) startDNS(ctx context.Context) error {
	if err := c.createDNSService(ctx); err != nil {
		return err
	}
	file := c.node.file("Corefile")
	if err := os.WriteFile(file, []byte(corefile(c.Kubeconfig, c.node.address)), 0o644); err != nil {
		return err
	}
	return c.run(ctx, "coredns", c.programs.dns, func(ctx context.Context) error {
		return checkHealth(ctx, http.DefaultClient, "http://"+at(c.node.address, dnsReadyPort)+"/ready")
	}, "-conf", file)
}

// createDNSService creates the Service, whose only endpoint is the node.
func (c *Cluster) createDNSService(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: dnsName, Labels: map[string]string{"k8s-app": dnsName}},
		Spec:       corev1.ServiceSpec{ClusterIP: dnsAddress},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: dnsName, Labels: map[string]string{discoveryv1.LabelServiceName: dnsName}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{c.node.address.String()}}},
	}
	for name, protocol := range map[string]corev1.Protocol{"dns": corev1.ProtocolUDP, "dns-tcp": corev1.ProtocolTCP} {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: name, Protocol: protocol, Port: dnsPort})
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: new(int32(dnsPort))})
	}
	if _, err := client.CoreV1().Services(metav1.NamespaceSystem).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Create(ctx, slice, metav1.CreateOptions{})
	return err
}
