// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload is what the providers do in the clusters that they make.
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

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
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

// Invite makes a token of a cluster with which a machine can join it, and returns the arguments of "kindred" that do.
func Invite(ctx context.Context, management client.Reader, cluster *clusterv1.Cluster, program string, ttl time.Duration) ([]string, error) {
	config, err := kubeconfig.FromSecret(ctx, management, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "invite-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	endpoint := cluster.Spec.ControlPlaneEndpoint
	cmd := exec.CommandContext(ctx, program, "token", "create", "--kubeconfig", file, "--ttl", ttl.String(), "--url", "https://"+endpoint.String())
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("kindred token create: %s", strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return nil, err
	}
	return joinLine(string(out))
}

// joinLine returns the arguments of the line that makes a machine join, which "kindred token create" prints.
func joinLine(out string) ([]string, error) {
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "kindred" && fields[1] == "join" {
			return fields[1:], nil
		}
	}
	return nil, fmt.Errorf("kindred token create printed no line that joins: %q", out)
}
