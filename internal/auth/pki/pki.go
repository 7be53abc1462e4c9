// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
)

// FrontProxyClientName is the only common name that may assert other users' identities: the value
// of requestheader-allowed-names.
const FrontProxyClientName = "front-proxy-client"

// etcdAuthority is the name of the files of etcd's authority.
const etcdAuthority = "etcd-ca"

// etcdMember is the name of the files of the certificate of this machine's etcd.
const etcdMember = "etcd-member"

var (
	serverAuth = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	clientAuth = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
)

// PKI is the secret material of one cluster.
type PKI struct {
	// Cluster signs all serving and client certificates, except the front proxy's.
	Cluster *Authority
	// FrontProxy signs the certificate with which the aggregator asserts users' identities.
	FrontProxy *Authority
	// ServiceAccountKey signs service account tokens.
	ServiceAccountKey *ecdsa.PrivateKey

	dir string

	mu   sync.Mutex
	kept []*Kept
}

// Open reads the authorities and keys in dir and creates those that are missing. An existing
// authority that cannot be used is an error; nothing is overwritten.
func Open(dir string, clock clock.PassiveClock) (*PKI, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create certificate directory: %w", err)
	}
	cluster, err := openAuthority(dir, "ca", "kindred-ca", clock)
	if err != nil {
		return nil, err
	}
	frontProxy, err := openAuthority(dir, "front-proxy-ca", "kindred-front-proxy-ca", clock)
	if err != nil {
		return nil, err
	}
	// The public key is derived from the private one: nothing on disk depends on it.
	key, err := openKey(filepath.Join(dir, "sa.key"), "")
	if err != nil {
		return nil, err
	}
	return &PKI{Cluster: cluster, FrontProxy: frontProxy, ServiceAccountKey: key, dir: dir}, nil
}

// APIServer returns the API server's serving certificate for the given names.
func (p *PKI) APIServer(names Names) (*Pair, error) {
	return p.Cluster.obtain(p.dir, leaf{
		file:    "apiserver",
		subject: pkix.Name{CommonName: "kube-apiserver"},
		usages:  serverAuth,
		names:   names,
	})
}

// Admin returns the administrator's client certificate. The user is in system:masters, which every
// authorizer allows.
func (p *PKI) Admin() (*Pair, error) {
	return p.client("admin", pkix.Name{CommonName: "kubernetes-admin", Organization: []string{user.SystemPrivilegedGroup}})
}

// KubeletClient returns the client certificate with which the API server calls
// the nodes (logs, exec, attach, port-forward).
func (p *PKI) KubeletClient() (*Pair, error) {
	return p.client("apiserver-kubelet-client", pkix.Name{
		CommonName: "kube-apiserver-kubelet-client", Organization: []string{user.SystemPrivilegedGroup},
	})
}

// Client returns a client certificate for any user, such as
// system:kube-controller-manager.
func (p *PKI) Client(name string, groups ...string) (*Pair, error) {
	return p.client("client-"+fileName(name), pkix.Name{CommonName: name, Organization: groups})
}

// Node returns the client certificate of a node's agent, in the form that the
// node authorizer recognizes.
func (p *PKI) Node(name string) (*Pair, error) {
	return p.client("node-"+fileName(name), nodeSubject(name))
}

// NodeServing returns the serving certificate of a node's agent.
func (p *PKI) NodeServing(name string, names Names) (*Pair, error) {
	return p.Cluster.obtain(p.dir, leaf{
		file:    "kubelet-serving-" + fileName(name),
		subject: nodeSubject(name),
		usages:  serverAuth,
		names:   names,
	})
}

// EtcdMember returns the authority of the members and clients of the embedded etcd, if it is one of a cluster, and the certificate of
// this member for the given names. Members connect to each other with it as well.
func (p *PKI) EtcdMember(names Names) (authority *Authority, member *Kept, err error) {
	if authority, err = openAuthority(p.dir, etcdAuthority, "kindred-etcd-ca", p.Cluster.clock); err != nil {
		return nil, nil, err
	}
	member, err = p.Keep(func() (*Pair, error) {
		return authority.obtain(p.dir, leaf{
			file:    etcdMember,
			subject: pkix.Name{CommonName: "kindred-etcd"},
			usages:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			names:   names,
		})
	}, nil)
	return authority, member, err
}

// EtcdFiles returns the files in a directory with which programs on this machine connect to the members of etcd.
func EtcdFiles(dir string) (ca, cert, key string) {
	return filepath.Join(dir, etcdAuthority+".crt"), filepath.Join(dir, etcdMember+".crt"), filepath.Join(dir, etcdMember+".key")
}

// FrontProxyClient returns the client certificate with which the aggregator
// forwards requests to extension API servers.
func (p *PKI) FrontProxyClient() (*Pair, error) {
	return p.FrontProxy.obtain(p.dir, leaf{
		file:    "front-proxy-client",
		subject: pkix.Name{CommonName: FrontProxyClientName},
		usages:  clientAuth,
	})
}

func (p *PKI) client(file string, subject pkix.Name) (*Pair, error) {
	return p.Cluster.obtain(p.dir, leaf{file: file, subject: subject, usages: clientAuth})
}

func nodeSubject(name string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + name, Organization: []string{user.NodesGroup}}
}

// fileName returns the file name for a user or node name: the name itself if it is a DNS subdomain
// (as node names are), else an underscore and a digest. No subdomain has an underscore, so file
// names do not leave the directory and do not collide.
func fileName(name string) string {
	if len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	digest := sha256.Sum256([]byte(name))
	return "_" + hex.EncodeToString(digest[:16])
}
