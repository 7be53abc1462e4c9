// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kindred-project/kindred/internal/node/cpus"
	"github.com/kindred-project/kindred/internal/node/memory"
	"github.com/kindred-project/kindred/internal/node/topology"
)

// validate returns what is wrong with a configuration, or nil. The package that uses a field parses it; validate calls the
// same parser, so that a mistake is found at the start.
func validate(c *kubeletv1beta1.KubeletConfiguration) error {
	return errors.Join(
		atLeast("maxPods", int64(c.MaxPods), 0),
		atLeast("nodeLeaseDurationSeconds", int64(c.NodeLeaseDurationSeconds), 1),
		atLeast("nodeStatusMaxImages", int64(*c.NodeStatusMaxImages), -1),
		atLeast("containerLogMaxFiles", int64(*c.ContainerLogMaxFiles), 2),
		positiveQuantity("containerLogMaxSize", c.ContainerLogMaxSize),
		checkReserved(c),
		checkManagers(c),
	)
}

// checkManagers checks the policies that assign resources to containers.
func checkManagers(c *kubeletv1beta1.KubeletConfiguration) error {
	_, cpuErr := cpus.ParseOptions(c.CPUManagerPolicy, c.CPUManagerPolicyOptions)
	_, topologyErr := topology.ParsePolicy(c.TopologyManagerPolicy, c.TopologyManagerScope, c.TopologyManagerPolicyOptions)
	if c.CPUManagerReconcilePeriod.Duration <= 0 {
		cpuErr = errors.Join(cpuErr, fmt.Errorf("cpuManagerReconcilePeriod is %v, and must be positive", c.CPUManagerReconcilePeriod.Duration))
	}
	return errors.Join(cpuErr, topologyErr, memory.CheckPolicy(c.MemoryManagerPolicy))
}

func atLeast(field string, value, minimum int64) error {
	if value < minimum {
		return fmt.Errorf("%s is %d, and must be at least %d", field, value, minimum)
	}
	return nil
}

func positiveQuantity(field, value string) error {
	if quantity, err := resource.ParseQuantity(value); err != nil || quantity.Sign() <= 0 {
		return fmt.Errorf("%s is %q, and must be a positive quantity such as 10Mi", field, value)
	}
	return nil
}
