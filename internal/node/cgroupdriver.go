// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
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

const cgroupRoot = "/sys/fs/cgroup"

// isUnified reports whether the machine has only cgroup v2.
func isUnified() bool {
	var fs unix.Statfs_t
	return unix.Statfs(cgroupRoot, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

// checkCgroups returns why the agent must not start on a machine with this version of cgroups, or nil.
func checkCgroups(failCgroupV1, unified bool) error {
	if !failCgroupV1 || unified {
		return nil
	}
	return errors.New("the kubelet is configured to not run on a host using cgroup v1: boot the machine with cgroup v2, or set failCgroupV1 to false in the kubelet configuration")
}
