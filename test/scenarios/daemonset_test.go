// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestDaemonSet rolls out, schedules and deletes a DaemonSet on simulated nodes.
func TestDaemonSet(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node", "--simulated-nodes", "3"))
	nodes := strings.Fields(s.jsonpath("{.items[*].metadata.name}", "nodes"))
	s.apply(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: "any:v1"}]}
`)
	s.daemonsRolledOut()
	s.daemonsOn(nodes...)
	s.table("NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE SELECTOR AGE\nagent 3 3 3 3 3 <none> *", "get", "daemonset", "agent")

	// Update the template, check the revision, and undo: the first revision is current again.
	first := s.daemons()
	s.prints("daemonset.apps/agent image updated\n", "set", "image", "daemonset/agent", "c=any:v2")
	s.daemonsRolledOut()
	s.daemonsOn(nodes...)
	for node, pod := range s.daemons() {
		if pod.Spec.Containers[0].Image != "any:v2" || pod.UID == first[node].UID {
			t.Errorf("%s still has %s of %s", node, pod.Name, pod.Spec.Containers[0].Image)
		}
	}
	s.contains(s.kubectl("rollout", "history", "daemonset/agent"), "REVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n")
	s.prints("daemonset.apps/agent rolled back\n", "rollout", "undo", "daemonset/agent")
	s.daemonsRolledOut()
	s.contains(s.kubectl("rollout", "history", "daemonset/agent"), "REVISION  CHANGE-CAUSE\n2         <none>\n3         <none>\n")
	again := s.daemons()[nodes[0]]
	if hash := again.Labels["controller-revision-hash"]; hash != first[nodes[0]].Labels["controller-revision-hash"] || again.Spec.Containers[0].Image != "any:v1" {
		t.Errorf("rolled back to revision %s, image %s", hash, again.Spec.Containers[0].Image)
	}

	// Taints and labels of nodes; cordoning a node has no effect.
	s.kubectl("taint", "node", nodes[1], "example.com/away=x:NoExecute")
	s.daemonsOn(nodes[0], nodes[2])
	s.kubectl("taint", "node", nodes[1], "example.com/away-")
	s.daemonsOn(nodes...)
	s.kubectl("taint", "node", nodes[2], "example.com/no-more=x:NoSchedule")
	s.eventually("the pod that is there stays, in the wrong place", func() error {
		return s.daemonStatus("{.desiredNumberScheduled} {.currentNumberScheduled} {.numberMisscheduled} {.numberReady}", "2 2 1 2")
	})
	s.daemonsOn(nodes...)
	s.kubectl("taint", "node", nodes[2], "example.com/no-more-")
	s.kubectl("cordon", nodes[0])
	s.kubectl("delete", "pods", "-l", "app=agent", "--wait=false")
	s.eventually("no pod is on the wrong node", func() error {
		return s.daemonStatus("{.desiredNumberScheduled} {.currentNumberScheduled} {.numberMisscheduled} {.numberReady}", "3 3 0 3")
	})
	s.daemonsOn(nodes...)
	s.kubectl("label", "node", nodes[0], "example.com/agent=yes")
	s.kubectl("patch", "daemonset", "agent", "-p", `{"spec": {"template": {"spec": {"nodeSelector": {"example.com/agent": "yes"}}}}}`)
	s.daemonsRolledOut()
	s.daemonsOn(nodes[0])
	s.kubectl("label", "node", nodes[1], "example.com/agent=yes")
	s.daemonsOn(nodes[0], nodes[1])

	// A template whose pods never become available stops the rollout. Pods that were not replaced
	// yet are unchanged after the undo.
	s.kubectl("patch", "daemonset", "agent", "-p", `{"spec": {"minReadySeconds": 2}}`)
	s.daemonsRolledOut()
	before := s.daemons()
	s.kubectl("patch", "daemonset", "agent", "-p", `{"spec": {"template": {"metadata": {"annotations": {"kindred.dev/simulated-exit-after": "500ms"}}}}}`)
	s.eventually("one pod of two is replaced", func() error {
		if replaced := s.replaced(before); replaced != 1 {
			return fmt.Errorf("%d are replaced", replaced)
		}
		return nil
	})
	s.kubectl("rollout", "undo", "daemonset/agent")
	s.daemonsRolledOut()
	s.daemonsOn(nodes[0], nodes[1])
	if replaced := s.replaced(before); replaced != 1 {
		t.Errorf("%d pods were replaced on the way there and back", replaced)
	}

	// With maxSurge every node always has an available pod.
	s.kubectl("patch", "daemonset", "agent", "-p", `{"spec": {"minReadySeconds": 1, "updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}}`)
	s.prints("daemonset.apps/agent image updated\n", "set", "image", "daemonset/agent", "c=any:v4")
	s.daemonsRolledOut()
	s.daemonsOn(nodes[0], nodes[1])

	// Its pods and revisions are deleted with it.
	s.kubectl("delete", "daemonset", "agent")
	s.eventually("nothing is left", func() error {
		if out := s.kubectl("get", "pods,controllerrevisions", "-o", "name"); out != "" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

func (s *session) daemonsRolledOut() {
	s.Helper()
	out := s.kubectl("rollout", "status", "daemonset/agent", "--timeout", patience.String())
	s.contains(out, "daemon set \"agent\" successfully rolled out\n")
}

// daemons returns the running pods of the DaemonSet agent that are not being deleted, by node.
func (s *session) daemons() map[string]corev1.Pod {
	s.Helper()
	out := map[string]corev1.Pod{}
	for _, pod := range s.pods("app=agent") {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			out[pod.Spec.NodeName] = pod
		}
	}
	return out
}

// replaced returns the number of nodes with another pod than before.
func (s *session) replaced(before map[string]corev1.Pod) (n int) {
	s.Helper()
	for node, pod := range s.daemons() {
		if pod.UID != before[node].UID {
			n++
		}
	}
	return n
}

// daemonsOn waits until exactly the given nodes have a pod of the DaemonSet.
func (s *session) daemonsOn(nodes ...string) {
	s.Helper()
	want := slices.Sorted(slices.Values(nodes))
	s.eventually("one pod on each of "+strings.Join(nodes, ", "), func() error {
		have := slices.Sorted(maps.Keys(s.daemons()))
		if n := len(s.pods("app=agent")); !slices.Equal(have, want) || n != len(want) {
			return fmt.Errorf("%d pods; they run on %v", n, have)
		}
		return nil
	})
}

func (s *session) daemonStatus(path, want string) error {
	s.Helper()
	if have := s.jsonpath(strings.ReplaceAll(path, "{.", "{.status."), "daemonset", "agent"); have != want {
		return fmt.Errorf("status %s, want %s", have, want)
	}
	return nil
}
