// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCriticalStaticPod: a static pod, which is critical, does not fit on a full node. The node evicts the pod that holds
// enough, and not a small one beside it. The process is killed while the victim ends.
func TestCriticalStaticPod(t *testing.T) {
	needContainers(t)
	dir := t.TempDir()
	config := filepath.Join(t.TempDir(), "kubelet.yaml")
	writeFile(t, config, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: "+dir+"\nfileCheckFrequency: 2s\n")
	args := []string{"--node-name", "n", "--kubelet-config", config}
	c := ownClusterWithNode(t, args...)
	s := &staticSession{T: t, c: c, client: c.client(t), dir: dir}
	node, err := s.client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	most := fmt.Sprintf("%dm", node.Status.Allocatable.Cpu().MilliValue()*6/10)
	for name, cpu := range map[string]string{"victim": most, "bystander": "10m"} {
		if r := c.kubectl("run", name, "--image", image, "--overrides", fmt.Sprintf(
			`{"spec": {"terminationGracePeriodSeconds": 3, "containers": [{"name": "c", "image": %q, "command": ["sh", "-c", "trap : TERM; while :; do sleep 0.1; done"],
			"resources": {"requests": {"cpu": %q}}}]}}`, image, cpu)); r.code != 0 {
			t.Fatal(r.err)
		}
		s.pod(name, "ready", isReadyPod)
	}

	writeFile(t, filepath.Join(dir, "critical.yaml"), strings.Replace(staticPod("critical", "critical"),
		"  - name: c\n", "  - name: c\n    resources: {requests: {cpu: "+most+"}}\n", 1))
	if e := s.eventOf("victim", "Preempting"); e.Type != v1.EventTypeWarning || e.Message != "Preempted in order to admit critical pod" {
		t.Errorf("event %s %s", e.Type, e.Message)
	}
	c.kill(t)
	c.mustStart(t, args...)
	s.client = c.client(t)

	victim := s.pod("victim", "failed", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if victim.Status.Reason != "Preempting" || victim.Status.Message != "Preempted in order to admit critical pod" {
		t.Errorf("the victim has failed: %s: %s", victim.Status.Reason, victim.Status.Message)
	}
	disrupted := false
	for _, condition := range victim.Status.Conditions {
		disrupted = disrupted || condition.Type == v1.DisruptionTarget && condition.Status == v1.ConditionTrue && condition.Reason == v1.PodReasonTerminationByKubelet &&
			condition.Message == "Pod was preempted by Kubelet to accommodate a critical pod."
	}
	if !disrupted {
		t.Errorf("the victim has the conditions %+v", victim.Status.Conditions)
	}
	s.pod("critical-n", "ready", isReadyPod)
	if p := s.pod("bystander", "ready", isReadyPod); p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the bystander was restarted: %+v", p.Status.ContainerStatuses[0])
	}
}

// eventOf waits for an event about a pod.
func (s *staticSession) eventOf(name, reason string) v1.Event {
	s.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		events, err := s.client.CoreV1().Events("default").List(s.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
		if err != nil {
			s.Fatal(err)
		}
		if len(events.Items) > 0 {
			return events.Items[0]
		}
	}
	s.Fatalf("no event %s of %s\n%s", reason, name, s.c.logs())
	return v1.Event{}
}
