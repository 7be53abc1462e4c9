// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTotal(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	for name, test := range map[string]struct {
		spans []span
		want  time.Duration
	}{
		"none":        {nil, 0},
		"apart":       {[]span{{at(1), at(2)}, {at(5), at(7)}}, 3 * time.Second},
		"overlap":     {[]span{{at(1), at(4)}, {at(2), at(6)}}, 5 * time.Second},
		"one in one":  {[]span{{at(1), at(9)}, {at(2), at(3)}, {at(4), at(5)}}, 8 * time.Second},
		"not ordered": {[]span{{at(5), at(7)}, {at(1), at(2)}}, 3 * time.Second},
	} {
		if got := total(test.spans); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestInitTime(t *testing.T) {
	run := func(seconds int64) *v1.ContainerStateTerminated {
		return &v1.ContainerStateTerminated{StartedAt: metav1.Unix(100, 0), FinishedAt: metav1.Unix(100+seconds, 0)}
	}
	status := &v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{
		{State: v1.ContainerState{Terminated: run(3)}, LastTerminationState: v1.ContainerState{Terminated: run(2)}},
		{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}, // a sidecar
	}}
	if got := initTime(status); got != 5*time.Second {
		t.Errorf("%v, want 5s", got)
	}
}

func TestIsStateful(t *testing.T) {
	pod := func(source v1.VolumeSource) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}, {VolumeSource: source}}}}
	}
	if isStateful(pod(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}})) {
		t.Error("a projected volume has no data of its own")
	}
	if !isStateful(pod(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}})) {
		t.Error("a claim has data of its own")
	}
}
