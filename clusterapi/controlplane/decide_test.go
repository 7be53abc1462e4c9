// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	good := func(names ...string) (all []server) {
		for i, name := range names {
			all = append(all, server{name: name, created: time.Unix(int64(i), 0), upToDate: true, healthy: true})
		}
		return all
	}
	with := func(all []server, change func([]server)) []server { change(all); return all }
	tests := map[string]struct {
		servers  []server
		wanted   int
		starting bool
		step     step
		machine  string
	}{
		"no machine":                              {wanted: 1, starting: true, step: begin},
		"the first does not answer":               {servers: good("a"), wanted: 3, starting: true, step: wait},
		"one as wanted":                           {servers: good("a"), wanted: 1, step: nothing},
		"scaled up":                               {servers: good("a"), wanted: 3, step: add},
		"scaled down":                             {servers: good("a", "b", "c"), wanted: 1, step: remove, machine: "a"},
		"the new one has not joined":              {servers: with(good("a", "b"), func(s []server) { s[1].healthy = false }), wanted: 3, step: wait},
		"one is being deleted":                    {servers: with(good("a", "b"), func(s []server) { s[0].deleting = true }), wanted: 1, step: wait},
		"out of date":                             {servers: with(good("a"), func(s []server) { s[0].upToDate = false }), wanted: 1, step: add},
		"out of date, the new one has not joined": {servers: with(good("a", "b"), func(s []server) { s[0].upToDate, s[1].healthy = false, false }), wanted: 1, step: wait},
		"out of date, replaced":                   {servers: with(good("a", "b"), func(s []server) { s[0].upToDate = false }), wanted: 1, step: remove, machine: "a"},
		"out of date, and down":                   {servers: with(good("a", "b", "c", "d"), func(s []server) { s[1].upToDate, s[1].healthy = false, false }), wanted: 3, step: remove, machine: "b"},
		"the only one is unhealthy":               {servers: with(good("a"), func(s []server) { s[0].unhealthy, s[0].healthy = true, false }), wanted: 1, step: wait},
		"one of three is unhealthy":               {servers: with(good("a", "b", "c"), func(s []server) { s[2].unhealthy, s[2].healthy = true, false }), wanted: 3, step: remove, machine: "c"},
		"two of three are unhealthy":              {servers: with(good("a", "b", "c"), func(s []server) { s[1].unhealthy, s[1].healthy, s[2].healthy = true, false, false }), wanted: 3, step: wait},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(tt.servers, tt.wanted, !tt.starting)
			if got.step != tt.step || got.machine != tt.machine {
				t.Errorf("got %+v, want step %d of %q", got, tt.step, tt.machine)
			}
		})
	}
}

// TestDecideConverges: whatever is there at the beginning, a control plane whose machines join when they are made gets to the wanted number
// of machines that are up to date, and never removes the majority.
func TestDecideConverges(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		wanted := []int{1, 3, 5}[random.IntN(3)]
		var servers []server
		for i := range random.IntN(6) {
			servers = append(servers, server{name: fmt.Sprint(i), created: time.Unix(int64(i), 0), healthy: true, upToDate: random.IntN(2) == 0})
		}
		next := len(servers)
		for steps := 0; ; steps++ {
			if steps > 50 {
				t.Fatalf("seed %d: no end, with %+v", seed, servers)
			}
			d := decide(servers, wanted, true)
			switch d.step {
			case begin, add:
				servers = append(servers, server{name: fmt.Sprint(next), created: time.Unix(int64(next), 0), healthy: true, upToDate: true})
				next++
			case remove:
				before := len(servers)
				servers = slices.DeleteFunc(servers, func(s server) bool { return s.name == d.machine })
				if len(servers) != before-1 || len(servers) == 0 {
					t.Fatalf("seed %d: %+v removes no machine, or the last one", seed, d)
				}
			case wait:
				t.Fatalf("seed %d: waits for nothing: %+v", seed, d)
			}
			if len(servers) > max(wanted+1, 6) {
				t.Fatalf("seed %d: %d machines, and %d are wanted", seed, len(servers), wanted)
			}
			if d.step == nothing {
				break
			}
		}
		if len(servers) != wanted || slices.ContainsFunc(servers, func(s server) bool { return !s.upToDate }) {
			t.Fatalf("seed %d: ends with %+v", seed, servers)
		}
	}
}
