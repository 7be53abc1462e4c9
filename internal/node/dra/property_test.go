// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// TestRandomWalk lets pods that share claims start and stop while drivers fail and the agent is replaced. While
// a pod runs, its claims are prepared; when it has stopped, no claim is but those of other pods; at the end
// none is.
func TestRandomWalk(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		d, e := newDriver(t, "d", withV1), newDriver(t, "e", withV1)
		w := newWorld(t, d, e)
		pods := map[string][]string{"a": {"one", "both"}, "b": {"both", "two"}, "c": {"one", "two", "both"}}
		w.allocated("one", []string{"d"}, "a", "b", "c")
		w.allocated("two", []string{"e"}, "a", "b", "c")
		w.allocated("both", []string{"d", "e"}, "a", "b", "c")
		running, started := map[string]bool{}, map[string]bool{}
		for step := range 60 {
			name := []string{"a", "b", "c"}[r.IntN(3)]
			for _, driver := range []*fakeDriver{d, e} {
				fails := r.IntN(4) == 0
				driver.set(func() {
					clear(driver.fail)
					if fails {
						driver.fail["prepare"], driver.fail["unprepare"] = errors.New("broken"), errors.New("broken")
					}
				})
			}
			switch r.IntN(5) {
			case 0:
				w.restart(d, e)
			case 1, 2:
				if started[name] {
					if w.Unprepare(t.Context(), types.UID(name)) == nil {
						delete(started, name)
					}
					delete(running, name)
				}
			default:
				started[name] = true
				if w.Prepare(t.Context(), podWith(name, pods[name]...)) == nil {
					running[name] = true
				}
			}
			for _, driver := range []*fakeDriver{d, e} {
				if problem := w.wrong(driver, pods, running, started); problem != "" {
					t.Fatalf("seed %d, step %d: driver %s: %s", seed, step, driver.name, problem)
				}
			}
		}
		d.set(func() { clear(d.fail) })
		e.set(func() { clear(e.fail) })
		w.restart(d, e)
		check(t, "the end", w.RemoveOrphans(t.Context(), func(types.UID) bool { return false }), "")
		if left := append(w.prepared(d), w.prepared(e)...); len(left)+len(w.records()) > 0 {
			t.Errorf("seed %d: prepared at the end: %v, records %v", seed, left, w.records())
		}
	}
}

// wrong returns the claims that are prepared and must not be, and those that must be and are not.
func (w *world) wrong(d *fakeDriver, pods map[string][]string, running, started map[string]bool) string {
	needed, allowed := map[string]bool{}, map[string]bool{}
	for name, claims := range pods {
		for _, claim := range claims {
			of := map[string][]string{"one": {"d"}, "two": {"e"}, "both": {"d", "e"}}[claim]
			if slices.Contains(of, d.name) {
				needed["uid-"+claim] = needed["uid-"+claim] || running[name]
				allowed["uid-"+claim] = allowed["uid-"+claim] || started[name]
			}
		}
	}
	prepared := w.prepared(d)
	for claim, want := range needed {
		if want && !slices.Contains(prepared, claim) {
			return fmt.Sprintf("%s is not prepared", claim)
		}
	}
	for _, claim := range prepared {
		if !allowed[claim] {
			return fmt.Sprintf("%s is prepared", claim)
		}
	}
	return ""
}

var _ drapb.DRAPluginServer = &fakeDriver{}
