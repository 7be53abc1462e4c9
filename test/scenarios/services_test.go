// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// backends are two pods that answer HTTP requests with their names, behind a Service.
const backends = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: who}
spec:
  replicas: 2
  selector: {matchLabels: {app: who}}
  template:
    metadata: {labels: {app: who}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: "` + image + `"
        command: [sh, -c, "mkdir /www; hostname > /www/index.html; exec httpd -f -p 8080 -h /www"]
        readinessProbe: {periodSeconds: 1, tcpSocket: {port: 8080}}
---
apiVersion: v1
kind: Service
metadata: {name: who}
spec:
  type: NodePort
  selector: {app: who}
  ports: [{port: 80, targetPort: 8080}]
`

// fetch sends a GET request on a connection of its own.
func fetch(address string) (string, error) {
	client := http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + address)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return strings.TrimSpace(string(body)), err
}

// bothAnswer sends 20 requests, and returns an error unless each is answered, and both pods of backends answer some.
func bothAnswer(address string) error {
	who := map[string]int{}
	for range 20 {
		body, err := fetch(address)
		if err != nil {
			return fmt.Errorf("%s: %w", address, err)
		}
		who[body]++
	}
	if len(who) != 2 {
		return fmt.Errorf("%s: answers of %v, want both pods", address, who)
	}
	return nil
}

// tableWith returns the name of the cluster's table that has a ClusterIP.
func tableWith(t *testing.T, ip string) string {
	t.Helper()
	all, err := exec.Command("nft", "list", "tables", "inet").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, all)
	}
	for _, name := range regexp.MustCompile(`kindred-\w+`).FindAllString(string(all), -1) {
		if rules, err := exec.Command("nft", "list", "table", "inet", name).Output(); err == nil && strings.Contains(string(rules), ip) {
			return name
		}
	}
	t.Fatalf("no table has %s: %s", ip, all)
	return ""
}

// TestServiceTraffic: a Service is reached by its ClusterIP and node port, from pods and from the machine. Its
// traffic outlives the process.
func TestServiceTraffic(t *testing.T) {
	// The machine itself reaches only the first cluster with a range, which may be another scenario's.
	s := newSession(t, ownClusterWithNode(t, "--service-cidr", "10.111.0.0/16"))
	s.apply(backends)
	s.kubectl("rollout", "status", "deployment/who", "--timeout=60s")
	s.kubectl("run", "client", "--image="+image, "--", "sleep", "3600")
	s.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
	ip := s.jsonpath("{.spec.clusterIP}", "service", "who")
	nodePort := s.jsonpath("{.spec.ports[0].nodePort}", "service", "who")

	s.eventually("both pods are endpoints", func() error {
		return bothAnswer(ip)
	})
	onNode := []string{s.jsonpath("{.status.addresses[0].address}", "node", s.nodes()[0]) + ":" + nodePort}
	if userRuntime == "" { // another runtime's pod network has no node ports on 127.0.0.1 (docs/network.md)
		onNode = append(onNode, "127.0.0.1:"+nodePort)
	}
	for _, address := range onNode {
		if err := bothAnswer(address); err != nil {
			t.Error(err)
		}
	}
	fromPod := "for i in $(seq 20); do wget -q -O - http://" + ip + "; done | sort -u | wc -l"
	s.prints("2\n", "exec", "client", "--", "sh", "-c", fromPod)
	for _, pod := range s.pods("app=who") {
		s.prints("2\n", "exec", pod.Name, "--", "sh", "-c", fromPod)
	}
	s.prints("https://10.111.0.1:443\n", "exec", "client", "--", "sh", "-c", "echo https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT")

	// The process dies: old and new connections continue.
	kept, err := net.Dial("tcp", ip+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	s.cluster.kill(t)
	if err := bothAnswer(ip); err != nil {
		t.Errorf("without the process: %v", err)
	}
	s.cluster.again(t)
	if err := bothAnswer(onNode[len(onNode)-1]); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	fmt.Fprint(kept, "GET / HTTP/1.0\r\n\r\n")
	_ = kept.SetReadDeadline(time.Now().Add(5 * time.Second))
	if line, err := io.ReadAll(kept); err != nil || !strings.HasPrefix(string(line), "HTTP/1.") {
		t.Errorf("the connection from before got %q, %v", line, err)
	}

	// Somebody removes all rules of the machine's table.
	table := tableWith(t, ip)
	if out, err := exec.Command("nft", "delete", "table", "inet", table).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.eventually("the rules are back", func() error {
		_, err := fetch(ip)
		return err
	})

	// No endpoints: refused at once. No Service: no answer.
	s.kubectl("scale", "deployment/who", "--replicas=0")
	s.eventually("the Service refuses", func() error {
		if _, err := fetch(ip); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

// TestNetworkPolicies: a policy applies to connections that exist as well, and ends with its deletion.
func TestNetworkPolicies(t *testing.T) {
	s := withNode(t)
	s.apply(backends)
	for _, name := range []string{"friend", "stranger"} {
		s.kubectl("run", name, "--image="+image, "--labels=role="+name, "--", "sleep", "3600")
	}
	s.kubectl("rollout", "status", "deployment/who", "--timeout=60s")
	s.kubectl("wait", "--for=condition=Ready", "pod/friend", "pod/stranger", "--timeout=60s")
	ip := s.jsonpath("{.spec.clusterIP}", "service", "who")
	direct := s.pods("app=who")[0].Status.PodIP
	asks := func(from, address string, allowed bool) {
		t.Helper()
		s.eventually(fmt.Sprintf("%s asks %s", from, address), func() error {
			r := s.try("exec", from, "--", "timeout", "2", "wget", "-q", "-O", "-", "http://"+address)
			if (r.code == 0) != allowed {
				return fmt.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
			}
			return nil
		})
	}
	both := func(friend, stranger bool) {
		t.Helper()
		for _, address := range []string{ip, direct + ":8080"} {
			asks("friend", address, friend)
			asks("stranger", address, stranger)
		}
	}
	both(true, true)
	s.apply(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friends}
spec:
  podSelector: {matchLabels: {app: who}}
  ingress:
  - from: [{podSelector: {matchLabels: {role: friend}}}]
    ports: [{port: 8080}]
`)
	both(true, false)
	// By the address of the pod: another cluster on this machine may own the route to the Service.
	if _, err := fetch(direct + ":8080"); err != nil {
		t.Errorf("the node, whose probes must pass: %v", err)
	}
	s.kubectl("label", "pod", "stranger", "role=friend", "--overwrite")
	both(true, true)
	s.apply(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: silence}
spec: {podSelector: {matchLabels: {run: x}}, policyTypes: [Egress]}
`)
	s.kubectl("label", "pod", "stranger", "run=x", "--overwrite")
	both(true, false)
	s.kubectl("delete", "networkpolicy", "--all")
	both(true, true)
}
