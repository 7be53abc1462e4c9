// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kindred-project/kindred/test/servers"
)

// TestCustomMetrics: autoscalers follow metrics of an adapter behind APIServices: one by a metric of a
// Service, which changes, one by an external metric, down to zero replicas.
func TestCustomMetrics(t *testing.T) {
	t.Parallel()
	program, err := servers.BuildMetricsAdapter(t.Context(), "../servers")
	if err != nil {
		t.Fatal(err)
	}
	c := ownCluster(t, "--no-node", "--simulated-nodes", "1")
	s := newSession(t, c)
	write := startAdapter(s, program)

	for _, name := range []string{"web", "worker", "idle"} {
		s.kubectl("create", "deployment", name, "--image=any")
	}
	s.kubectl("create", "service", "clusterip", "web", "--tcp=80")
	autoscaler := func(name, minReplicas, maxReplicas, metric string) string {
		return fmt.Sprintf(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: %[1]s}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}
  minReplicas: %[2]s
  maxReplicas: %[3]s
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
  metrics: [%[4]s]
---`, name, minReplicas, maxReplicas, metric)
	}
	s.apply(autoscaler("web", "1", "4", `{type: Object, object: {describedObject: {apiVersion: v1, kind: Service, name: web}, metric: {name: requests}, target: {type: Value, value: 100}}}`) +
		// The adapter has the value 42 for this metric.
		autoscaler("worker", "1", "10", `{type: External, external: {metric: {name: my-external-metric, selector: {matchLabels: {foo: bar}}}, target: {type: AverageValue, averageValue: 10}}}`) +
		autoscaler("idle", "0", "10", `{type: Object, object: {describedObject: {apiVersion: v1, kind: Service, name: web}, metric: {name: queue}, target: {type: AverageValue, averageValue: 10}}}`))
	write("requests", 350)
	write("queue", 0)
	s.scaledTo(5, "deployment/worker")
	s.scaledTo(4, "deployment/web")
	s.within(autoscaling, "the status has the share of each pod", func() error {
		if out := s.kubectl("get", "hpa", "worker", "--no-headers"); !strings.Contains(out, "8400m/10 (avg)") {
			return errors.New(out)
		}
		return nil
	})
	s.scaledTo(0, "deployment/idle")
	write("queue", 25)
	s.scaledTo(3, "deployment/idle")
	write("requests", 40)
	s.scaledTo(1, "deployment/web")
	s.describes("hpa", "web", "reason: Service metric requests above target", "reason: All metrics below target")
}

// startAdapter starts the adapter on this machine and delegates the metrics APIs to it. The function that it
// returns sets a metric of the Service web.
func startAdapter(s *session, program string) (write func(metric string, value int)) {
	s.Helper()
	serving, values := freeAddress(s.T), freeAddress(s.T)
	_, port, _ := net.SplitHostPort(serving)
	own := ownAddress(s.T)
	kubeconfig := filepath.Join(s.cluster.dir, "kubeconfig")
	p, err := startProcess(exec.Command(program, "--bind-address="+own, "--secure-port="+port, "--cert-dir="+s.TempDir(), "--values="+values,
		"--lister-kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(p.end)
	s.Cleanup(func() {
		if s.Failed() {
			s.Log(tail(p.out.String(), 4000))
		}
	})
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: adapter}
spec: {ports: [{port: %[1]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: adapter, labels: {kubernetes.io/service-name: adapter}}
addressType: IPv4
ports: [{name: "", port: %[1]s}]
endpoints: [{addresses: [%[2]s]}]
`, port, own))
	var apis strings.Builder
	for _, api := range []string{"v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"} {
		version, group, _ := strings.Cut(api, ".")
		fmt.Fprintf(&apis, `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %s}
spec:
  group: %s
  version: %s
  service: {name: adapter, namespace: %s, port: %s}
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
---`, api, group, version, s.namespace, port)
	}
	s.apply(apis.String())
	s.kubectl("wait", "--for=condition=Available", "apiservice/v1beta1.custom.metrics.k8s.io", "apiservice/v1beta2.custom.metrics.k8s.io", "apiservice/v1beta1.external.metrics.k8s.io", "--timeout="+patience.String())
	return func(metric string, value int) {
		s.Helper()
		url := fmt.Sprintf("http://%s/write-metrics/namespaces/%s/services/web/%s", values, s.namespace, metric)
		response, err := http.Post(url, "application/json", strings.NewReader(fmt.Sprintf("%q", fmt.Sprint(value))))
		if err != nil {
			s.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			s.Fatalf("write %s: %s", metric, response.Status)
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := servers.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// ownAddress returns an address of this machine that an EndpointSlice may have, which 127.0.0.1 is not.
// Packets to it stay on the machine.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if ip, ok := address.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	t.Skip("the machine has no address but loopback")
	return ""
}
