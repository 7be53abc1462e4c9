// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"os"
	"testing"
)

func TestClean(t *testing.T) {
	s := newStageTest(t, testPod())
	s.running()
	for range 2 {
		// Not do, which would read the pod from the runtime again.
		stageOf(Clean).run(s.Worker, t.Context(), s.taskOf(s.pod, Action{Kind: Clean}))(&s.memory)
		layout := s.parts.Host.Layout
		for _, dir := range []string{layout.PodDir("u"), layout.PodLogsDir("ns", "p", "u")} {
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("%s: %v", dir, err)
			}
		}
		if !s.memory.Cleaned || s.parts.Runtime.Last("u") != nil {
			t.Errorf("cleaned %t, last seen %v", s.memory.Cleaned, s.parts.Runtime.Last("u"))
		}
	}
}
