// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
)

// Reserved returns what of the node is reserved for processes that are not in pods: the sum of kubeReserved and
// systemReserved. The CPUs of reservedSystemCPUs replace both.
func (c *Configuration) Reserved() v1.ResourceList {
	sum := v1.ResourceList{}
	for _, list := range []map[string]string{c.KubeReserved, c.SystemReserved} {
		for name, text := range list {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				continue // validate has refused it
			}
			total := sum[v1.ResourceName(name)]
			total.Add(q)
			sum[v1.ResourceName(name)] = total
		}
	}
	if set, err := cpuset.Parse(c.ReservedSystemCPUs); err == nil && !set.IsEmpty() {
		sum[v1.ResourceCPU] = *resource.NewQuantity(int64(set.Size()), resource.DecimalSI)
	}
	return sum
}

// checkReserved returns what is wrong with the fields of Reserved, or nil.
func checkReserved(c *kubeletv1beta1.KubeletConfiguration) error {
	var errs []error
	for field, list := range map[string]map[string]string{"kubeReserved": c.KubeReserved, "systemReserved": c.SystemReserved} {
		for name, text := range list {
			q, err := resource.ParseQuantity(text)
			if err != nil || q.Sign() < 0 {
				errs = append(errs, fmt.Errorf("%s: %s is %q, and must be a quantity that is not negative", field, name, text))
			}
		}
	}
	if _, err := cpuset.Parse(c.ReservedSystemCPUs); err != nil {
		errs = append(errs, fmt.Errorf("reservedSystemCPUs is %q, and must be a list of CPUs such as 0-1,4: %w", c.ReservedSystemCPUs, err))
	}
	if c.ReservedSystemCPUs != "" && (c.SystemReservedCgroup != "" || c.KubeReservedCgroup != "") {
		errs = append(errs, errors.New("reservedSystemCPUs can't be used with systemReservedCgroup or kubeReservedCgroup"))
	}
	return errors.Join(errs...)
}
