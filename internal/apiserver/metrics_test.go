// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/auth/rbac/bootstrap"
	"github.com/kindred-project/kindred/internal/node/stats"
	"github.com/kindred-project/kindred/internal/storage"
)

// metricsOf describes the resources of a version of metrics.k8s.io.
func metricsOf(t *testing.T, client kubernetes.Interface, version string) string {
	t.Helper()
	list, err := client.Discovery().ServerResourcesForGroupVersion("metrics.k8s.io/" + version)
	if err != nil {
		return err.Error()
	}
	var found []string
	for _, r := range list.APIResources {
		found = append(found, fmt.Sprintf("%s %s %v %q %v", r.Name, r.Kind, r.Namespaced, r.SingularName, r.Verbs))
	}
	return strings.Join(found, ", ")
}

// TestMetricsDiscovery: both versions have metrics-server's resources, after all other groups.
func TestMetricsDiscovery(t *testing.T) {
	client := server.client(t)
	for _, version := range []string{"v1", "v1beta1"} {
		if got := metricsOf(t, client, version); got != `nodes NodeMetrics false "" [get list], pods PodMetrics true "" [get list]` {
			t.Errorf("%s has %s", version, got)
		}
	}
	groups, err := client.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	var before bool
	for _, group := range groups.Groups {
		if group.Name == "metrics.k8s.io" {
			before = true
			if group.PreferredVersion.Version != "v1" {
				t.Errorf("preferred is %v", group.PreferredVersion)
			}
		} else if before {
			t.Errorf("%s is after metrics.k8s.io", group.Name)
		}
	}
}

// TestMetrics: both versions and tables show what a simulated node reports of itself and of a pod.
func TestMetrics(t *testing.T) {
	fake := testingclock.NewFakeClock(time.Now())
	began := fake.Now()
	// The start waits by the clock.
	starting, started := context.WithCancel(t.Context())
	defer started()
	go func() {
		for ; starting.Err() == nil; time.Sleep(time.Millisecond) {
			fake.Step(time.Millisecond)
		}
	}()
	s := own(t, func(c *Config) {
		c.Clock = fake
		c.SimulatedStats = func(node string) stats.Source {
			return func(context.Context) (stats.Summary, error) {
				now := fake.Now()
				used := now.Sub(began)
				containers := []stats.Container{{Name: "c", Usage: stats.Usage{Time: now, CPU: used / 4, Memory: 1024}}}
				return stats.Summary{
					Node: &stats.Usage{Time: now, CPU: 2 * used, Memory: 2048},
					Pods: []stats.Pod{{Namespace: "default", Name: "p", Containers: containers}},
				}, nil
			}
		}
	})
	started()
	client := s.client(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "sim"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "sim", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	pod, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	if _, err := client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	const pods = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
	err = within(10*time.Second, func() error {
		fake.Step(15 * time.Second)
		if got := s.do(t, s.admin, http.MethodGet, pods+"/p", ""); got.code != http.StatusOK {
			return fmt.Errorf("%d %s", got.code, got.body)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, accept, want string }{
		{pods, "application/json", `"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1"`},
		{pods, "application/json", `"containers":[{"name":"c","usage":{"cpu":"250m","memory":"1Ki"}}]`},
		{pods + "?labelSelector=app%3Dother", "application/json", `"items":[]`},
		{"/apis/metrics.k8s.io/v1/nodes/sim", "application/json", `"usage":{"cpu":"2","memory":"2Ki"}`},
		{"/apis/metrics.k8s.io/v1/pods", "application/json;as=Table;g=meta.k8s.io;v=v1", `"cells":["p","250m","1Ki","`},
		{"/apis/metrics.k8s.io/v1/nodes", "application/json;as=Table;g=meta.k8s.io;v=v1", `"cells":["sim","2","2Ki","`},
	} {
		if got := s.do(t, s.admin, http.MethodGet, test.path, "", "Accept", test.accept); got.code != http.StatusOK || !strings.Contains(got.body, test.want) {
			t.Errorf("%s has no %s:\n%s", test.path, test.want, got.body)
		}
	}
}

// TestMetricsAreReplaceable: a user's APIService replaces both versions, also after a restart. Without
// it, the next start serves them again.
func TestMetricsAreReplaceable(t *testing.T) {
	dir := t.TempDir()
	during := func(config map[string]string, body func(*testServer)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		backend, err := storage.Embedded(ctx, filepath.Join(dir, "etcd"), clock.RealClock{}, storage.DefaultRetention)
		if err != nil {
			t.Fatal(err)
		}
		defer backend.Close()
		s, err := boot(ctx, dir, backend, func(c *Config) { c.RuntimeConfig = config })
		if s != nil {
			defer func() { cancel(); <-s.stopped }()
		}
		if err == nil {
			err = s.AwaitServed(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		body(s)
	}
	const path = "/apis/apiregistration.k8s.io/v1/apiservices"
	// want compares the APIServices of both versions: local, remote, or none.
	want := func(s *testServer, v1, v1beta1 string) {
		t.Helper()
		err := within(10*time.Second, func() error {
			for name, want := range map[string]string{"v1": v1, "v1beta1": v1beta1} {
				got := s.do(t, s.admin, http.MethodGet, path+"/"+name+".metrics.k8s.io", "")
				is := "local"
				switch {
				case got.code == http.StatusNotFound:
					is = "none"
				case strings.Contains(got.body, `"service"`):
					is = "remote"
				}
				if is != want {
					return fmt.Errorf("the APIService of %s is %s, want %s", name, is, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	remote := `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1beta1.metrics.k8s.io"},"spec":{
		"group":"metrics.k8s.io","version":"v1beta1","groupPriorityMinimum":100,"versionPriority":100,"insecureSkipTLSVerify":true,
		"service":{"namespace":"kube-system","name":"metrics-server"}}}`

	during(nil, func(s *testServer) {
		want(s, "local", "local")
		if got := s.do(t, s.admin, http.MethodPatch, path+"/v1beta1.metrics.k8s.io?fieldManager=test", remote, "Content-Type", "application/apply-patch+yaml"); got.code != http.StatusOK {
			t.Fatalf("%d %s", got.code, got.body)
		}
		want(s, "none", "remote")
	})
	during(nil, func(s *testServer) {
		want(s, "none", "remote")
		if got := s.do(t, s.admin, http.MethodDelete, path+"/v1beta1.metrics.k8s.io", ""); got.code != http.StatusOK {
			t.Fatalf("%d %s", got.code, got.body)
		}
		want(s, "none", "none")
	})
	during(map[string]string{"metrics.k8s.io/v1": "false"}, func(s *testServer) { want(s, "none", "local") })
	during(nil, func(s *testServer) { want(s, "local", "local") })
}

// TestMetricsReader: who may view a namespace may see its metrics.
func TestMetricsReader(t *testing.T) {
	for _, role := range bootstrap.Default(bootstrap.Optional{}).ClusterRoles {
		if role.Name != "view" {
			continue
		}
		for _, rule := range role.Rules {
			if len(rule.APIGroups) == 1 && rule.APIGroups[0] == "metrics.k8s.io" {
				return
			}
		}
	}
	t.Error("the role view does not include metrics.k8s.io")
}
