// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	podsPerNode = 20
	// podsPerDeployment is the size of the Deployments that fill a cluster, and of the one whose start is measured.
	podsPerDeployment = 1_000
	// calmTime is how long a full cluster is left alone before it is measured, and restTime how long its processor time is.
	calmTime = 30 * time.Second
	restTime = 30 * time.Second
	// samples is how many requests for single objects are timed.
	samples = 2_000
	// page is how many pods are in a page of a list.
	page = 500
	// fillLimit is the time that the pods of a cluster may take to be Running.
	fillLimit = 30 * time.Minute
)

// large returns a figure of docs/scale.md: it prints how a cluster with a number of simulated nodes starts, rests, answers, scales and
// collects, and returns the time of a Deployment of 1,000 in it, in seconds.
func large(nodes int) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (float64, error) { return b.largeWith(ctx, nodes) }
}

func (b *bench) largeWith(ctx context.Context, nodes int) (float64, error) {
	c, client, err := b.startWithClient(ctx, "--no-node", "--simulated-nodes", strconv.Itoa(nodes))
	if err != nil {
		return 0, err
	}
	defer c.stop()
	report := func(format string, args ...any) {
		fmt.Printf("  %5d nodes: "+format+"\n", append([]any{nodes}, args...)...)
	}
	report("started in %.1f s", c.startTook.Seconds())
	if err := c.reportRest(ctx, report, "nodes only"); err != nil {
		return 0, err
	}
	pods := nodes * podsPerNode
	began, used := time.Now(), c.processorTime()
	if err := fillWithPods(ctx, client, pods); err != nil {
		return 0, err
	}
	took := time.Since(began)
	report("%d pods Running in %.0f s, %.0f/s, %.2f ms of processor time each", pods, took.Seconds(), float64(pods)/took.Seconds(),
		(c.processorTime()-used).Seconds()*1000/float64(pods))
	if err := c.reportRest(ctx, report, fmt.Sprintf("%d pods", pods)); err != nil {
		return 0, err
	}
	if err := reportReads(ctx, client, report, pods); err != nil {
		return 0, err
	}
	began = time.Now()
	if err := scaleTo(podsPerDeployment)(ctx, client); err != nil {
		return 0, err
	}
	scaled := time.Since(began)
	report("a Deployment of %d Running in %.2f s", podsPerDeployment, scaled.Seconds())
	return scaled.Seconds(), c.reportCollection(ctx, client, report)
}

// reportRest reports memory and processor of a cluster that nobody uses.
func (c *cluster) reportRest(ctx context.Context, report func(string, ...any), what string) error {
	pause(ctx, calmTime)
	used := c.processorTime()
	pause(ctx, restTime)
	resident, err := c.rss()
	if err != nil {
		return err
	}
	anonymous, err := c.memory("RssAnon:")
	if err != nil {
		return err
	}
	database, err := os.Stat(filepath.Join(c.dataDir, "etcd", "member", "snap", "db"))
	if err != nil {
		return err
	}
	report("%s: %.0f MB resident, of which %.0f MB are not pages of files; a database of %d MB; %.2f processors at rest", what, resident, anonymous,
		database.Size()/1e6, (c.processorTime()-used).Seconds()/restTime.Seconds())
	return nil
}

// fillWithPods creates Deployments in a namespace of their own, and waits until all their pods are ready.
func fillWithPods(ctx context.Context, client kubernetes.Interface, pods int) error {
	const namespace = "full"
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	deployments := client.AppsV1().Deployments(namespace)
	for i := range (pods + podsPerDeployment - 1) / podsPerDeployment {
		d := deployment(int32(min(podsPerDeployment, pods-i*podsPerDeployment)))
		d.Name = fmt.Sprintf("full-%d", i)
		d.Spec.Selector.MatchLabels = map[string]string{"app": d.Name}
		d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
		if _, err := deployments.Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(fillLimit)
	for {
		all, err := deployments.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := readyIn(all.Items)
		if ready == pods {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d pods are ready after %v", ready, pods, fillLimit)
		}
		pause(ctx, 500*time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func readyIn(deployments []appsv1.Deployment) (ready int) {
	for _, d := range deployments {
		ready += int(d.Status.ReadyReplicas)
	}
	return ready
}

// reportReads reports how long reads of one pod and of all take.
func reportReads(ctx context.Context, client kubernetes.Interface, report func(string, ...any), pods int) error {
	began := time.Now()
	all, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	whole := time.Since(began)
	if len(all.Items) != pods {
		return fmt.Errorf("%d pods, want %d", len(all.Items), pods)
	}
	began = time.Now()
	for options := (metav1.ListOptions{Limit: page}); ; {
		part, err := client.CoreV1().Pods("").List(ctx, options)
		if err != nil {
			return err
		}
		if options.Continue = part.Continue; options.Continue == "" {
			break
		}
	}
	paged := time.Since(began)
	pause(ctx, calmTime) // the garbage of the lists is collected
	random := rand.New(rand.NewPCG(1, 1))
	took := make([]time.Duration, samples)
	for i := range took {
		pod := all.Items[random.IntN(len(all.Items))]
		began := time.Now()
		if _, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		took[i] = time.Since(began)
	}
	get := percentiles(took)
	report("a get takes p50 %s ms, p99 %s ms; a list of all pods %.2f s, in pages of %d %.2f s", millis(get[0]), millis(get[1]), whole.Seconds(), page, paged.Seconds())
	return nil
}

// reportCollection reports the rate at which the dependents of one owner are collected.
func (c *cluster) reportCollection(ctx context.Context, client kubernetes.Interface, report func(string, ...any)) error {
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	owner, err := plant(ctx, configMaps, besideDependents, 1)
	if err != nil {
		return err
	}
	used := c.processorTime()
	took, err := fell(ctx, configMaps, owner, background, besideDependents)
	report("%d dependents collected at %.0f/s, %.2f ms of processor time each", besideDependents, besideDependents/took.Seconds(),
		(c.processorTime()-used).Seconds()*1000/besideDependents)
	return err
}
