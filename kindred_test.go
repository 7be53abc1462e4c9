// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kindred-project/kindred"
)

const patience = time.Minute

// start starts a cluster on a simulated node.
func start(t *testing.T, dir string) *kindred.Cluster {
	t.Helper()
	return startWith(t, kindred.Options{DataDir: dir, NoNode: true, SimulatedNodes: 1})
}

func startWith(t *testing.T, options kindred.Options) *kindred.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cluster, err := kindred.Start(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	return cluster
}

func client(t *testing.T, cluster *kindred.Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func eventually(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, patience, true, done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func deployment(replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
}

// TestTwoClusters: two clusters in one process work at the same time, isolated from each other.
func TestTwoClusters(t *testing.T) {
	first, second := start(t, t.TempDir()), start(t, t.TempDir())
	if first.Server() == second.Server() {
		t.Fatalf("both serve at %s", first.Server())
	}
	ctx := t.Context()
	web, err := client(t, first).AppsV1().Deployments("default").Create(ctx, deployment(3), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "deployment available", func(ctx context.Context) (bool, error) {
		d, err := client(t, first).AppsV1().Deployments("default").Get(ctx, web.Name, metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == 3, nil
	})
	if _, err := client(t, second).AppsV1().Deployments("default").Get(ctx, web.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the second cluster returns %v for the first one's deployment", err)
	}
	// The deletion of the Deployment collects its ReplicaSet and pods.
	if err := client(t, first).AppsV1().Deployments("default").Delete(ctx, web.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "pods collected", func(ctx context.Context) (bool, error) {
		pods, err := client(t, first).CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0, nil
	})
}

// TestRestart: acknowledged writes and the kubeconfig survive a restart.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	cluster := start(t, dir)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}
	created, err := client(t, cluster).CoreV1().ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	cluster.Stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stopping took %v", took)
	}
	again := start(t, dir)
	outside, err := clientcmd.BuildConfigFromFlags("", again.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(again.Kubeconfig())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig: %v, %v; want mode 0600", info.Mode(), err)
	}
	kept, err := kubernetes.NewForConfigOrDie(outside).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if kept.UID != created.UID || kept.Data["a"] != "b" {
		t.Errorf("after the restart: UID %v, data %v", kept.UID, kept.Data)
	}
}

func TestOneDirectoryOneCluster(t *testing.T) {
	dir := t.TempDir()
	start(t, dir)
	_, err := kindred.Start(t.Context(), kindred.Options{DataDir: dir, NoNode: true})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a second cluster on one directory: %v; want an error that names process %d", err, os.Getpid())
	}
}

func TestForeignDirectoryIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis.tex")
	if err := os.WriteFile(file, []byte("years of work"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := kindred.Start(t.Context(), kindred.Options{DataDir: dir, NoNode: true}); err == nil {
		t.Fatal("a directory with other files was accepted")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("the directory now has %v, %v", left, err)
	}
}

// auditTo returns audit options without a policy.
func auditTo(path string) *kindred.AuditOptions {
	o := kindred.NewAuditOptions()
	o.LogOptions.Path = path
	return o
}

func TestOptionsAreChecked(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, options := range map[string]kindred.Options{
		"no data directory":    {},
		"bind address":         {DataDir: "x", BindAddress: "localhost"},
		"port":                 {DataDir: "x", SecurePort: 70000},
		"negative nodes":       {DataDir: "x", SimulatedNodes: -1},
		"too little memory":    {DataDir: "x", Memory: 100 << 20},
		"pod range":            {DataDir: "x", PodCIDR: "10.0.0.0"},
		"unmasked range":       {DataDir: "x", ServiceCIDR: "10.96.0.1/16"},
		"small cluster range":  {DataDir: "x", ClusterCIDR: "10.1.2.0/25"},
		"cluster of Services":  {DataDir: "x", ClusterCIDR: "10.96.0.0/12"},
		"name of the API":      {DataDir: "x", TLSSANs: []string{"a_b"}},
		"keys twice":           {DataDir: "x", Authorities: "keys", Join: "https://10.0.0.1:6443", JoinToken: "a.b", JoinCAHash: "c"},
		"members without keys": {DataDir: "x", JoinEtcd: []string{"https://10.0.0.1:2379"}},
		"two IPv4 ranges":      {DataDir: "x", ServiceCIDR: "10.96.0.0/16,10.97.0.0/16"},
		"three ranges":         {DataDir: "x", PodCIDR: "10.1.0.0/16,fd00::/64,fd01::/64"},
		"only IPv6":            {DataDir: "x", ServiceCIDR: "fd00:96::/112"},
		"IPv6 first":           {DataDir: "x", ServiceCIDR: "fd00:96::/112,10.96.0.0/16"},
		"overlapping IPv6":     {DataDir: "x", ServiceCIDR: "10.96.0.0/16,fd00:96::/112", PodCIDR: "fd00:96::/64"},
		"pool of IPv6":         {DataDir: "x", LoadBalancerPools: []string{"fd00::/120"}},
		"pool of Services":     {DataDir: "x", LoadBalancerPools: []string{"10.96.1.0/24"}},
		"pool without a node":  {DataDir: "x", LoadBalancerPools: []string{"192.0.2.0/28"}, NoNode: true},
		"overlapping ranges":   {DataDir: "x", PodCIDR: "10.96.1.0/24"},
		"node name":            {DataDir: "x", NodeName: "My_Node"},
		"pod network":          {DataDir: "x", PodNetwork: "geneve"},
		"etcd server":          {DataDir: "x", EtcdServers: []string{"foo"}},
		"etcd scheme":          {DataDir: "x", EtcdServers: []string{"ftp://10.0.0.1:2379"}},
		"no etcd server":       {DataDir: "x", EtcdCAFile: "ca.pem"},
		"certificate, no key":  {DataDir: "x", EtcdServers: []string{"10.0.0.1:2379"}, EtcdCertFile: "cert.pem"},
		"runtime endpoint":     {DataDir: "x", ContainerRuntimeEndpoint: "junk"},
		"issuer, no client":    {DataDir: "x", Authentication: kindred.AuthenticationOptions{OIDCIssuerURL: "https://issuer.example"}},
		"no authorizers":       {DataDir: "x", Authorization: kindred.AuthorizationOptions{ConfigFile: "missing.yaml"}},
		"audit, no policy":     {DataDir: "x", Audit: auditTo("-")},
		"reload, no file":      {DataDir: "x", EncryptionProviderConfigAutomaticReload: true},
		"unknown API version":  {DataDir: "x", RuntimeConfig: map[string]string{"apps/v1beta9": "true"}},
		"needed API version":   {DataDir: "x", RuntimeConfig: map[string]string{"apps/v1": "false"}},
		"kubelet, no node":     {DataDir: "x", KubeletDir: "/var/lib/kubelet", NoNode: true},
		"kubelet config":       {DataDir: "x", KubeletConfig: "/does/not/exist"},
		"kubelet directory":    {DataDir: "x", KubeletDir: "kubelet"},
		"ingress off":          {DataDir: "x", IngressHTTPPort: 8080},
		"ingress address":      {DataDir: "x", Ingress: true, IngressAddress: "localhost"},
		"ingress port":         {DataDir: "x", Ingress: true, IngressHTTPPort: 70000},
		"ingress ports":        {DataDir: "x", Ingress: true, IngressHTTPSPort: 80},
		"policies, no node":    {DataDir: "x", ClusterNetworkPolicies: true, NoNode: true},
		"runtime, no node":     {DataDir: "x", ContainerRuntimeEndpoint: "unix:///run/cri.sock", NoNode: true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := kindred.Start(t.Context(), options); !errors.Is(err, kindred.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
		})
	}
	if _, err := os.Stat("x"); err == nil {
		t.Error("a refused cluster left a directory behind")
	}
}
