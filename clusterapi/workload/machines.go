// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Machines are the machines that join clusters. It implements bootstrap.Workload.
type Machines struct {
	Management client.Reader
	// Program is the path of kindred.
	Program string
}

// answerLimit limits the time until the API of a cluster answers.
const answerLimit = 2 * time.Second

// Answers returns an error if the API of a cluster does not answer.
func (m *Machines) Answers(ctx context.Context, cluster *clusterv1.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return answers(ctx, m.Management, cluster)
}

// Authority returns the hash of the key of the cluster's authority, which its kubeconfig has before the first server answers.
func (m *Machines) Authority(ctx context.Context, cluster *clusterv1.Cluster) (string, error) {
	text, err := kubeconfig.FromSecret(ctx, m.Management, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return "", err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return "", fmt.Errorf("the kubeconfig of the cluster: %w", err)
	}
	hash, err := HashOf(config.CAData)
	if err != nil {
		return "", fmt.Errorf("the cluster's authority in its kubeconfig: %w", err)
	}
	return hash, nil
}

// Admit lets machines join a cluster with a token for some time.
func (m *Machines) Admit(ctx context.Context, cluster *clusterv1.Cluster, token string, ttl time.Duration) error {
	config, err := kubeconfig.FromSecret(ctx, m.Management, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "admit-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	endpoint := cluster.Spec.ControlPlaneEndpoint
	_, err = exec.CommandContext(ctx, m.Program, "token", "create", token, "--kubeconfig", file, "--ttl", ttl.String(), "--url", "https://"+endpoint.String()).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return fmt.Errorf("kindred token create: %s", strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
