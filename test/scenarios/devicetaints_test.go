// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestDeviceTaints: a DeviceTaintRule first shows what it would do, then evicts the pods of its devices, which come
// back on others. A taint in a ResourceSlice does the same.
func TestDeviceTaints(t *testing.T) {
	c := ownCluster(t, "--no-node", "--simulated-nodes", "3")
	s := newSession(t, c)
	nodes := s.nodes()
	s.apply(fmt.Sprintf(devices, nodes[0], nodes[2]))
	s.apply(strings.Replace(deviceUsers, "replicas: 2", "replicas: 1", 1))
	s.rolledOut("users")
	s.kubectl("cordon", nodes[2])
	first := s.pods("app=users")[0]
	s.kubectl("delete", "pod", first.Name, "--wait")
	// The rule counts what is allocated when it is created, once.
	s.eventually("another pod is Running", func() error {
		if pods := s.pods("app=users"); len(pods) != 1 || pods[0].UID == first.UID || pods[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("there are %v", pods)
		}
		return nil
	})
	rule := func(effect string) string {
		return `
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: broken}
spec: {deviceSelector: {driver: gpu.example.com, pool: one, device: small}, taint: {key: example.com/broken, effect: ` + effect + `}}
`
	}
	condition := func(part string) {
		t.Helper()
		s.eventually("status of the rule", func() error {
			got := s.jsonpath(`{.status.conditions[?(@.type=="EvictionInProgress")]['reason', 'message']}`, "devicetaintrule", "broken")
			if !strings.Contains(got, part) {
				return fmt.Errorf("%q, want %q", got, part)
			}
			return nil
		})
	}
	s.apply(rule("None"))
	condition("NoEffect 1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute.")
	before := s.pods("app=users")[0]

	s.apply(rule("NoExecute"))
	s.eventually("the pod is replaced", func() error {
		for _, pod := range s.pods("app=users") {
			if pod.UID == before.UID {
				return fmt.Errorf("%s is still there", pod.Name)
			}
		}
		return nil
	})
	s.contains(s.kubectl("get", "events", "--field-selector=involvedObject.name="+before.Name), "DeviceTaintManagerEviction", "Marking for deletion")
	condition("Completed 1 pod evicted since starting the controller.")
	s.kubectl("uncordon", nodes[2])
	s.rolledOut("users")
	next := s.pods("app=users")[0]
	s.placedOn(next.Name, nodes[2])

	// The driver of the other device taints it.
	c.kill(t)
	c.again(t)
	s.kubectl("delete", "devicetaintrule", "broken")
	s.kubectl("patch", "resourceslice", "other", "--type=json", "-p",
		`[{"op": "add", "path": "/spec/devices/0/taints", "value": [{"key": "example.com/broken", "effect": "NoExecute"}]}]`)
	s.eventually("the pod moves back", func() error {
		for _, pod := range s.pods("app=users") {
			if pod.UID != next.UID && pod.Spec.NodeName == nodes[0] {
				return nil
			}
		}
		return fmt.Errorf("no new pod on %s", nodes[0])
	})
}
