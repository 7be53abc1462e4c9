// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Unprepare implements pod.Claims. A driver that fails does not keep the others from unpreparing theirs.
func (m *Manager) Unprepare(ctx context.Context, pod types.UID) error {
	if err := m.unprepare(ctx, pod); err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) unprepare(ctx context.Context, pod types.UID) error {
	used := slices.DeleteFunc(m.options.Store.all(), func(c claim) bool { return !c.isFor(pod) })
	if len(used) == 0 {
		return nil
	}
	unlock, err := m.locks.lock(ctx, keysOf(used))
	if err != nil {
		return err
	}
	defer unlock()
	var last []claim
	for _, key := range keysOf(used) {
		c, detached, err := m.detach(key, pod)
		if err != nil {
			return err
		}
		if !detached {
			last = append(last, c)
		}
	}
	failed := map[types.UID]bool{}
	var failures []error
	for _, name := range driversIn(last) {
		if err := m.callUnprepare(ctx, name, last); err != nil {
			failures = append(failures, err)
			for _, c := range last {
				if _, has := c.Drivers[name]; has {
					failed[c.UID] = true
				}
			}
		}
	}
	for _, c := range last {
		if !failed[c.UID] {
			failures = append(failures, m.options.Store.remove(c))
		}
	}
	return errors.Join(failures...)
}

// detach records that a pod no longer uses a claim. If it is the last one, it keeps the claim until that is
// unprepared.
func (m *Manager) detach(key string, pod types.UID) (c claim, detached bool, err error) {
	c, known := m.options.Store.get(key)
	if !known || !c.isFor(pod) {
		return c, true, nil
	}
	if len(c.Pods) > 1 {
		c.Pods = slices.DeleteFunc(slices.Clone(c.Pods), func(uid types.UID) bool { return uid == pod })
		return c, true, m.options.Store.write(c)
	}
	c.unpreparing, c.prepared = true, false
	m.options.Store.note(c)
	return c, false, nil
}

func (m *Manager) callUnprepare(ctx context.Context, driver string, claims []claim) error {
	d, err := m.drivers.get(driver)
	if err != nil {
		return err
	}
	request := requestFor(driver, claims)
	response, err := d.unprepare(ctx, request)
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	return checkResponse("NodeUnprepareResources", request, response)
}

func driversIn(claims []claim) []string {
	names := map[string]bool{}
	for _, c := range claims {
		for name := range c.Drivers {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
