// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// drained is what runs on the node that is drained. The pods of "web" may move to the simulated node, those of "local" may
// not.
const drained = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 2
      tolerations: [{key: kindred.dev/simulated, operator: Exists}]
      containers: [{name: c, image: IMAGE, command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.1; done"]}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: local}
spec:
  selector: {matchLabels: {app: local}}
  template:
    metadata: {labels: {app: local}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: IMAGE, command: [sleep, "3600"], volumeMounts: [{name: v, mountPath: /v}]}]
      volumes: [{name: v, emptyDir: {}}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemon}
spec:
  selector: {matchLabels: {app: daemon}}
  template:
    metadata: {labels: {app: daemon}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: IMAGE, command: [sleep, "3600"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: bare}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: IMAGE, command: [sleep, "3600"]}]
`

// TestDrain: kubectl drain names the pods that it would lose, waits for a PodDisruptionBudget, and leaves the pods of
// DaemonSets and of the node's own files. After uncordon, pods that only this node can run are back.
func TestDrain(t *testing.T) {
	dir, config := t.TempDir(), filepath.Join(t.TempDir(), "kubelet.yaml")
	writeFile(t, filepath.Join(dir, "keeper.yaml"), staticPod("keeper", "kept"))
	writeFile(t, config, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: "+dir+"\n")
	c := ownClusterWithNode(t, "--node-name", "here", "--simulated-nodes", "1", "--kubelet-config", config)
	s := newSession(t, c)
	s.kubectl("cordon", "sim-0")
	s.apply(strings.ReplaceAll(drained, "IMAGE", image))
	s.rolledOut("web")
	s.rolledOut("local")
	s.ready("bare")
	s.kubectl("rollout", "status", "daemonset/daemon", "--timeout", patience.String())
	inNamespace(t, c, "default").ready("keeper-here")
	s.kubectl("uncordon", "sim-0")
	stays := s.lives("app=daemon")
	keeper := containerOf(inNamespace(t, c, "default").pod("keeper-here"))
	for _, pod := range s.pods("app=web") {
		if pod.Spec.NodeName != "here" {
			t.Fatalf("pod %s is on %s", pod.Name, pod.Spec.NodeName)
		}
	}

	// Without consent nothing is evicted; the node stays cordoned.
	s.refused([]string{
		"cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): " + s.namespace + "/daemon-",
		"cannot delete Pods with local storage (use --delete-emptydir-data to override): " + s.namespace + "/local-",
		"(use --force to override): " + s.namespace + "/bare",
	}, "drain", "here", "--timeout=20s")
	s.prints("true", "get", "node", "here", "-o", "jsonpath={.spec.unschedulable}")
	s.ready("bare")

	drain := s.background("drain", "here", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
	s.awaitOutput(drain, "Cannot evict pod as it would violate the pod's disruption budget.")
	s.awaitOutput(drain, "pod/bare evicted")
	// With two replicas more, on the other node, the budget can spare both.
	s.kubectl("scale", "deployment", "web", "--replicas=4")
	s.awaitOutput(drain, "node/here drained")
	<-drain.done
	if code := drain.cmd.ProcessState.ExitCode(); code != 0 || strings.Contains(drain.out.String(), "keeper-here evicted") {
		t.Errorf("drain ends with %d:\n%s", code, drain.out)
	}
	s.stayed(stays, "app=daemon")
	if now := containerOf(inNamespace(t, c, "default").pod("keeper-here")); now != keeper {
		t.Errorf("the static pod's container %s became %s", keeper, now)
	}
	s.gone("pod", "bare")
	for _, pod := range s.pods("app=web") {
		if pod.Spec.NodeName == "here" {
			t.Errorf("pod %s is on the drained node", pod.Name)
		}
	}
	s.eventually("the node has the files of the daemon and of the static pod only", func() error {
		left, err := os.ReadDir(filepath.Join(c.dir, "node", "pods"))
		if err != nil || len(left) != 2 {
			return fmt.Errorf("of %d pods, %w", len(left), err)
		}
		return nil
	})

	pending := s.pods("app=local")
	if len(pending) != 1 || pending[0].Status.Phase != corev1.PodPending {
		t.Errorf("pods that no other node can run: %+v", pending)
	}
	s.hasEvent(pending[0].Name, "FailedScheduling", "1 node(s) were unschedulable")
	s.prints("node/here uncordoned\n", "uncordon", "here")
	s.eventually("it is back", func() error {
		if pod := s.pod(pending[0].Name); pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName != "here" {
			return fmt.Errorf("%s on %q", pod.Status.Phase, pod.Spec.NodeName)
		}
		return nil
	})
}
