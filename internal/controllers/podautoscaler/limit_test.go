// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podautoscaler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

func rules(window int32, selection autoscalingv2.ScalingPolicySelect, policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	return &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window, SelectPolicy: &selection, Policies: policies}
}

func atMost(value int32, period int32) autoscalingv2.HPAScalingPolicy {
	return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: value, PeriodSeconds: period}
}

func percent(value int32, period int32) autoscalingv2.HPAScalingPolicy {
	return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: value, PeriodSeconds: period}
}

const (
	largest  = autoscalingv2.MaxChangePolicySelect
	least    = autoscalingv2.MinChangePolicySelect
	disabled = autoscalingv2.DisabledPolicySelect
)

// TestLimit follows autoscalers over time: each step has a recommendation, 15 seconds after the step
// before, and the replicas that follow.
func TestLimit(t *testing.T) {
	type step struct {
		recommended, replicas int32
		able, limit           string
		hit                   bool
	}
	within := func(recommended, replicas int32, able string) step {
		return step{recommended, replicas, able, "DesiredWithinRange", false}
	}
	const ready, down, up = "ReadyForNewScale", "ScaleDownStabilized", "ScaleUpStabilized"
	down100 := rules(0, largest, percent(100, 15))
	for _, test := range []struct {
		name   string
		bounds bounds
		first  int32
		steps  []step
	}{
		{"by default at most twice the replicas, or 4", bounds{min: 1, max: 20}, 1, []step{
			{10, 4, ready, "ScaleUpLimit", true}, {10, 8, ready, "ScaleUpLimit", true}, within(10, 10, ready), {30, 20, ready, "TooManyReplicas", true},
		}},
		{"by default the largest recommendation of five minutes", bounds{min: 2, max: 20}, 5, []step{
			within(1, 5, down), within(6, 6, ready), within(1, 6, down),
		}},
		{"the minimum", bounds{min: 2, max: 20, up: down100, down: down100}, 5, []step{{1, 2, ready, "TooFewReplicas", true}}},
		// The examples of https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/#configurable-scaling-behavior
		{"scale down by 4 pods or 10 percent", bounds{min: 1, max: 100, up: down100, down: rules(0, largest, atMost(4, 60), percent(10, 60))}, 80, []step{
			{10, 72, ready, "ScaleDownLimit", true}, {10, 72, ready, "ScaleDownLimit", true}, {10, 72, ready, "ScaleDownLimit", true}, {10, 72, ready, "ScaleDownLimit", true},
			{10, 64, ready, "ScaleDownLimit", true},
		}},
		{"scale down by the least of two policies", bounds{min: 1, max: 100, up: down100, down: rules(0, least, percent(10, 60), atMost(5, 60))}, 80, []step{
			{10, 75, ready, "ScaleDownLimit", true}, {10, 75, ready, "ScaleDownLimit", true},
		}},
		{"no scaling down", bounds{min: 1, max: 10, up: down100, down: rules(0, disabled, percent(100, 15))}, 8, []step{
			{1, 8, ready, "ScaleDownLimit", true}, within(9, 9, ready),
		}},
		{"scale up slowly", bounds{min: 1, max: 10, up: rules(0, largest, atMost(1, 60)), down: down100}, 1, []step{
			{9, 2, ready, "ScaleUpLimit", true}, {9, 2, ready, "ScaleUpLimit", true}, {9, 2, ready, "ScaleUpLimit", true}, {9, 2, ready, "ScaleUpLimit", true}, {9, 3, ready, "ScaleUpLimit", true},
		}},
		{"percents are rounded up", bounds{min: 1, max: 10, up: rules(0, largest, percent(10, 15)), down: down100}, 1, []step{{9, 2, ready, "ScaleUpLimit", true}}},
		{"a window of scaling up", bounds{min: 1, max: 10, up: rules(30, largest, percent(900, 15)), down: down100}, 2, []step{
			within(6, 2, up), within(8, 6, up), within(8, 8, ready),
		}},
		{"a window of scaling down", bounds{min: 1, max: 10, up: down100, down: rules(30, largest, percent(100, 15))}, 8, []step{
			within(4, 8, down), within(2, 4, down), within(2, 2, ready),
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := &memory{recommendations: []moment{{start, test.first}}}
			current, now := test.first, start
			for i, s := range test.steps {
				now = now.Add(15 * time.Second)
				got := m.limit(test.bounds, current, s.recommended, now)
				if is := (step{s.recommended, got.replicas, got.able.reason, got.limit.reason, got.hit}); is != s {
					t.Fatalf("step %d: got %v, want %v", i, is, s)
				}
				m.changed(test.bounds, current, got.replicas, now)
				current = got.replicas
			}
		})
	}
}

// model computes the limits from the whole history of replicas, without a memory of changes.
type model struct {
	recommendations []moment
	// timeline has the replicas from each moment on.
	timeline []moment
}

func (m *model) replicasAt(at time.Time) int32 {
	replicas := m.timeline[0].replicas
	for _, e := range m.timeline {
		if !e.at.After(at) {
			replicas = e.replicas
		}
	}
	return replicas
}

// recent returns the extremes of the recommendations in a window.
func (m *model) recent(window *int32, now time.Time) (least, most int32) {
	least, most = math.MaxInt32, 0
	since := now.Add(-time.Duration(*window) * time.Second)
	for i, r := range m.recommendations {
		if i == len(m.recommendations)-1 || r.at.After(since) {
			least, most = min(least, r.replicas), max(most, r.replicas)
		}
	}
	return least, most
}

// allowed returns the farthest replicas in one direction that the policies allow.
func (m *model) allowed(r *autoscalingv2.HPAScalingRules, up bool, now time.Time) int32 {
	current := m.timeline[len(m.timeline)-1].replicas
	if *r.SelectPolicy == disabled {
		return current
	}
	var results []float64
	for _, p := range r.Policies {
		began := float64(m.replicasAt(now.Add(-time.Duration(p.PeriodSeconds) * time.Second)))
		isPercent, value := p.Type == autoscalingv2.PercentScalingPolicy, float64(p.Value)
		switch {
		case isPercent && up:
			results = append(results, math.Ceil(began*(1+value/100)))
		case isPercent:
			results = append(results, math.Trunc(began*(1-value/100)))
		case up:
			results = append(results, began+value)
		default:
			results = append(results, began-value)
		}
	}
	pick := results[0]
	for _, r2 := range results {
		if up == (*r.SelectPolicy == largest) {
			pick = max(pick, r2)
		} else {
			pick = min(pick, r2)
		}
	}
	if up {
		return int32(max(pick, float64(current)))
	}
	return int32(min(pick, float64(current)))
}

func (m *model) limit(b bounds, recommended int32, now time.Time) int32 {
	current := m.timeline[len(m.timeline)-1].replicas
	m.recommendations = append(m.recommendations, moment{now, recommended})
	wanted := current
	if least, _ := m.recent(b.up.StabilizationWindowSeconds, now); least > wanted {
		wanted = least
	}
	if _, most := m.recent(b.down.StabilizationWindowSeconds, now); most < wanted {
		wanted = most
	}
	switch {
	case wanted > current:
		wanted = min(wanted, m.allowed(b.up, true, now), b.max)
	case wanted < current:
		wanted = max(wanted, m.allowed(b.down, false, now), b.min)
	}
	m.timeline = append(m.timeline, moment{now, wanted})
	return wanted
}

// TestLimitAgainstModel compares the limits with the model, for random rules, recommendations and
// pauses.
func TestLimitAgainstModel(t *testing.T) {
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 1))
		randomRules := func() *autoscalingv2.HPAScalingRules {
			r := rules(random.Int32N(5)*20, []autoscalingv2.ScalingPolicySelect{largest, least, largest, least, disabled}[random.IntN(5)])
			for range 1 + random.IntN(3) {
				policy := atMost(1+random.Int32N(5), 15*(1+random.Int32N(6)))
				if random.IntN(2) == 0 {
					policy = percent(10*(1+random.Int32N(12)), policy.PeriodSeconds)
				}
				r.Policies = append(r.Policies, policy)
			}
			return r
		}
		b := bounds{min: 1 + random.Int32N(3), max: 10 + random.Int32N(40), up: randomRules(), down: randomRules()}
		current, now := b.min, start
		m := &memory{recommendations: []moment{{now, current}}}
		model := &model{recommendations: []moment{{now, current}}, timeline: []moment{{now, current}}}
		for step := range 120 {
			now = now.Add(time.Duration(1+random.IntN(30)) * time.Second)
			recommended := random.Int32N(60)
			if step%10 > 4 { // phases of steady load
				recommended = 40 * int32(step/10%2)
			}
			got, want := m.limit(b, current, recommended, now).replicas, model.limit(b, recommended, now)
			if got != want {
				t.Fatalf("seed %d, step %d: from %d, recommended %d: %d replicas, want %d\n%s", seed, step, current, recommended, got, want, describe(b))
			}
			m.changed(b, current, got, now)
			current = got
		}
		if limit := 40; len(m.recommendations) > 2*limit || len(m.ups)+len(m.downs) > 4*limit {
			t.Errorf("seed %d: remembers %d recommendations, %d and %d changes", seed, len(m.recommendations), len(m.ups), len(m.downs))
		}
	}
}

func describe(b bounds) string {
	return fmt.Sprintf("%d-%d up %v down %v", b.min, b.max, b.up, b.down)
}
