// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kindred-project/kindred/internal/durable"
)

// Kubeconfig is a client configuration for one cluster and one user.
type Kubeconfig struct {
	// Name names the cluster and the context; the user is User@Name.
	Name string
	// Server is the API server's URL.
	Server string
	// CA verifies the server.
	CA []byte
	// User is the name under which the credentials are stored.
	User string
	// Credentials is the user's client certificate.
	Credentials *Pair
}

// Write replaces the kubeconfig at path, readable only by its owner. The file is self-contained and
// may be copied.
func (k Kubeconfig) Write(path string) error {
	data, err := clientcmd.Write(k.config())
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create directory of kubeconfig: %w", err)
	}
	// Each start of the cluster writes it again.
	return durable.WriteCache(path, data, private)
}

func (k Kubeconfig) config() clientcmdapi.Config {
	user := k.User + "@" + k.Name
	return clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			k.Name: {Server: k.Server, CertificateAuthorityData: k.CA},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			user: {ClientCertificateData: k.Credentials.CertPEM, ClientKeyData: k.Credentials.KeyPEM},
		},
		Contexts: map[string]*clientcmdapi.Context{
			k.Name: {Cluster: k.Name, AuthInfo: user},
		},
		CurrentContext: k.Name,
	}
}
