// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
)

// patience is how long a machine waits for its first certificate.
const patience = time.Minute

// clientPair is the name of the files of the node's client certificate.
const clientPair = "node-client"

// subject is who a node is in its certificates.
func subject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{user.NodesGroup}}
}

func openStore(dir, pair string) (certificate.FileStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return certificate.NewFileStoreWithLogger(klog.Background().V(3), pair, dir, dir, "", "")
}

// HasCertificate reports whether a directory has a valid client certificate of a node.
func HasCertificate(dir, node string, now time.Time) (bool, error) {
	store, err := openStore(dir, clientPair)
	if err != nil {
		return false, err
	}
	current, err := store.Current()
	if err != nil {
		return false, nil // there is none
	}
	if current.Leaf.Subject.CommonName != subject(node).CommonName {
		return false, fmt.Errorf("the certificate in %s is of %s, not of %s", dir, current.Leaf.Subject.CommonName, subject(node).CommonName)
	}
	return now.Before(current.Leaf.NotAfter), nil
}

// Request gets the first client certificate of a node with a bootstrap token, and stores it in a directory.
func Request(ctx context.Context, i Invitation, ca []byte, dir, node string) error {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: i.Server, BearerToken: i.Token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	certPEM, err := sign(ctx, client, key, node)
	if err != nil {
		return err
	}
	store, err := openStore(dir, clientPair)
	if err != nil {
		return err
	}
	_, err = store.Update(certPEM, keyPEM)
	return err
}

// sign has the cluster sign a client certificate.
func sign(ctx context.Context, client kubernetes.Interface, key crypto.Signer, node string) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject(node)}, key)
	if err != nil {
		return nil, err
	}
	usages := certificate.DefaultKubeletClientGetUsages(key)
	name, uid, err := csr.RequestCertificate(client, encodeRequest(der), "", certificatesv1.KubeAPIServerClientKubeletSignerName, nil, usages, key)
	if apierrors.IsUnauthorized(err) {
		return nil, pending{fmt.Errorf("request a certificate: %w", err)} // cluster-info may be signed before each server knows the token
	}
	if err != nil {
		return nil, fmt.Errorf("request a certificate: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	signed, err := csr.WaitForCertificate(ctx, client, name, uid)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("the cluster has not approved the CertificateSigningRequest %s within %v; \"kubectl certificate approve %s\" does", name, patience, name)
	}
	return signed, err
}
