// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"
)

// TestTerminatedPodGCThreshold: of the pods that have ended, the oldest above the threshold are deleted. Pods that have not
// ended stay.
func TestTerminatedPodGCThreshold(t *testing.T) {
	c := ownCluster(t, "--no-node", "--terminated-pod-gc-threshold", "2")
	s := newSession(t, c)
	for _, name := range []string{"a", "b", "c", "d", "waits"} {
		s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec: {containers: [{name: main, image: "` + image + `"}]}
`)
	}
	for name, phase := range map[string]string{"a": "Succeeded", "b": "Failed", "c": "Succeeded", "d": "Failed"} {
		s.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"`+phase+`"}}`)
	}
	s.eventually("the two oldest are deleted", func() error {
		if left := strings.Fields(s.jsonpath("{.items[*].metadata.name}", "pods")); strings.Join(left, " ") != "c d waits" {
			return fmt.Errorf("left are %v", left)
		}
		return nil
	})
}
