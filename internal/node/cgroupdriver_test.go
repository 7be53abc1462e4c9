// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/cgroup"
)

// configured is a runtime that reports a configuration.
type configured struct {
	cri.RuntimeService
	linux *runtimeapi.LinuxRuntimeConfiguration
	err   error
}

func (c configured) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: c.linux}, c.err
}

func TestCgroupDriver(t *testing.T) {
	reported := func(driver runtimeapi.CgroupDriver) configured {
		return configured{linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}
	}
	for name, test := range map[string]struct {
		runtime configured
		setting string
		want    cgroup.Driver
		fails   bool
	}{
		"the runtime's, not the configured one": {runtime: reported(runtimeapi.CgroupDriver_SYSTEMD), setting: "cgroupfs", want: cgroup.Systemd},
		"both the same":                         {runtime: reported(runtimeapi.CgroupDriver_CGROUPFS), setting: "cgroupfs", want: cgroup.Cgroupfs},
		"a runtime that does not know the call": {runtime: configured{err: status.Error(codes.Unimplemented, "unknown method")}, setting: "systemd", want: cgroup.Systemd},
		"a runtime without Linux":               {setting: "systemd", want: cgroup.Systemd},
		"a driver of the future":                {runtime: reported(7), setting: "systemd", fails: true},
		"no answer":                             {runtime: configured{err: errors.New("gone")}, setting: "systemd", fails: true},
	} {
		got, err := cgroupDriver(t.Context(), test.runtime, test.setting)
		if got != test.want || (err != nil) != test.fails {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
