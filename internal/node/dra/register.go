// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
)

// Validate implements plugins.Handler.
func (m *Manager) Validate(name, endpoint string, services []string) error {
	if _, err := chooseService(services); err != nil {
		return fmt.Errorf("invalid supported gRPC versions of DRA driver plugin %s at endpoint %s: %w", name, endpoint, err)
	}
	return nil
}

// Register implements plugins.Handler.
func (m *Manager) Register(ctx context.Context, name, endpoint string, services []string) error {
	if err := m.Validate(name, endpoint, services); err != nil {
		return err
	}
	added, err := connect(name, endpoint, services, m.options.Intercept)
	if err != nil {
		return err
	}
	m.drivers.add(added)
	if added.health != nil {
		go m.watchHealth(added)
	}
	klog.FromContext(ctx).Info("Registered a DRA driver", "driver", name, "endpoint", endpoint)
	return nil
}

// Deregister implements plugins.Handler.
func (m *Manager) Deregister(ctx context.Context, name, endpoint string) {
	if m.drivers.remove(name, endpoint) {
		klog.FromContext(ctx).Info("Removed a DRA driver", "driver", name, "endpoint", endpoint)
	}
}
