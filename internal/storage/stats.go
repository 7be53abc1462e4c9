// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"
)

const (
	// statsPeriod is the minimum time between two calculations. One takes about 400 ns per object.
	statsPeriod = time.Second
	// statsTimeout limits the wait for a watch cache that lags behind the store or is still being filled.
	statsTimeout = time.Second
)

// Stats returns the number of a resource's objects and their average size in the store, in bytes. They are at most statsPeriod old,
// unless the last calculation failed. The counts of k8s.io/apiserver can be a minute old, in which thousands of objects can be created.
// The size is 0 if the resource has no watch cache.
//
// It fails if the resource is not stored here, or if none of its versions has ever been counted.
func (b *Backend) Stats(ctx context.Context, resource schema.GroupResource) (storage.Stats, error) {
	versions, err := b.open.all(resource)
	if err != nil {
		return storage.Stats{}, err
	}
	var most storage.Stats
	var failures []error
	// Each version of a custom resource counts all objects. Only one that is read knows their size.
	for _, version := range versions {
		stats, err := version.stats.read(ctx)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		most.ObjectCount = max(most.ObjectCount, stats.ObjectCount)
		most.EstimatedAverageObjectSizeBytes = max(most.EstimatedAverageObjectSizeBytes, stats.EstimatedAverageObjectSizeBytes)
	}
	if len(failures) == len(versions) {
		return storage.Stats{}, errors.Join(failures...)
	}
	return most, nil
}

// recentStats keeps the statistics of a resource for statsPeriod.
type recentStats struct {
	calculate func(context.Context) (storage.Stats, error)
	clock     clock.PassiveClock

	mu    sync.Mutex
	known bool
	last  storage.Stats
	err   error
	tried time.Time
}

// read calculates the statistics unless they are recent. Concurrent callers wait for one calculation. If it fails, the last ones are better
// than none.
func (r *recentStats) read(ctx context.Context) (storage.Stats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clock.Since(r.tried) >= statsPeriod {
		r.renew(ctx)
	}
	if !r.known {
		return storage.Stats{}, r.err
	}
	return r.last, nil
}

// renew is for callers that hold mu.
func (r *recentStats) renew(ctx context.Context) {
	// Other callers use the result too, so the end of this caller's request must not cancel it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statsTimeout)
	defer cancel()
	stats, err := r.calculate(ctx)
	r.tried, r.err = r.clock.Now(), err
	if err == nil {
		r.known, r.last = true, stats
	}
}
