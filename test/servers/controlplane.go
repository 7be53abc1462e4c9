// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Ports are upstream's, because the cluster has its own address.
const (
	apiserverPort    = 6443
	kubeletPort      = 10250
	proxyPort        = 10256
	proxyMetricsPort = 10249
)

// serviceAddress is the first address of serviceCIDR, used by the Service "kubernetes".
const serviceAddress = "10.96.0.1"

// certificates are the certificates of the parts of a cluster.
type certificates struct {
	authority *authority
	// apiserver and kubelet are servers. The API server authenticates to kubelets with
	// kubeletClient, and to extension API servers with proxyClient.
	apiserver, kubelet, kubeletClient, proxyClient credential
	// tokens is the key that signs tokens of service accounts.
	tokens credential
	// The kubeconfigs.
	admin, controllerManager, scheduler, node, proxy string
}

// proxyClientName is the only identity from which extension API servers accept user names.
const proxyClientName = "front-proxy-client"

// newCertificates issues all certificates of a cluster with servers at an address.
func newCertificates(dir, node string, address netip.Addr) (c certificates, err error) {
	if c.authority, err = newAuthority(dir); err != nil {
		return c, err
	}
	ip := net.IP(address.AsSlice())
	for _, each := range []struct {
		file       string
		credential *credential
		identity
	}{
		{"apiserver", &c.apiserver, identity{
			name:  "kube-apiserver",
			hosts: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
			ips:   []net.IP{ip, net.ParseIP(serviceAddress)},
		}},
		{"kubelet", &c.kubelet, identity{name: "system:node:" + node, groups: []string{"system:nodes"}, hosts: []string{node}, ips: []net.IP{ip}}},
		{"apiserver-kubelet-client", &c.kubeletClient, identity{name: "kube-apiserver-kubelet-client", groups: []string{adminGroup}}},
		{"front-proxy-client", &c.proxyClient, identity{name: proxyClientName}},
		{"service-accounts", &c.tokens, identity{name: "service-accounts"}},
	} {
		if *each.credential, err = c.authority.issue(each.file, each.identity); err != nil {
			return c, err
		}
	}
	server := "https://" + at(address, apiserverPort)
	for _, each := range []struct {
		file string
		path *string
		identity
	}{
		{"admin", &c.admin, identity{name: admin, groups: []string{adminGroup}}},
		{"controller-manager", &c.controllerManager, identity{name: "system:kube-controller-manager"}},
		{"scheduler", &c.scheduler, identity{name: "system:kube-scheduler"}},
		{"node", &c.node, identity{name: "system:node:" + node, groups: []string{"system:nodes"}}},
		{"proxy", &c.proxy, identity{name: "system:kube-proxy"}},
	} {
		if *each.path, err = c.authority.kubeconfig(each.file, server, each.identity); err != nil {
			return c, err
		}
	}
	return c, nil
}

func at(address netip.Addr, port int) string {
	return net.JoinHostPort(address.String(), strconv.Itoa(port))
}

// apiserverFlags returns the flags of every API server in this package. tokens is the key of
// service account tokens, clients the authority of client certificates.
func apiserverFlags(etcd, clients, tokens string, admission ...string) []string {
	return []string{
		"--etcd-servers=" + etcd,
		"--client-ca-file=" + clients,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=" + strings.Join(admission, ","),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + tokens,
		"--service-account-signing-key-file=" + tokens,
		"--allow-privileged=true",
	}
}

// apiserverFlags returns the flags of a cluster's API server, as kubeadm sets them.
func (c certificates) apiserverFlags(etcd string, address netip.Addr) []string {
	ca := c.authority.files.certificate
	return append(apiserverFlags(etcd, ca, c.tokens.key, "NodeRestriction"),
		"--bind-address="+address.String(),
		"--secure-port="+strconv.Itoa(apiserverPort),
		"--advertise-address="+address.String(),
		"--tls-cert-file="+c.apiserver.certificate,
		"--tls-private-key-file="+c.apiserver.key,
		"--kubelet-certificate-authority="+ca,
		"--kubelet-client-certificate="+c.kubeletClient.certificate,
		"--kubelet-client-key="+c.kubeletClient.key,
		// The node's name need not resolve.
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file="+ca,
		"--requestheader-allowed-names="+proxyClientName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+c.proxyClient.certificate,
		"--proxy-client-key-file="+c.proxyClient.key,
	)
}

// controllerManagerFlags returns the flags of a cluster's controller manager.
func (c certificates) controllerManagerFlags(port string, n node) []string {
	return append(clientFlags(c.controllerManager, port),
		"--flex-volume-plugin-dir="+n.volumePlugins(),
		"--service-account-private-key-file="+c.tokens.key,
		"--root-ca-file="+c.authority.files.certificate,
		"--cluster-signing-cert-file="+c.authority.files.certificate,
		"--cluster-signing-key-file="+c.authority.files.key,
		"--use-service-account-credentials=true",
	)
}

// schedulerFlags returns the flags of a cluster's scheduler.
func (c certificates) schedulerFlags(port string) []string { return clientFlags(c.scheduler, port) }

// clientFlags are the common flags of controller manager and scheduler: no leader election, and
// health and metrics with authentication by the API server.
func clientFlags(kubeconfig, port string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + port,
		"--leader-elect=false",
	}
}
