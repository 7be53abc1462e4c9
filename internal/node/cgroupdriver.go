// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/cgroup"
)

// cgroupDriver returns the driver that the runtime uses, or the configured one if the runtime does not report its own.
// The agent and the runtime must use the same.
func cgroupDriver(ctx context.Context, service cri.RuntimeService, configured string) (cgroup.Driver, error) {
	// The client logs an error of runtimes that do not know the call, such as containerd 1.
	response, err := service.RuntimeConfig(klog.NewContext(ctx, logr.Discard()))
	if status.Code(err) == codes.Unimplemented {
		return cgroup.Driver(configured), nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the configuration of the container runtime: %w", err)
	}
	linux := response.GetLinux()
	if linux == nil {
		return cgroup.Driver(configured), nil
	}
	driver := cgroup.Systemd
	switch d := linux.GetCgroupDriver(); d {
	case runtimeapi.CgroupDriver_SYSTEMD:
	case runtimeapi.CgroupDriver_CGROUPFS:
		driver = cgroup.Cgroupfs
	default:
		return "", fmt.Errorf("the container runtime uses a cgroup driver that the agent does not know: %v", d)
	}
	if driver != cgroup.Driver(configured) {
		klog.FromContext(ctx).Info("The container runtime's cgroup driver is used, and not that of the configuration", "driver", driver, "configured", configured)
	}
	return driver, nil
}
