// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/node/memory"
	"github.com/kindred-project/kindred/internal/node/topology"
)

// TestNothingIsAssignedTwice: pods come and go, and the agent is killed between any two steps, also in the middle of a
// write. No CPU, device or byte of a NUMA node belongs to two pods, no reserved CPU to any, and no pod's changes.
func TestNothingIsAssignedTwice(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 4))
		b := newBed(t, func(c *config.Configuration) {
			c.TopologyManagerPolicy = []string{topology.None, topology.BestEffort, topology.Restricted, topology.SingleNUMANode}[random.IntN(4)]
			c.TopologyManagerScope = []string{topology.ContainerScope, topology.PodScope}[random.IntN(2)]
		})
		m, had := b.agent(), map[types.UID]string{}
		for step := range 25 {
			uid := types.UID(fmt.Sprint(random.IntN(6)))
			switch random.IntN(4) {
			case 0:
				if err := m.Release(uid); err != nil {
					t.Fatal(err)
				}
				delete(had, uid)
			case 1:
				leftover := filepath.Join(b.dir, "r", string(uid)+".json.new") // of a write that a crash interrupted
				if err := os.WriteFile(leftover, []byte("{"), 0o600); err != nil {
					t.Fatal(err)
				}
				m = b.agent()
			default:
				m.Assign(t.Context(), randomPod(random, string(uid)))
			}
			for uid, r := range m.store.all() {
				now := fmt.Sprintf("%+v", *r)
				if was, ok := had[uid]; ok && was != now {
					t.Fatalf("seed %d, step %d: pod %s had %s, and has %s", seed, step, uid, was, now)
				}
				had[uid] = now
			}
			if len(had) != len(m.store.all()) {
				t.Fatalf("seed %d, step %d: a pod has lost its resources", seed, step)
			}
			if err := check(m.store.all()); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
	}
}

func randomPod(random *rand.Rand, uid string) *v1.Pod {
	names := []string{"1i", "2s", "3i", "4", "5"}
	var wants []want
	for _, name := range names {
		if name == "4" || random.IntN(2) == 0 {
			wants = append(wants, want{name, random.Int64N(4), random.Int64N(500), random.Int64N(3)})
		}
	}
	return guaranteed(uid, wants...)
}

func check(records map[types.UID]*record) error {
	cpus, devices, held := cpuset.New(0), map[string]types.UID{}, map[topology.Mask]uint64{}
	for uid, r := range records {
		if both := cpus.Intersection(r.cpus()); !both.IsEmpty() {
			return fmt.Errorf("CPUs %s are reserved or belong to two pods", both)
		}
		cpus = cpus.Union(r.cpus())
		all, _ := r.devices(deviceName)
		for id := range all {
			if other, taken := devices[id]; taken {
				return fmt.Errorf("device %s belongs to pods %s and %s", id, uid, other)
			}
			devices[id] = uid
		}
		for _, b := range memory.Held(r.uses()) {
			held[b.Nodes] += b.Size
		}
		if err := checkContainers(r); err != nil {
			return fmt.Errorf("pod %s: %w", uid, err)
		}
	}
	for group, size := range held {
		total := uint64(1000 * group.Count())
		if group.Has(0) {
			total -= 100
		}
		if size > total {
			return fmt.Errorf("NUMA nodes %v hold %d of %d bytes", group, size, total)
		}
	}
	return nil
}

// checkContainers checks that containers that run at the same time share nothing.
func checkContainers(r *record) error {
	for i, a := range r.Containers {
		for _, b := range r.Containers[i+1:] {
			if a.Ends {
				continue
			}
			if both := a.cpus().Intersection(b.cpus()); !both.IsEmpty() {
				return fmt.Errorf("containers %s and %s share CPUs %s", a.Name, b.Name, both)
			}
			for _, id := range a.Devices[deviceName].IDs {
				for _, other := range b.Devices[deviceName].IDs {
					if id == other {
						return fmt.Errorf("containers %s and %s share device %s", a.Name, b.Name, id)
					}
				}
			}
		}
	}
	return nil
}
