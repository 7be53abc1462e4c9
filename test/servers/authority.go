// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// lifetime is the validity of the certificates, longer than any run of the suite.
const lifetime = 30 * 24 * time.Hour

// authority issues the certificates of the parts of a cluster.
type authority struct {
	dir         string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	// files are the paths of the key and the certificate.
	files credential
}

// credential are the files of a certificate and its key.
type credential struct{ certificate, key string }

// identity is the subject of a certificate. It is a server's if it has hosts or addresses,
// otherwise a client's.
type identity struct {
	name   string
	groups []string
	hosts  []string
	ips    []net.IP
}

// newAuthority returns an authority that keeps its files in dir.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "kubernetes"}, key)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key, certificate: certificate}
	a.files, err = a.write("ca", certificate, key)
	return a, err
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// issue writes a certificate and its key to files with the given name.
func (a *authority) issue(file string, who identity) (credential, error) {
	key, err := newKey()
	if err != nil {
		return credential{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return credential{}, err
	}
	usage := x509.ExtKeyUsageClientAuth
	if len(who.hosts)+len(who.ips) > 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	template := x509.Certificate{
		Subject:      pkix.Name{CommonName: who.name, Organization: who.groups},
		SerialNumber: serial,
		DNSNames:     who.hosts,
		IPAddresses:  who.ips,
		NotBefore:    a.certificate.NotBefore,
		NotAfter:     time.Now().Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.certificate, key.Public(), a.key)
	if err != nil {
		return credential{}, fmt.Errorf("certificate of %s: %w", who.name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return credential{}, err
	}
	return a.write(file, certificate, key)
}

func (a *authority) write(file string, certificate *x509.Certificate, key *ecdsa.PrivateKey) (credential, error) {
	c := credential{certificate: filepath.Join(a.dir, file+".crt"), key: filepath.Join(a.dir, file+".key")}
	certPEM, err := cert.EncodeCertificates(certificate)
	if err != nil {
		return credential{}, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return credential{}, err
	}
	return c, errors.Join(os.WriteFile(c.certificate, certPEM, 0o600), os.WriteFile(c.key, keyPEM, 0o600))
}

// kubeconfig issues a client certificate and writes a kubeconfig for the API server.
func (a *authority) kubeconfig(file, server string, who identity) (string, error) {
	client, err := a.issue(file, who)
	if err != nil {
		return "", err
	}
	path := filepath.Join(a.dir, file+".kubeconfig")
	return path, writeKubeconfig(path, who.name,
		clientcmdapi.Cluster{Server: server, CertificateAuthority: a.files.certificate},
		clientcmdapi.AuthInfo{ClientCertificate: client.certificate, ClientKey: client.key})
}

// writeKubeconfig writes a kubeconfig for a user of a cluster.
func writeKubeconfig(path, name string, cluster clientcmdapi.Cluster, user clientcmdapi.AuthInfo) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["upstream"], config.AuthInfos[name] = &cluster, &user
	config.Contexts["upstream"] = &clientcmdapi.Context{Cluster: "upstream", AuthInfo: name}
	config.CurrentContext = "upstream"
	// Specs pass the file to kubectl in other directories and read it themselves, so it contains
	// the certificates.
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return err
	}
	return clientcmd.WriteToFile(*config, path)
}
