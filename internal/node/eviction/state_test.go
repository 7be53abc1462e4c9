// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

var begin = time.Unix(1_800_000_000, 0)

// available returns observations of a capacity of 1000.
func available(at time.Time, values map[Signal]int64) Observations {
	seen := Observations{}
	for signal, n := range values {
		seen[signal] = Observation{Available: binary(n), Capacity: binary(1000), Time: at}
	}
	return seen
}

func quantity(n int64) Value {
	q := binary(n)
	return Value{Quantity: &q}
}

// TestStep follows a hard and a soft threshold of memory, with a minimum reclaim and a transition period of 30 s.
func TestStep(t *testing.T) {
	reclaim := quantity(50)
	thresholds := []Threshold{
		{Signal: MemoryAvailable, Value: quantity(100), MinReclaim: &reclaim},
		{Signal: MemoryAvailable, Value: quantity(300), Grace: 20 * time.Second},
		{Signal: NodeFsAvailable, Value: Value{Share: 0.1}},
	}
	var state State
	for _, step := range []struct {
		after      time.Duration
		memory     int64
		disk       int64
		conditions []v1.NodeConditionType
		act        []string
	}{
		{0, 500, 500, nil, nil},
		{10, 300, 100, nil, nil}, // the values themselves are enough
		{20, 299, 500, []v1.NodeConditionType{v1.NodeMemoryPressure}, nil},
		{30, 299, 500, []v1.NodeConditionType{v1.NodeMemoryPressure}, nil},
		{40, 299, 500, []v1.NodeConditionType{v1.NodeMemoryPressure}, []string{"memory.available<300 for 20s"}},
		{41, 299, 99, []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure}, []string{"memory.available<300 for 20s", "nodefs.available<10%"}},
		{50, 400, 100, []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure}, nil},
		{70, 400, 100, []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure}, nil},
		{71, 400, 100, nil, nil}, // 30 s after both were last met
		{80, 299, 500, []v1.NodeConditionType{v1.NodeMemoryPressure}, nil},
		{85, 99, 500, []v1.NodeConditionType{v1.NodeMemoryPressure}, []string{"memory.available<100 reclaim 50"}},
		{95, 149, 500, []v1.NodeConditionType{v1.NodeMemoryPressure}, []string{"memory.available<100 reclaim 50"}},
		{99, 149, 500, []v1.NodeConditionType{v1.NodeMemoryPressure}, []string{"memory.available<100 reclaim 50"}},
		{100, 149, 500, []v1.NodeConditionType{v1.NodeMemoryPressure}, []string{"memory.available<100 reclaim 50", "memory.available<300 for 20s"}},
		{110, 350, 500, []v1.NodeConditionType{v1.NodeMemoryPressure}, nil},
		{120, 149, 500, []v1.NodeConditionType{v1.NodeMemoryPressure}, nil}, // resolved: only below 100 counts again
	} {
		now := begin.Add(step.after * time.Second)
		var out Outcome
		state, out = state.Step(thresholds, 30*time.Second, available(now, map[Signal]int64{MemoryAvailable: step.memory, NodeFsAvailable: step.disk}), now)
		if diff := cmp.Diff(step.conditions, out.Conditions); diff != "" {
			t.Errorf("after %d s: conditions (-want +got):\n%s", step.after, diff)
		}
		if diff := cmp.Diff(step.act, texts(out.Act)); diff != "" {
			t.Errorf("after %d s: thresholds (-want +got):\n%s", step.after, diff)
		}
	}
}

// TestStepProperties compares random walks with the definition of each rule over the whole history.
func TestStepProperties(t *testing.T) {
	type moment struct {
		at    time.Time
		value int64
	}
	acted := 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		threshold := Threshold{Signal: PIDAvailable, Value: quantity(100), Grace: time.Duration(r.IntN(3)) * 10 * time.Second}
		if r.IntN(2) == 0 {
			more := quantity(int64(r.IntN(50)))
			threshold.MinReclaim = &more
		}
		transition := time.Duration(1+r.IntN(60)) * time.Second
		var state State
		var history []moment
		now, since, due := begin, time.Time{}, false
		for range 60 {
			now = now.Add(time.Duration(1+r.IntN(10)) * time.Second)
			value := int64(50 + r.IntN(120))
			history = append(history, moment{now, value})
			var out Outcome
			state, out = state.Step([]Threshold{threshold}, transition, available(now, map[Signal]int64{PIDAvailable: value}), now)

			least := int64(100)
			if due && threshold.MinReclaim != nil {
				least += threshold.MinReclaim.Quantity.Value()
			}
			switch {
			case value >= least:
				since, due = time.Time{}, false
			case since.IsZero():
				since = now
			}
			if !since.IsZero() && now.Sub(since) >= threshold.Grace {
				due = true
			}
			if got := len(out.Act) > 0; got != due {
				t.Fatalf("seed %d, %v: acts %t, want %t; threshold %s, history %v", seed, now.Sub(begin), got, due, text(threshold), history)
			}
			recently := slices.ContainsFunc(history, func(m moment) bool { return m.value < 100 && now.Sub(m.at) < transition })
			under := len(out.Conditions) > 0
			if recently && !under {
				t.Fatalf("seed %d: no pressure, though the threshold was met in the last %v: %v", seed, transition, history)
			}
			if under && !recently && threshold.MinReclaim == nil {
				t.Fatalf("seed %d: pressure, though the threshold was not met in the last %v: %v", seed, transition, history)
			}
			if due {
				acted++
			}
		}
	}
	if acted < 1000 {
		t.Errorf("only %d times due: the test is too weak", acted)
	}
}

// TestStepWithoutNews: a value that was not measured again is not acted upon twice, and an unknown one never.
func TestStepWithoutNews(t *testing.T) {
	thresholds := []Threshold{{Signal: MemoryAvailable, Value: quantity(100)}}
	seen := available(begin, map[Signal]int64{MemoryAvailable: 10})
	state, out := State{}.Step(thresholds, time.Minute, seen, begin)
	if len(out.Act) != 1 {
		t.Errorf("acts upon %v", out.Act)
	}
	state, out = state.Step(thresholds, time.Minute, seen, begin.Add(time.Second))
	if len(out.Act) != 0 || len(out.Conditions) != 1 {
		t.Errorf("the same observation: acts upon %v, conditions %v", out.Act, out.Conditions)
	}
	if _, out = state.Step(thresholds, time.Minute, nil, begin.Add(time.Hour)); len(out.Act)+len(out.Conditions) != 0 {
		t.Errorf("no observation: acts upon %v, conditions %v", out.Act, out.Conditions)
	}
}
