// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config is the configuration of a node's agent: upstream's KubeletConfiguration (kubelet.config.k8s.io/v1beta1),
// its defaults, and which of its fields have an effect here.
package config

import (
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Configuration is the configuration of a node's agent, with defaults.
type Configuration struct {
	kubeletv1beta1.KubeletConfiguration
	// Flags are the flags of the process, for /flagz; if they are nil, it is not served.
	Flags map[string]string
	// set has the fields that the file sets.
	set map[string]bool
	// Ignored has a line for each field of the file that has no effect.
	Ignored []string
}

// Default returns the configuration of a node without a file.
func Default() *Configuration {
	c := &Configuration{}
	setDefaults(&c.KubeletConfiguration)
	return c
}

// IsSet reports whether a file sets a field, by its JSON name.
func (c *Configuration) IsSet(field string) bool { return c.set[field] }

// LogMaxSize returns the size in bytes at which the log of a container is rotated.
func (c *Configuration) LogMaxSize() int64 {
	size, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	if err != nil {
		return 0 // validate has refused it
	}
	return size.Value()
}
