// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/source"
)

// An eviction that the agent began goes on when it starts again. After a reboot of the machine, a static pod starts again, since
// it has the same UID; a pod of the API fails, and its controller creates another one.
func TestEvictionsOfFormerAgents(t *testing.T) {
	ofAPI := asking("p", "1", 1)
	static := asking("p", "1", 1)
	static.Annotations = map[string]string{source.Annotation: source.File}
	for name, test := range map[string]struct {
		pod  *v1.Pod
		boot string
		want bool
	}{
		"static, same boot":     {static, "one", true},
		"static, after reboot":  {static, "two", false},
		"of the API, same boot": {ofAPI, "one", true},
		"of the API, reboot":    {ofAPI, "two", true},
	} {
		root := t.TempDir()
		first := newFixture(t, root)
		first.table.parts.BootID = "one"
		first.see(test.pod)
		if !first.Evict(test.pod.UID, pod.Eviction{Refusal: pod.Refusal{Reason: "Terminated"}}) {
			t.Fatalf("%s: not evicted", name)
		}
		if first.Evict(test.pod.UID, pod.Eviction{}) {
			t.Errorf("%s: evicted twice", name)
		}
		second := newFixture(t, root)
		second.table.parts.BootID = test.boot
		second.see(test.pod)
		if got := second.IsEvicting(test.pod.UID); got != test.want {
			t.Errorf("%s: evicting %t, want %t", name, got, test.want)
		}
	}
}
