// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/test/servers"
)

const (
	// workloadRuns is the number of workload clusters, of which each is deleted before the next is made.
	workloadRuns = 3
	// workloadNodes is the number of nodes of a workload cluster.
	workloadNodes = 3
	// workloadLimit is the time that Cluster API may take to be ready, and that each cluster may take to be made and to be deleted.
	workloadLimit = 2 * time.Minute
	// managersOfRelease is the number of Deployments of a release: Cluster API's core and Kindred's three providers.
	managersOfRelease = 4
)

// workloadCluster returns the median time in seconds from "kubectl apply" of a Cluster from the release's template, with one server and two workers,
// until a pod runs on each node. Cluster API has its default limit of a reconciliation a second for each object.
func workloadCluster(ctx context.Context, b *bench) (float64, error) {
	w, err := b.startManagement(ctx)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	var took []time.Duration
	for i := range workloadRuns {
		one, err := w.measure(ctx, fmt.Sprintf("work-%d", i))
		if err != nil {
			return 0, err
		}
		fmt.Fprintf(os.Stderr, "  the nodes of a workload cluster are Ready after %.2f s, and a pod on each of them after %.2f s\n", one.nodes.Seconds(), one.pods.Seconds())
		took = append(took, one.pods)
	}
	return median(took).Seconds(), nil
}

// managementCluster is a cluster with Cluster API and Kindred's own providers.
type managementCluster struct {
	*cluster
	client  *kubernetes.Clientset
	release servers.KindredRelease
}

// startManagement writes a release and starts a cluster with it, whose machines are in a directory of their own.
func (b *bench) startManagement(ctx context.Context) (*managementCluster, error) {
	version, err := servers.KubernetesVersion(ctx, b.binary)
	if err != nil {
		return nil, err
	}
	release, err := servers.BuildKindredRelease(ctx, ".", b.binary, version, filepath.Join(b.scratch, "release"))
	if err != nil {
		return nil, fmt.Errorf("write a release: %w", err)
	}
	machines := filepath.Join(b.scratch, "machines")
	if err := os.Setenv("KINDRED_MACHINES_DIR", machines); err != nil { // a variable of the providers' manifests
		return nil, err
	}
	c, client, err := b.startWithClient(ctx, append(realNode, "--cluster-api", release.Dir)...)
	if err != nil {
		return nil, err
	}
	c.resetFlags = []string{"--machines-dir", machines}
	w := &managementCluster{c, client, release}
	if err := w.until(ctx, "Cluster API is ready", w.managersReady); err != nil {
		c.stop()
		return nil, err
	}
	return w, nil
}

// until polls until a condition holds, which returns why it does not.
func (w *managementCluster) until(ctx context.Context, what string, holds func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, workloadLimit)
	defer cancel()
	for {
		err := holds(ctx)
		if err == nil {
			return nil
		}
		if pause(ctx, probePause); ctx.Err() != nil {
			return fmt.Errorf("%s: %w: %w", what, ctx.Err(), err)
		}
	}
}

// managersReady returns an error unless all managers are available.
func (w *managementCluster) managersReady(ctx context.Context) error {
	all, err := w.client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	available := 0
	for _, d := range all.Items {
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue {
				available++
			}
		}
	}
	if available < managersOfRelease {
		return fmt.Errorf("%d of %d managers are available", available, managersOfRelease)
	}
	return nil
}

// workloadTimes are the times from the creation of a workload cluster until all its nodes are Ready, and until each runs a pod.
type workloadTimes struct {
	nodes, pods time.Duration
}

// measure makes a workload cluster and deletes it.
func (w *managementCluster) measure(ctx context.Context, name string) (took workloadTimes, err error) {
	manifest, err := exec.CommandContext(ctx, w.release.Clusterctl, "generate", "cluster", name, "--config", w.release.Config, "--kubeconfig", w.kubeconfig(),
		"--infrastructure", "kindred", "--target-namespace", metav1.NamespaceDefault, "--kubernetes-version", w.release.Version,
		"--control-plane-machine-count", "1", "--worker-machine-count", fmt.Sprint(workloadNodes-1)).Output()
	if err != nil {
		return took, fmt.Errorf("clusterctl generate: %w", err)
	}
	began := time.Now()
	if _, err := w.bench.kubectl(ctx, w.kubeconfig(), string(manifest), "apply", "-f", "-"); err != nil {
		return took, err
	}
	if err := w.until(ctx, "the nodes of "+name+" are Ready", func(ctx context.Context) error { return w.nodesReady(ctx, name) }); err != nil {
		return took, err
	}
	took.nodes = time.Since(began)
	if err := w.runPods(ctx, name); err != nil {
		return took, err
	}
	took.pods = time.Since(began)
	_, err = w.bench.kubectl(ctx, w.kubeconfig(), "", "delete", "cluster", name, "--timeout", workloadLimit.String())
	return took, err
}

// runPods runs a pod on each node of a workload cluster. Its image is the one of sandboxes, which each machine has.
func (w *managementCluster) runPods(ctx context.Context, name string) error {
	client, err := w.workloadClient(ctx, name)
	if err != nil {
		return err
	}
	labels := map[string]string{"app": "everywhere"}
	daemons, err := client.AppsV1().DaemonSets(metav1.NamespaceDefault).Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: labels["app"]},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers:  []corev1.Container{{Name: "pause", Image: containerd.PauseImage, ImagePullPolicy: corev1.PullNever}},
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return w.until(ctx, "a pod is Ready on each node of "+name, func(ctx context.Context) error {
		daemons, err := client.AppsV1().DaemonSets(daemons.Namespace).Get(ctx, daemons.Name, metav1.GetOptions{})
		if err == nil && daemons.Status.NumberReady != workloadNodes {
			err = fmt.Errorf("%d of %d pods are Ready", daemons.Status.NumberReady, workloadNodes)
		}
		return err
	})
}

func (w *managementCluster) kubeconfig() string { return filepath.Join(w.dataDir, "kubeconfig") }

// workloadClient returns a client of a workload cluster.
func (w *managementCluster) workloadClient(ctx context.Context, name string) (*kubernetes.Clientset, error) {
	secret, err := w.client.CoreV1().Secrets(metav1.NamespaceDefault).Get(ctx, name+"-kubeconfig", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, errors.New("there is no kubeconfig yet")
	}
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// nodesReady returns an error unless all nodes of a workload cluster are Ready.
func (w *managementCluster) nodesReady(ctx context.Context, name string) error {
	client, err := w.workloadClient(ctx, name)
	if err != nil {
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for _, node := range nodes.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	if ready != workloadNodes {
		return fmt.Errorf("%d of %d nodes are Ready", ready, workloadNodes)
	}
	return nil
}
