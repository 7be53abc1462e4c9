// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindredtest_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/kindredtest"
)

const namespace = metav1.NamespaceDefault

func TestDeploymentBecomesReady(t *testing.T) {
	t.Parallel()
	client := kubernetes.NewForConfigOrDie(kindredtest.Start(t, kindredtest.SimulatedNodes(2)).Config())
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](4),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	events, err := client.AppsV1().Deployments(namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	await(t, events, "4 ready replicas", func(e watch.Event) bool {
		d, ok := e.Object.(*appsv1.Deployment)
		return ok && d.Status.ReadyReplicas == 4
	})
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 2 {
		t.Errorf("%d nodes, error %v; want 2", len(nodes.Items), err)
	}
}

func TestDeletingAnOwnerCollectsItsDependents(t *testing.T) {
	t.Parallel()
	client := kubernetes.NewForConfigOrDie(kindredtest.Start(t).Config())
	configMaps := client.CoreV1().ConfigMaps(namespace)
	owner, err := configMaps.Create(t.Context(), configMap("owner"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dependent := configMap("dependent")
	dependent.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	if dependent, err = configMaps.Create(t.Context(), dependent, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := configMaps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	events, err := configMaps.Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + dependent.Name, ResourceVersion: dependent.ResourceVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, events, "the dependent's deletion", func(e watch.Event) bool { return e.Type == watch.Deleted })
}

func TestClustersAreIsolated(t *testing.T) {
	t.Parallel()
	one, other := kindredtest.Start(t), kindredtest.Start(t, kindredtest.SimulatedNodes(0))
	if one.Config().Host == other.Config().Host {
		t.Fatalf("both serve at %s", one.Config().Host)
	}
	if _, err := kubernetes.NewForConfigOrDie(one.Config()).CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("mine"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	theirs, err := kubernetes.NewForConfigOrDie(other.Config()).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=mine"})
	if err != nil || len(theirs.Items) != 0 {
		t.Errorf("the other cluster has %d of the first one's objects, error %v", len(theirs.Items), err)
	}
}

func TestKubeconfigWorksForOtherPrograms(t *testing.T) {
	t.Parallel()
	var kubeconfig string
	t.Run("while the test runs", func(t *testing.T) {
		cluster := kindredtest.Start(t, kindredtest.Args("--bind-address", "127.0.0.1"))
		kubeconfig = cluster.Kubeconfig()
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kubernetes.NewForConfigOrDie(config).Discovery().ServerVersion(); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Stat(kubeconfig); !os.IsNotExist(err) {
		t.Errorf("%s after the test: %v; want it removed", kubeconfig, err)
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// await waits for an event of a watch.
func await(t *testing.T, events watch.Interface, what string, want func(watch.Event) bool) {
	t.Helper()
	defer events.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last := "nothing"
	for {
		select {
		case e, ok := <-events.ResultChan():
			if !ok {
				t.Fatalf("the watch ended before %s", what)
			}
			if want(e) {
				return
			}
			last = fmt.Sprintf("%s %+v", e.Type, e.Object)
		case <-ctx.Done():
			t.Fatalf("no %s; last seen: %s", what, last)
		}
	}
}
