// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

func TestRunOf(t *testing.T) {
	ended := func(id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "containerd://" + id}}
	}
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	for name, test := range map[string]struct {
		runs             []string // the newest first
		state, last      v1.ContainerState
		newest, previous string // empty for none
	}{
		"not started":           {nil, v1.ContainerState{}, v1.ContainerState{}, "", ""},
		"first run":             {[]string{"0"}, running, v1.ContainerState{}, "0", ""},
		"first run has ended":   {[]string{"0"}, ended("0"), v1.ContainerState{}, "0", ""},
		"back-off after first":  {[]string{"0"}, waiting, ended("0"), "0", "0"},
		"second run":            {[]string{"1", "0"}, running, ended("0"), "1", "0"},
		"second run has ended":  {[]string{"1", "0"}, ended("1"), ended("0"), "1", "0"},
		"back-off after second": {[]string{"1", "0"}, waiting, ended("1"), "1", "1"},
		"removed from runtime":  {[]string{"2"}, running, ended("1"), "2", ""},
	} {
		var runs []runtime.Container
		for _, id := range test.runs {
			runs = append(runs, runtime.Container{ID: id})
		}
		for _, status := range []v1.PodStatus{
			{ContainerStatuses: []v1.ContainerStatus{{Name: "other", LastTerminationState: ended("x")}, {Name: "c", State: test.state, LastTerminationState: test.last}}},
			{InitContainerStatuses: []v1.ContainerStatus{{Name: "c", State: test.state, LastTerminationState: test.last}}},
		} {
			newest, _ := runOf(runs, status, "c", false)
			previous, ok := runOf(runs, status, "c", true)
			if newest.ID != test.newest || previous.ID != test.previous || ok != (test.previous != "") {
				t.Errorf("%s: newest %q, previous %q; want %q, %q", name, newest.ID, previous.ID, test.newest, test.previous)
			}
		}
	}
}
