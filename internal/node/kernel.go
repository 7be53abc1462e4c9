// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"

	"k8s.io/component-helpers/node/util/sysctl"
	"k8s.io/klog/v2"
)

// kernelParameters are the values that the kubelet expects of a node's kernel: memory is promised freely, and a shortage kills
// processes instead of the machine; a machine whose kernel has failed reboots after ten seconds; root may have a session key for
// each container.
var kernelParameters = []struct {
	name  string
	value int
}{
	{sysctl.VMOvercommitMemory, sysctl.VMOvercommitMemoryAlways},
	{sysctl.VMPanicOnOOM, sysctl.VMPanicOnOOMInvokeOOMKiller},
	{sysctl.KernelPanic, sysctl.KernelPanicRebootTimeout},
	{sysctl.KernelPanicOnOops, sysctl.KernelPanicOnOopsAlways},
	{sysctl.RootMaxKeys, sysctl.RootMaxKeysSetting},
	{sysctl.RootMaxBytes, sysctl.RootMaxBytesSetting},
}

// prepareKernel sets the kernel's parameters, or checks them with protectKernelDefaults.
func (o *Options) prepareKernel() error {
	switch {
	case o.Kernel == nil:
		return nil
	case !o.Config.ProtectKernelDefaults:
		setKernel(o.Kernel)
		return nil
	}
	if err := checkKernel(o.Kernel); err != nil {
		return fmt.Errorf("protectKernelDefaults is true in the kubelet configuration, but: %w", err)
	}
	return nil
}

// checkKernel returns an error that names the kernel parameters with another value than the kubelet expects
// (protectKernelDefaults: true).
func checkKernel(kernel sysctl.Interface) error {
	var errs []error
	for _, p := range kernelParameters {
		value, err := kernel.GetSysctl(p.name)
		if err == nil && value != p.value {
			err = fmt.Errorf("invalid kernel flag: %s, expected value: %d, actual value: %d", p.name, p.value, value)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// setKernel gives the kernel parameters the values that the kubelet expects. A parameter that cannot be set, as in a container,
// is logged, and the node starts.
func setKernel(kernel sysctl.Interface) {
	for _, p := range kernelParameters {
		value, err := kernel.GetSysctl(p.name)
		if err == nil && value == p.value {
			continue
		}
		if err == nil {
			err = kernel.SetSysctl(p.name, p.value)
		}
		if err != nil {
			klog.Background().Error(err, "A kernel parameter does not have the value that nodes should have", "parameter", p.name, "want", p.value)
			continue
		}
		klog.Background().Info("Changed a kernel parameter", "parameter", p.name, "before", value, "now", p.value)
	}
}
