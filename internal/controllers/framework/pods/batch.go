// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"sync"
	"sync/atomic"
)

// parallelism limits the API calls that one reconcile has in flight: enough to keep an
// in-process API server busy, few enough to leave room for other owners.
const parallelism = 32

// SlowStart calls fn(0) to fn(n-1) in batches of 1, 2, 4 ..., and stops after the first
// batch with a failed call. If all calls must fail (a quota, a webhook), it wastes only a
// few calls and events. It returns the number of calls that succeeded, and one error.
func SlowStart(n int, fn func(i int) error) (succeeded int, err error) {
	for done, batch := 0, 1; done < n; batch *= 2 {
		size := min(batch, n-done)
		ok, err := Parallel(size, func(i int) error { return fn(done + i) })
		succeeded += ok
		if err != nil {
			return succeeded, err
		}
		done += size
	}
	return succeeded, nil
}

// Parallel calls fn(0) to fn(n-1), at most parallelism at a time, and waits for all. It
// returns the number of calls that succeeded, and the first error.
func Parallel(n int, fn func(i int) error) (succeeded int, err error) {
	var next, ok atomic.Int64
	var first atomic.Pointer[error]
	var workers sync.WaitGroup
	for range min(n, parallelism) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := fn(i); err != nil {
					first.CompareAndSwap(nil, &err)
					continue
				}
				ok.Add(1)
			}
		})
	}
	workers.Wait()
	if failed := first.Load(); failed != nil {
		err = *failed
	}
	return int(ok.Load()), err
}
