// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred/test/servers"
)

// The suite of node agents (test/e2e_node) usually starts an API server and a kubelet itself. With --start-services=false it
// takes those that run: a cluster of one node. It asks the node's agent at its usual ports and below its usual directory, reads
// and writes its configuration in its own working directory, and looks for its log among the reports. It restarts the agent with
// sudo and systemctl, for which unit.go stands in.

// kubeletDir is the directory in which the suite looks for the files of the agent. It is a link to the agent's own directory, in a
// file system of furnish.
const kubeletDir = "/var/lib/kubelet"

// nodeConfig is the agent's first configuration: that of the suite's own start of a kubelet (e2e_node/services). %s is the
// directory of static pods.
const nodeConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
readOnlyPort: 10255
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupRoot: /
staticPodPath: %s
volumeStatsAggPeriod: 10s
fileCheckFrequency: 10s
evictionPressureTransitionPeriod: 30s
evictionHard: {memory.available: 250Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%}
evictionMinimumReclaim: {nodefs.available: 1%%, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 99
imageGCLowThresholdPercent: 98
`

// nodeCluster starts a cluster of one node, whose agent the suite of node agents finds and restarts.
type nodeCluster struct{ kindred }

func (n nodeCluster) start(ctx context.Context, dir string) (cluster, error) {
	nothing := cluster{stop: func() ([]string, error) { return nil, nil }}
	if !isIsolated() {
		return nothing, errors.New("the suite of node agents needs namespaces of its own")
	}
	disk, err := mountDisk(ctx, dir)
	if err != nil {
		return nothing, fmt.Errorf("make the node's disk: %w", err)
	}
	c, err := n.startOn(ctx, disk.dir)
	removed := c.stop
	c.stop = func() ([]string, error) {
		logs, err := removed()
		logs, unmounted := disk.unmount(logs)
		return logs, errors.Join(err, unmounted)
	}
	return c, err
}

// startOn starts the cluster in dir.
func (n nodeCluster) startOn(ctx context.Context, dir string) (cluster, error) {
	nothing := cluster{stop: func() ([]string, error) { return nil, nil }}
	pods, config, drops := filepath.Join(dir, "static-pods"), filepath.Join(dir, "kubelet-config"), filepath.Join(dir, "kubelet.conf.d")
	if err := errors.Join(os.Mkdir(pods, 0o755), os.Mkdir(drops, 0o755)); err != nil {
		return nothing, err
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, nodeConfig, pods), 0o644); err != nil {
		return nothing, err
	}
	agent := &unit{
		kindred: servers.Kindred{Binary: n.binary, Env: n.env()}, dir: dir,
		agent: []string{"--kubelet-dir", kubeletDir, "--kubelet-config", config, "--kubelet-config-dir", drops},
	}
	err := agent.start(ctx)
	c := n.cluster(ctx, dir, agent.server, err)
	if err != nil {
		return c, err
	}
	removed := c.stop
	c.stop = func() ([]string, error) {
		agent.close()
		return removed()
	}
	var endpoint string
	// The API is ready before the node.
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		endpoint, err = servers.RuntimeEndpoint(agent.server.Data)
		return err == nil, nil
	}); err != nil {
		return c, fmt.Errorf("the node did not start: %w", err)
	}
	token, err := adminToken(ctx, agent.server.Config)
	if err != nil {
		return c, err
	}
	if err := errors.Join(keepUntainted(ctx, agent.server.Config), agent.serve()); err != nil {
		return c, err
	}
	c.dir, c.env = dir, agent.env()
	c.flags = []string{
		"--start-services=false", "--prepull-images=false", "--system-spec-file=" + filepath.Join(dir, "system.yaml"),
		"--host=" + agent.server.Config.Host, "--bearer-token=" + token, "--report-dir=" + dir,
		"--container-runtime-endpoint=" + endpoint,
	}
	return c, errors.Join(
		// Without a specification, the suite checks the machine against one that asks for kernel options by name.
		os.WriteFile(filepath.Join(dir, "system.yaml"), []byte("os: Linux\n"), 0o644),
		os.Symlink(filepath.Join(agent.server.Data, "logs", "kindred.log"), filepath.Join(dir, "kubelet.log")),
	)
}

// adminToken returns a token that may do everything. The suite authenticates with a token.
func adminToken(ctx context.Context, config *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	account := metav1.ObjectMeta{Name: "e2e-node", Namespace: metav1.NamespaceSystem}
	if _, err := client.CoreV1().ServiceAccounts(account.Namespace).Create(ctx, &v1.ServiceAccount{ObjectMeta: account}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	request, err := client.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(24 * 60 * 60))},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}
