// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// settings is what a CSIDriver object says about a driver. seLinuxMount is not among them: the agent sets no
// SELinux labels on volumes; the runtime does.
type settings struct {
	attach, podInfo, republish, tokensInSecrets bool

	groupPolicy storagev1.FSGroupPolicy
	tokens      []storagev1.TokenRequest
	lifecycles  []storagev1.VolumeLifecycleMode
	// known is false if there is no CSIDriver object.
	known bool
	// updatePeriod is how often the driver is asked how many volumes the node can have, in seconds.
	updatePeriod int64
}

// settings returns the settings of a driver, or the defaults if there is no CSIDriver object.
func (m *Manager) settings(ctx context.Context, driver string) (settings, error) {
	if !cache.WaitForCacheSync(ctx.Done(), m.options.Synced) {
		return settings{}, errors.New("the CSIDriver objects are not known yet")
	}
	object, err := m.options.Drivers.Get(driver)
	if apierrors.IsNotFound(err) {
		return settings{attach: true, groupPolicy: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}, nil
	}
	if err != nil {
		return settings{}, err
	}
	spec := &object.Spec
	return settings{
		known:           true,
		attach:          ptr.Deref(spec.AttachRequired, true),
		podInfo:         ptr.Deref(spec.PodInfoOnMount, false),
		republish:       ptr.Deref(spec.RequiresRepublish, false),
		tokensInSecrets: ptr.Deref(spec.ServiceAccountTokenInSecrets, false),
		groupPolicy:     ptr.Deref(spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
		tokens:          spec.TokenRequests,
		lifecycles:      spec.VolumeLifecycleModes,
		updatePeriod:    ptr.Deref(spec.NodeAllocatableUpdatePeriodSeconds, 0),
	}, nil
}

// allow returns an error if the driver does not support volumes of this lifecycle.
func (s settings) allow(v *Volume) error {
	mode := v.lifecycle()
	switch {
	case !s.known && mode == storagev1.VolumeLifecyclePersistent:
		return nil
	case !s.known:
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, v.Driver())
	case slices.Contains(s.lifecycles, mode):
		return nil
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, v.Driver(), s.lifecycles)
}

// Republishes reports whether the driver wants its volumes published again from time to time.
func (m *Manager) Republishes(ctx context.Context, driver string) bool {
	s, err := m.settings(ctx, driver)
	return err == nil && s.republish
}
