// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
)

// readiness has the checks of /readyz for the parts. Each fails until the part is ready.
type readiness struct {
	names []string
	ready map[string]*atomic.Bool
}

var errNotReady = errors.New("not ready yet")

func newReadiness(names ...string) *readiness {
	r := &readiness{names: names, ready: map[string]*atomic.Bool{}}
	for _, name := range names {
		r.ready[name] = &atomic.Bool{}
	}
	return r
}

// pass makes the check of a part succeed.
func (r *readiness) pass(name string) { r.ready[name].Store(true) }

func (r *readiness) checkers() []healthz.HealthChecker {
	var out []healthz.HealthChecker
	for _, name := range r.names {
		out = append(out, healthz.NamedCheck(name, func(*http.Request) error {
			if r.ready[name].Load() {
				return nil
			}
			return errNotReady
		}))
	}
	return out
}

// steps reports the completed steps of a start, and how long each took.
type steps struct {
	config Config
	last   time.Time
}

func newSteps(config Config) *steps { return &steps{config: config, last: config.Clock.Now()} }

func (s *steps) done(step string) {
	now := s.config.Clock.Now()
	if s.config.Progress != nil {
		s.config.Progress(step, now.Sub(s.last))
	}
	s.last = now
}
