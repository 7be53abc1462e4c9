// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload is what the providers do in the clusters that they make.
package workload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// requestLimit limits each request to a cluster, so that one that does not answer delays no other.
const requestLimit = 10 * time.Second

// Client returns a client of a cluster, with the kubeconfig in its Secret.
func Client(ctx context.Context, management client.Reader, cluster *clusterv1.Cluster) (kubernetes.Interface, error) {
	config, err := kubeconfig.FromSecret(ctx, management, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return nil, err
	}
	rest, err := clientcmd.RESTConfigFromKubeConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of the cluster: %w", err)
	}
	rest.Timeout, rest.UserAgent = requestLimit, "kindred-cluster-api"
	return kubernetes.NewForConfig(rest)
}

// answers returns an error if the API of a cluster does not answer.
func answers(ctx context.Context, management client.Reader, cluster *clusterv1.Cluster) error {
	api, err := Client(ctx, management, cluster)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	return api.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// HashOf returns the hash of the key of an authority, as "kindred join --ca-hash" has it. ca are its certificates, in PEM.
func HashOf(ca []byte) (string, error) {
	certificates, err := cert.ParseCertsPEM(ca)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(certificates[0].RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}
