// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"sync"
	"sync/atomic"
)

// parallelism bounds the API calls that one reconcile has in flight: enough to
// keep an in-process API server busy, few enough that one owner does not crowd
// out the others.
const parallelism = 32

// SlowStart calls fn(0) up to fn(n-1) in batches of 1, 2, 4 ..., and stops after
// the first batch in which a call failed: when every call is bound to fail (a
// quota, a webhook), only a few are wasted, with their events. It returns how
// many calls succeeded and one of the errors.
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

// Parallel calls fn(0) ... fn(n-1), a bounded number at a time, and waits for
// all. It returns how many succeeded and the first error that occurred.
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
