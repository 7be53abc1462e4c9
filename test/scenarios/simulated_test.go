// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestSimulatedNodes: a cluster with twenty simulated nodes runs three hundred pods.
func TestSimulatedNodes(t *testing.T) {
	c := ownCluster(t, "--no-node", "--simulated-nodes", "20")
	s := newSession(t, c)
	s.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout", patience.String())
	s.prints("", "get", "nodes", "-o", "jsonpath={.items[*].spec.taints}")
	s.eventually("one informer cache serves all parts", s.informsOnce)

	s.kubectl("create", "deployment", "many", "--image=registry.example/any:v1", "--replicas=300")
	s.rolledOut("many")
	perNode := map[string]int{}
	for _, pod := range s.pods("app=many") {
		if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" || pod.Status.StartTime == nil {
			t.Errorf("pod %s: %s, IP %q", pod.Name, pod.Status.Phase, pod.Status.PodIP)
		}
		perNode[pod.Spec.NodeName]++
	}
	if len(perNode) != 20 {
		t.Errorf("the pods are on %d nodes: %v", len(perNode), perNode)
	}
	s.table("NAME READY UP-TO-DATE AVAILABLE AGE\nmany 300/300 300 300 *", "get", "deployment", "many")

	// A cordoned node gets no new pods, and a drained one loses all.
	node := s.pods("app=many")[0].Spec.NodeName
	s.prints("node/"+node+" cordoned\n", "cordon", node)
	s.kubectl("delete", "pods", "--field-selector=spec.nodeName="+node, "--wait=false")
	s.rolledOut("many")
	s.eventually("all pods are elsewhere", func() error {
		on, elsewhere := 0, 0
		for _, pod := range s.pods("app=many") {
			if pod.Spec.NodeName == node {
				on++
			} else if pod.Status.Phase == corev1.PodRunning {
				elsewhere++
			}
		}
		if on > 0 || elsewhere != 300 {
			return fmt.Errorf("%d on the cordoned node, %d elsewhere", on, elsewhere)
		}
		return nil
	})

	// Simulated nodes survive a crash as real ones do.
	before := s.lives("app=many")
	c.kill(t)
	c.again(t)
	s.stayed(before, "app=many")

	s.kubectl("delete", "namespace", s.namespace, "--timeout", patience.String())
	c.terminate(t)
}

// TestSimulatedBesideReal: pods are scheduled to simulated nodes only if they tolerate the taint.
func TestSimulatedBesideReal(t *testing.T) {
	c := ownClusterWithNode(t, "--simulated-nodes", "2", "--node-name", "here")
	s := newSession(t, c)
	s.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout", patience.String())
	taint := `{range .items[*]}{.metadata.name}={range .spec.taints[*]}{.key}:{.effect}{end}{"\n"}{end}`
	out := s.jsonpath(taint, "nodes")
	s.contains(out, "here=\n", "=kindred.dev/simulated:NoSchedule\n")

	s.createWeb(3)
	for _, pod := range s.pods("app=web") {
		if pod.Spec.NodeName != "here" {
			t.Errorf("pod %s is on %s", pod.Name, pod.Spec.NodeName)
		}
	}
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: tolerant}
spec:
  tolerations: [{key: kindred.dev/simulated, operator: Exists}]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: NotIn, values: [here]}]}]}}}
  containers: [{name: c, image: "registry.example/any:v1"}]
`)
	s.ready("tolerant")
	began := time.Now()
	s.kubectl("delete", "pod", "tolerant")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a simulated pod took %v to go", took)
	}
}

// TestTaintEviction: a NoExecute taint evicts pods that do not tolerate it at once, and those that
// tolerate it for a time when the time is over.
func TestTaintEviction(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node", "--simulated-nodes", "1"))
	node := s.jsonpath("{.items[0].metadata.name}", "nodes")
	s.kubectl("run", "victim", "--image=any:v1")
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: tolerant}
spec:
  tolerations: [{key: example.com/down, operator: Exists}]
  containers: [{name: c, image: "any:v1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: patient}
spec:
  tolerations: [{key: example.com/down, operator: Exists, effect: NoExecute, tolerationSeconds: 2}]
  containers: [{name: c, image: "any:v1"}]
`)
	s.ready("victim")
	s.ready("tolerant")
	s.ready("patient")
	s.kubectl("taint", "node", node, "example.com/down=x:NoExecute")
	s.gone("pod", "victim")
	s.gone("pod", "patient")
	s.prints("pod/tolerant\n", "get", "pods", "-o", "name")
}

var openWatches = regexp.MustCompile(`(?m)^apiserver_longrunning_requests\{.*resource="(\w+)".*verb="WATCH".*\} (\d+)$`)

// informsOnce returns an error if the process watches a kind more than twice: once for server,
// controllers, scheduler and simulated nodes, and once as metadata for the garbage collector.
// Published parts of the API server watch CustomResourceDefinitions with their own informers.
func (s *session) informsOnce() error {
	watches := openWatches.FindAllStringSubmatch(s.kubectl("get", "--raw", "/metrics"), -1)
	if len(watches) < 10 {
		return fmt.Errorf("only %d kinds are watched", len(watches))
	}
	for _, w := range watches {
		if n, _ := strconv.Atoi(w[2]); n > 2 && w[1] != "customresourcedefinitions" {
			return fmt.Errorf("%s are watched %d times", w[1], n)
		}
	}
	return nil
}
