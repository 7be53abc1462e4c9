// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestStatefulSet starts, updates, rolls back and scales a StatefulSet on simulated nodes.
func TestStatefulSet(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node", "--simulated-nodes", "3"))
	s.apply(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: nodes
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "any:v1"}]}
`)
	s.setRolledOut()
	s.table("NAME READY AGE\nweb 3/3 *", "get", "statefulset", "web")
	first := s.setPods()
	for i, pod := range first {
		name := fmt.Sprint("web-", i)
		if pod.Name != name || pod.Spec.Hostname != name || pod.Spec.Subdomain != "nodes" || pod.Labels["apps.kubernetes.io/pod-index"] != fmt.Sprint(i) {
			t.Errorf("pod %d is %s, hostname %s, subdomain %s, labels %v", i, pod.Name, pod.Spec.Hostname, pod.Spec.Subdomain, pod.Labels)
		}
		if i > 0 && pod.CreationTimestamp.Time.Before(readyTime(first[i-1]).Truncate(time.Second)) {
			t.Errorf("%s was created before %s was ready", pod.Name, first[i-1].Name)
		}
	}

	// A canary: only pods from the partition on are updated. Then all, and back.
	s.kubectl("patch", "statefulset", "web", "-p", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}`)
	s.kubectl("set", "image", "statefulset/web", "c=any:v2")
	s.eventually("the canary is updated", func() error { return s.setImages("any:v1 any:v1 any:v2") })
	s.kubectl("patch", "statefulset", "web", "-p", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	s.setRolledOut()
	s.eventually("all pods are updated", func() error { return s.setImages("any:v2 any:v2 any:v2") })
	s.contains(s.kubectl("rollout", "history", "statefulset/web"), "REVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n")
	s.prints("statefulset.apps/web rolled back\n", "rollout", "undo", "statefulset/web")
	s.setRolledOut()
	s.eventually("all pods are rolled back", func() error { return s.setImages("any:v1 any:v1 any:v1") })
	if again := s.setPods()[0]; again.Labels["controller-revision-hash"] != first[0].Labels["controller-revision-hash"] || again.UID == first[0].UID {
		t.Errorf("rolled back to %s", again.Labels["controller-revision-hash"])
	}

	// An evicted pod comes back under its name; a pod outside of the range goes.
	s.kubectl("delete", "pod", "web-1", "--wait=false")
	s.setRolledOut()
	s.kubectl("scale", "statefulset", "web", "--replicas", "1")
	s.eventually("scaled down", func() error { return s.setImages("any:v1") })

	// What ownership says of it.
	s.contains(s.kindred("tree", "statefulset/web").out, "Pod/web-0")
	s.kubectl("delete", "statefulset", "web")
	s.eventually("its pods and revisions go", func() error {
		if left := s.kubectl("get", "pods,controllerrevisions", "-o", "name"); left != "" {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})
	s.contains(s.kindred("undelete", "statefulset/web").out, "restored")
	s.setRolledOut()
}

// TestStatefulSetSurvivesKill kills the server during rolling updates. Each pod exists once, and the
// update ends.
func TestStatefulSetSurvivesKill(t *testing.T) {
	c := ownCluster(t, "--no-node", "--simulated-nodes", "2")
	s := newSession(t, c)
	s.apply(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: nodes
  replicas: 6
  podManagementPolicy: Parallel
  updateStrategy: {rollingUpdate: {maxUnavailable: 2}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: "any:v0"}]}
`)
	for i := range 3 {
		image := fmt.Sprint("any:v", i+1)
		s.kubectl("set", "image", "statefulset/web", "c="+image)
		time.Sleep(time.Duration(i) * 150 * time.Millisecond)
		c.kill(t)
		c.mustStart(t, "--no-node", "--simulated-nodes", "2")
		s.setRolledOut()
		s.eventually("updated to "+image, func() error { return s.setImages(strings.TrimSpace(strings.Repeat(image+" ", 6))) })
	}
}

func (s *session) setRolledOut() {
	s.Helper()
	s.kubectl("rollout", "status", "statefulset/web", "--timeout", patience.String())
}

// setPods returns the pods of the StatefulSet web, by name.
func (s *session) setPods() []corev1.Pod {
	s.Helper()
	pods := s.pods("app=web")
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// setImages returns an error unless the ready pods of the StatefulSet web have the given images.
func (s *session) setImages(want string) error {
	var got []string
	for _, pod := range s.setPods() {
		if pod.DeletionTimestamp != nil || readyTime(pod).IsZero() {
			return fmt.Errorf("%s is not ready", pod.Name)
		}
		got = append(got, pod.Spec.Containers[0].Image)
	}
	if text := strings.Join(got, " "); text != want {
		return fmt.Errorf("images %q, want %q", text, want)
	}
	return nil
}

// readyTime returns when the pod became ready, or the zero time.
func readyTime(pod corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
