// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Servers are the servers of clusters. It implements controlplane.Workload.
type Servers struct {
	Management client.Reader
}

// Answers returns an error if the API of a cluster does not answer.
func (s *Servers) Answers(ctx context.Context, cluster *clusterv1.Cluster) error {
	return answers(ctx, s.Management, cluster)
}

// leaseNamespace and leasePrefix name the Lease of a server.
const (
	leaseNamespace = metav1.NamespaceSystem
	leasePrefix    = "kindred-server-"
)

// etcdPort is the port of the members of etcd for clients.
const etcdPort = "2379"

// endLimit limits the wait for the end of a server's etcd after its removal.
const endLimit = 5 * time.Second

// Leave removes the server at an address from the cluster, as "kindred server remove" does: its member from etcd, and its Lease.
func (s *Servers) Leave(ctx context.Context, cluster *clusterv1.Cluster, address string, servers []string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*requestLimit)
	defer cancel()
	name, err := s.leaveEtcd(ctx, cluster, address, servers)
	if err != nil || name == "" {
		return err
	}
	// Until its etcd has ended, the server renews its Lease.
	if err := ended(ctx, net.JoinHostPort(address, etcdPort)); err != nil {
		return err
	}
	api, err := Client(ctx, s.Management, cluster)
	if err != nil {
		return err
	}
	// The endpoint may still lead to the server that leaves, which has no store any more.
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := api.CoordinationV1().Leases(leaseNamespace).Delete(ctx, leasePrefix+name, metav1.DeleteOptions{})
		return err == nil || apierrors.IsNotFound(err), nil
	})
}

// ended waits until nothing accepts connections at an address, for a limited time: what does not answer has ended as well.
func ended(ctx context.Context, address string) error {
	dialer := &net.Dialer{Timeout: time.Second}
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, endLimit, true, func(ctx context.Context) (bool, error) {
		connection, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return true, nil
		}
		return false, connection.Close()
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil
	}
	return err
}

// leaveEtcd removes the member of a server from etcd, and returns its name; none if it is no member any more.
func (s *Servers) leaveEtcd(ctx context.Context, cluster *clusterv1.Cluster, address string, servers []string) (string, error) {
	if len(servers) == 0 {
		return "", errors.New("there is no other server")
	}
	config, err := s.etcdTLS(ctx, cluster)
	if err != nil {
		return "", err
	}
	var endpoints []string
	for _, server := range servers {
		endpoints = append(endpoints, "https://"+net.JoinHostPort(server, etcdPort))
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: config, DialTimeout: requestLimit, Context: ctx})
	if err != nil {
		return "", fmt.Errorf("connect to etcd: %w", err)
	}
	defer etcd.Close()
	found, err := etcd.MemberList(ctx)
	if err != nil {
		return "", fmt.Errorf("the members of etcd: %w", err)
	}
	for _, member := range found.Members {
		if !slices.ContainsFunc(member.PeerURLs, func(peer string) bool { return isAt(peer, address) }) {
			continue
		}
		if _, err := etcd.MemberRemove(ctx, member.ID); err != nil {
			return "", fmt.Errorf("remove the member %s of etcd: %w", member.Name, err)
		}
		return member.Name, nil
	}
	return "", nil
}

// isAt reports whether a URL has an address.
func isAt(peer, address string) bool {
	u, err := url.Parse(peer)
	if err != nil {
		return false
	}
	a, errA := netip.ParseAddr(u.Hostname())
	b, errB := netip.ParseAddr(address)
	return errA == nil && errB == nil && a == b
}

// etcdTLS issues a certificate for the cluster's etcd.
func (s *Servers) etcdTLS(ctx context.Context, cluster *clusterv1.Cluster) (*tls.Config, error) {
	authority := &corev1.Secret{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, secret.EtcdCA)}
	if err := s.Management.Get(ctx, key, authority); err != nil {
		return nil, fmt.Errorf("etcd's authority: %w", err)
	}
	ca, err := certs.DecodeCertPEM(authority.Data[secret.TLSCrtDataName])
	if err != nil {
		return nil, fmt.Errorf("etcd's authority: %w", err)
	}
	signer, err := certs.DecodePrivateKeyPEM(authority.Data[secret.TLSKeyDataName])
	if err != nil {
		return nil, fmt.Errorf("the key of etcd's authority: %w", err)
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	certificate, err := (&certs.Config{CommonName: "kindred-control-plane", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}).NewSignedCert(own, ca, signer)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool,
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate.Raw}, PrivateKey: own, Leaf: certificate}},
	}, nil
}
