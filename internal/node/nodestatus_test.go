// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestReadyProblem: only the conditions that CRI requires decide whether the node is ready.
func TestReadyProblem(t *testing.T) {
	runtime := &runtimeapi.RuntimeCondition{Type: "RuntimeReady", Status: true}
	network := &runtimeapi.RuntimeCondition{Type: "NetworkReady", Status: true}
	deprecated := &runtimeapi.RuntimeCondition{Type: "ContainerdHasNoDeprecationWarnings", Reason: "ContainerdHasDeprecationWarnings"}
	for name, c := range map[string]struct {
		conditions []*runtimeapi.RuntimeCondition
		err        error
		want       string
	}{
		"all required conditions are true":       {[]*runtimeapi.RuntimeCondition{runtime, network}, nil, ""},
		"a false condition of the runtime's own": {[]*runtimeapi.RuntimeCondition{runtime, network, deprecated}, nil, ""},
		"the runtime is down":                    {nil, errors.New("refused"), "container runtime is down: refused"},
		"NetworkReady is false": {[]*runtimeapi.RuntimeCondition{runtime, {Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "none"}}, nil,
			"container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:none"},
		"RuntimeReady is missing": {[]*runtimeapi.RuntimeCondition{network}, nil, "container runtime not ready: the runtime does not report RuntimeReady"},
	} {
		got := ""
		if err := readyProblem(&runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: c.conditions}}, c.err); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestOldRuntimes: containerd ignores what older versions do not know.
func TestOldRuntimes(t *testing.T) {
	for _, c := range []struct {
		name, version string
		images, cdi   bool
		lacks         string
	}{
		{"containerd", "1.6.20~ds1", false, false, "image-volumes,recursive-read-only-mounts,user-namespaces"},
		{"containerd", "1.7.24", false, true, "image-volumes,recursive-read-only-mounts,user-namespaces"},
		{"containerd", "v2.0.5", false, true, "image-volumes"},
		{"containerd", "v2.1.0", true, true, ""},
		{"containerd", "2.4.2+unknown", true, true, ""},
		{"containerd", "devel", true, true, ""},
		{"cri-o", "1.33.0", true, true, ""},
	} {
		version := &runtimeapi.VersionResponse{RuntimeName: c.name, RuntimeVersion: c.version}
		if err := noImageVolumes(version); (err == nil) != c.images {
			t.Errorf("%s %s: image volumes: %v", c.name, c.version, err)
		}
		if err := noCDI(version); (err == nil) != c.cdi {
			t.Errorf("%s %s: CDI: %v", c.name, c.version, err)
		}
		if got := (&reporter{version: version, machine: machine{appArmor: true, seLinux: true}}).lacks(); got != c.lacks {
			t.Errorf("%s %s lacks %q, want %q", c.name, c.version, got, c.lacks)
		}
	}
}
