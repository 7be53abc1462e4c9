// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"math"
	"net/http"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"
)

// memoryLimit keeps the process below Go's memory limit. Garbage collection alone cannot, because
// requests in progress and stored objects are not garbage. Near the limit, requests get 429: first
// large requests of clients (memoryneeds.go), then all requests that create objects. Deletions, small
// updates, leases, and lists and watches of the cluster's own parts are always served.
//
// The limit is read from the Go runtime, so it does not matter whether Options.Memory, GOMEMLIMIT or
// debug.SetMemoryLimit has set it.
type memoryLimit struct {
	bytes int64
	needs needs
	// used returns the memory in use, including garbage. collect runs a garbage collection.
	used    func() int64
	collect func()
	clock   clock.PassiveClock

	mu        sync.Mutex
	reserved  int64 // for requests in progress
	collected time.Time
}

const (
	// Requests may reserve memory up to requestShare of the limit, and create objects up to createShare.
	// The rest is for requests that are always served, and for errors of the estimates.
	requestShare = 0.80
	createShare  = 0.90
	// collectPeriod is the minimum time between two collections that memoryLimit starts.
	collectPeriod = time.Second
	// memoryRetry is the Retry-After of refused requests, in seconds.
	memoryRetry = 2
)

// newMemoryLimit returns nil if the process has no memory limit.
func newMemoryLimit(n needs) *memoryLimit {
	bytes := debug.SetMemoryLimit(-1)
	if bytes == math.MaxInt64 {
		return nil
	}
	return &memoryLimit{bytes: bytes, needs: n, used: memoryInUse, collect: runtime.GC, clock: clock.RealClock{}}
}

// memoryInUse returns the size of all objects, including garbage, and of stacks. It leaves out free
// memory and fragmentation, which further objects can use.
func memoryInUse() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() + samples[1].Value.Uint64())
}

// reserve reserves memory unless more than a share of the limit would be in use.
func (m *memoryLimit) reserve(bytes int64, share float64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := int64(share * float64(m.bytes))
	used := m.used()
	if used+m.reserved+bytes > most && m.clock.Since(m.collected) >= collectPeriod {
		m.collect()
		m.collected = m.clock.Now()
		used = m.used()
	}
	if used+m.reserved+bytes > most {
		return m.exceeded(used, bytes)
	}
	m.reserved += bytes
	return nil
}

func (m *memoryLimit) release(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reserved -= bytes
}

// exceeded returns the error of a refused request.
func (m *memoryLimit) exceeded(used, bytes int64) error {
	message := fmt.Sprintf("the server uses %s of the %s of memory that it may use", humanBytes(uint64(used)), humanBytes(uint64(m.bytes)))
	const worthSaying = 1 << 20
	if m.reserved >= worthSaying {
		message += fmt.Sprintf(", other requests need %s", humanBytes(uint64(m.reserved)))
	}
	if bytes >= worthSaying {
		message += fmt.Sprintf(", this one about %s", humanBytes(uint64(bytes)))
	}
	return apierrors.NewTooManyRequests(message+": try again later, list in smaller pages, or delete unused objects", memoryRetry)
}

// wrap refuses requests of clients that need more memory than is available.
func (m *memoryLimit) wrap(next http.Handler, codec k8sruntime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, found := request.RequestInfoFrom(r.Context())
		caller, known := request.UserFrom(r.Context())
		if !found || !known || isPart(caller.GetName()) {
			next.ServeHTTP(w, r)
			return
		}
		need := m.needs.of(info, r)
		if need == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if err := m.reserve(need, requestShare); err != nil {
			responsewriters.ErrorNegotiated(err, codec, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
			return
		}
		if info.Verb == "watch" {
			// Once it has started, the memory of a watch is part of the memory in use.
			m.release(need)
		} else {
			defer m.release(need)
		}
		next.ServeHTTP(w, r)
	})
}

// admit refuses to create an object near the limit.
func (m *memoryLimit) admit(a admission.Attributes) error {
	if a.GetOperation() != admission.Create || !takesRoom(a) {
		return nil
	}
	return m.reserve(0, createShare)
}
