// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestGatewayRetries: with the experimental CRD of HTTPRoutes, requests are repeated as a rule wants it. Every third
// one to the pod succeeds.
func TestGatewayRetries(t *testing.T) {
	port := unusedPort(t)
	s := newSession(t, ownClusterWithNode(t, "--ingress", "--ingress-address", "127.0.0.1",
		"--ingress-http-port", fmt.Sprint(unusedPort(t)), "--ingress-https-port", fmt.Sprint(unusedPort(t))))
	s.kubectl("wait", "--for=create", "gatewayclass/kindred", "--timeout=30s")
	s.kubectl("wait", "--for=condition=Accepted", "gatewayclass/kindred", "--timeout=30s")
	s.kubectl("apply", "--server-side", "--force-conflicts", "-f", experimentalHTTPRoutes(t))
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: cgi}
data:
  third: |
    #!/bin/sh
    n=$(($(cat /tmp/n 2>/dev/null || echo 0) + 1)); echo $n >/tmp/n
    if [ $((n %% 3)) != 0 ]; then printf 'Status: 503 Busy\r\n\r\n'; exit; fi
    printf 'Content-Type: text/plain\r\n\r\nattempt %%s' $n
---
apiVersion: v1
kind: Pod
metadata: {name: flaky, labels: {app: flaky}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "`+image+`", command: [sh, -c, "mkdir /tmp; exec httpd -f -p 8080 -h /www"], volumeMounts: [{name: cgi, mountPath: /www/cgi-bin}]}
  volumes: [{name: cgi, configMap: {name: cgi, defaultMode: 0755}}]
---
apiVersion: v1
kind: Service
metadata: {name: flaky}
spec: {selector: {app: flaky}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: g}
spec: {gatewayClassName: kindred, listeners: [{name: http, port: %d, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: repeated}
spec:
  parentRefs: [{name: g}]
  hostnames: [repeated.example]
  rules: [{backendRefs: [{name: flaky, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: once}
spec:
  parentRefs: [{name: g}]
  hostnames: [once.example]
  rules: [{backendRefs: [{name: flaky, port: 80}]}]
`, port))
	s.kubectl("wait", "--for=condition=Ready", "pod/flaky", "--timeout=60s")
	s.eventually("the field is served", func() error { // until then, it is dropped
		s.try("patch", "httproute", "repeated", "--type=json", "-p",
			`[{"op": "add", "path": "/spec/rules/0/retry", "value": {"attempts": 2, "backoff": "10ms", "codes": [503]}}]`)
		if got := s.jsonpath("{.spec.rules[0].retry.attempts}", "httproute", "repeated"); got != "2" {
			return fmt.Errorf("attempts %q", got)
		}
		return nil
	})
	s.eventually("three requests in a row succeed", func() error {
		for range 3 {
			answer, body, err := throughProxy(port, "http://repeated.example/cgi-bin/third", nil)
			if err != nil {
				return err
			}
			if answer.StatusCode != 200 {
				// A watch that began before the CRD was replaced drops the field: the proxy sees it with the next change.
				s.try("annotate", "httproute", "repeated", "--overwrite", fmt.Sprintf("example.com/touched=%d", time.Now().UnixNano()))
				return fmt.Errorf("%s %q", answer.Status, body)
			}
		}
		return nil
	})
	answer, body, err := throughProxy(port, "http://once.example/cgi-bin/third", nil)
	if err != nil || answer.StatusCode != 503 {
		t.Errorf("without retries: %v, %q, %v; want 503 of the pod", answer, body, err)
	}
}

// experimentalHTTPRoutes returns the file of the CRD in the module of the Gateway API.
func experimentalHTTPRoutes(t *testing.T) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "config/crd/experimental/gateway.networking.k8s.io_httproutes.yaml")
}
