// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

func TestContainerOf(t *testing.T) {
	id := strings.Repeat("0af9", 16)
	for cgroup, want := range map[string]string{
		"/kubepods/burstable/pod1ca6f5a4-ff4c-45e7-ab26-81a250a2da45/" + id:                                             id,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1ca6f5a4.slice/cri-containerd-" + id + ".scope": id,
		"/kubepods.slice/kubepods-pod1.slice/crio-" + id + ".scope/container":                                           id,
		"/kubepods/pod1/" + id + "/init.scope/nested":                                                                   id,
		"/kubepods/burstable/pod1ca6f5a4-ff4c-45e7-ab26-81a250a2da45":                                                   "",
		"/system.slice/kindred.service":                                                                                 "",
		"/pods/" + strings.Repeat("0afg", 16):                                                                           "",
		"/":                                                                                                             "",
		"":                                                                                                              "",
		"relative":                                                                                                      "",
	} {
		if got := containerOf(cgroup); got != want {
			t.Errorf("container of %q is %q, want %q", cgroup, got, want)
		}
	}
}

// TestOOMKilled: a container is reported as killed for lack of memory if the kernel says so, though the runtime does not.
func TestOOMKilled(t *testing.T) {
	killed, other := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for _, c := range []struct {
		name   string
		cgroup string
		code   int32
		reason string
		want   string
	}{
		{"a kill that the runtime missed", "/pods/p/" + killed, 137, "Error", "OOMKilled"},
		{"a kill that the runtime reports", "/pods/p/" + other, 137, "OOMKilled", "OOMKilled"},
		{"a signal from elsewhere", "/pods/p/" + other, 137, "Error", "Error"},
		{"an exit after a child was killed", "/pods/p/" + killed, 1, "Error", "Error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake := newFakeCRI()
			fake.fill("me", "u")
			ended := fake.containers["u-c0"]
			delete(fake.containers, "u-c0")
			ended.Id, ended.ExitCode, ended.Reason, ended.State = killed, c.code, c.reason, runtimeapi.ContainerState_CONTAINER_EXITED
			fake.containers[killed], fake.sandboxOf[killed] = ended, "u-s"
			r := New(fake, "me", clock.RealClock{})
			r.OOMKilled(c.cgroup)
			pod, err := r.Get(t.Context(), "u")
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range pod.Containers {
				if got.ID == killed && got.Reason != c.want {
					t.Errorf("reason %q, want %q", got.Reason, c.want)
				}
			}
		})
	}
}
