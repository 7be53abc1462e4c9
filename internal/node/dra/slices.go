// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// wipeDelay is the time that a driver has to come back before its ResourceSlices are removed, upstream's.
const wipeDelay = 30 * time.Second

// The pauses before ResourceSlices are removed again.
const (
	wipeRetryMin = time.Second
	wipeRetryMax = 5 * time.Minute
)

// check removes the ResourceSlices of a driver that stays away, so that no pod is scheduled for its devices.
// The caller holds the lock.
func (d *drivers) check(name string) {
	cancel, pending := d.wipes[name]
	usable := slices.ContainsFunc(d.byName[name], func(one *driver) bool { return one.connected })
	switch {
	case usable && pending:
		cancel()
		delete(d.wipes, name)
	case !usable && !pending:
		ctx, cancel := context.WithCancel(d.ctx)
		d.wipes[name] = cancel
		go d.wipeAfter(ctx, d.clock.NewTimer(wipeDelay), name)
	}
}

// wipeAfter removes the ResourceSlices of a driver when the delay is over, unless ctx ends before.
func (d *drivers) wipeAfter(ctx context.Context, delay clock.Timer, name string) {
	defer delay.Stop()
	select {
	case <-ctx.Done():
		return
	case <-delay.C():
	}
	d.wipe(ctx, name)
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() == nil {
		d.wipes[name]()
		delete(d.wipes, name)
	}
}

// WipeAll removes the ResourceSlices of all drivers of the node. None is registered when the agent starts,
// and some may never come back. If the first attempt fails, others follow in the background.
func (m *Manager) WipeAll(ctx context.Context) {
	if err := m.deleteSlices(ctx, ""); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove the ResourceSlices of the node, will retry")
		go m.wipe(ctx, "")
	}
}

// wipe removes the ResourceSlices of a driver, or of all if its name is empty. It retries until it succeeds.
func (m *Manager) wipe(ctx context.Context, driver string) {
	for pause := wipeRetryMin; ; pause = min(2*pause, wipeRetryMax) {
		err := m.deleteSlices(ctx, driver)
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Cannot remove the ResourceSlices of a driver, will retry", "driver", driver)
		select {
		case <-ctx.Done():
		case <-m.options.Clock.After(pause):
		}
	}
}

func (m *Manager) deleteSlices(ctx context.Context, driver string) error {
	selector := fields.Set{resourcev1.ResourceSliceSelectorNodeName: m.options.Node}
	if driver != "" {
		selector[resourcev1.ResourceSliceSelectorDriver] = driver
	}
	return m.options.Client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: selector.String()})
}
