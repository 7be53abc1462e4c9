// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podautoscaler

import (
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

const (
	// downscaleWindow is the stabilization window of scaling down, unless spec.behavior has one.
	downscaleWindow = 5 * time.Minute
	// Without spec.behavior, a pass at most doubles the replicas, or sets upLimitLeast.
	upLimitFactor = 2
	upLimitLeast  = 4
)

// moment is a number of replicas at a time: a recommendation, or the size of a change.
type moment struct {
	at       time.Time
	replicas int32
}

// memory is the history on which the limits of one autoscaler depend.
type memory struct {
	// recommendations are the results of the metrics, before any limit.
	recommendations []moment
	// ups and downs are the changes that were made. They are positive.
	ups, downs []moment
}

// bounds limit an autoscaler.
type bounds struct {
	min, max int32
	// up and down are nil without spec.behavior.
	up, down *autoscalingv2.HPAScalingRules
}

func boundsOf(spec *autoscalingv2.HorizontalPodAutoscalerSpec) bounds {
	b := bounds{min: 1, max: spec.MaxReplicas}
	if spec.MinReplicas != nil {
		b.min = *spec.MinReplicas
	}
	if spec.Behavior != nil {
		b.up, b.down = spec.Behavior.ScaleUp, spec.Behavior.ScaleDown
	}
	return b
}

// why is the reason and message of a condition.
type why struct{ reason, message string }

var (
	ready          = why{"ReadyForNewScale", "recommended size matches current size"}
	stabilizedUp   = why{"ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation"}
	stabilizedDown = why{"ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation"}

	within      = why{"DesiredWithinRange", "the desired count is within the acceptable range"}
	tooFew      = why{"TooFewReplicas", "the desired replica count is less than the minimum replica count"}
	tooMany     = why{"TooManyReplicas", "the desired replica count is more than the maximum replica count"}
	tooFastUp   = why{"ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"}
	tooFastDown = why{"ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"}
)

// limited is a number of replicas after all limits, and what the limits did.
type limited struct {
	replicas int32
	// able is of the condition AbleToScale. limit is of ScalingLimited, which is true if hit.
	able, limit why
	hit         bool
}

// limit remembers a recommendation and applies all limits to it. The memory must have at least one
// recommendation, the replicas when the autoscaler was first seen: a restarted controller must not
// scale down at once.
func (m *memory) limit(b bounds, current, recommended int32, now time.Time) limited {
	stable, able := m.stabilize(b, current, recommended, now)
	replicas, limit := m.bound(b, current, stable, now)
	m.forget(b, now)
	return limited{replicas: replicas, able: able, limit: limit, hit: replicas != stable}
}

// stabilize returns the recommendation that is nearest to the current replicas within the windows: no
// more than the least recent one when replicas are added, no fewer than the largest when removed.
func (m *memory) stabilize(b bounds, current, recommended int32, now time.Time) (int32, why) {
	upper, lower := recommended, recommended
	upStart, downStart := now.Add(-b.upWindow()), now.Add(-b.downWindow())
	for _, r := range m.recommendations {
		if b.hasRules() && r.at.After(upStart) {
			upper = min(upper, r.replicas)
		}
		// Without spec.behavior, the window includes its start.
		if r.at.After(downStart) || !b.hasRules() && r.at.Equal(downStart) {
			lower = max(lower, r.replicas)
		}
	}
	m.recommendations = append(m.recommendations, moment{now, recommended})
	stable := lower
	if b.hasRules() {
		stable = min(max(current, upper), lower)
	}
	switch {
	case stable == recommended:
		return stable, ready
	case b.hasRules() && recommended >= current:
		return stable, stabilizedUp
	}
	return stable, stabilizedDown
}

// bound applies the rates and the minimum and maximum.
func (m *memory) bound(b bounds, current, wanted int32, now time.Time) (int32, why) {
	if !b.hasRules() {
		return boundByDefault(b, current, wanted)
	}
	switch {
	case wanted > current:
		most, reason := b.max, tooMany
		if rate := max(m.upRate(b.up, current, now), current); rate < most {
			most, reason = rate, tooFastUp
		}
		if wanted > most {
			return most, reason
		}
	case wanted < current:
		least, reason := b.min, tooFew
		if rate := min(m.downRate(b.down, current, now), current); rate > least {
			least, reason = rate, tooFastDown
		}
		if wanted < least {
			return least, reason
		}
	}
	return wanted, within
}

func boundByDefault(b bounds, current, wanted int32) (int32, why) {
	most, reason := b.max, tooMany
	if rate := max(int64(current)*upLimitFactor, upLimitLeast); rate < int64(most) {
		most, reason = int32(rate), tooFastUp
	}
	switch {
	case wanted < b.min:
		return b.min, tooFew
	case wanted > most:
		return most, reason
	}
	return wanted, within
}

// upRate returns the most replicas that the policies of scaling up allow now. Each allows a change since
// the start of its period. The largest one decides, unless selectPolicy is Min.
func (m *memory) upRate(rules *autoscalingv2.HPAScalingRules, current int32, now time.Time) int32 {
	return m.rate(rules, current, now, func(start, value int32, percent bool) int32 {
		if percent {
			return roundUp(float64(start) * (1 + float64(value)/100))
		}
		return start + value
	}, func(a, b int32) bool { return a > b })
}

// downRate returns the fewest replicas that the policies of scaling down allow now.
func (m *memory) downRate(rules *autoscalingv2.HPAScalingRules, current int32, now time.Time) int32 {
	return m.rate(rules, current, now, func(start, value int32, percent bool) int32 {
		if percent {
			return int32(float64(start) * (1 - float64(value)/100))
		}
		return start - value
	}, func(a, b int32) bool { return a < b })
}

// rate applies each policy to the replicas at the start of its period and selects one result. further
// reports whether a is the larger change of the two.
func (m *memory) rate(rules *autoscalingv2.HPAScalingRules, current int32, now time.Time, apply func(start, value int32, percent bool) int32, further func(a, b int32) bool) int32 {
	selection := autoscalingv2.MaxChangePolicySelect
	if rules.SelectPolicy != nil {
		selection = *rules.SelectPolicy
	}
	if selection == autoscalingv2.DisabledPolicySelect || len(rules.Policies) == 0 {
		return current
	}
	var selected int32
	for i, policy := range rules.Policies {
		since := now.Add(-time.Duration(policy.PeriodSeconds) * time.Second)
		start := current - sum(m.ups, since) + sum(m.downs, since)
		result := apply(start, policy.Value, policy.Type == autoscalingv2.PercentScalingPolicy)
		if i == 0 || further(result, selected) == (selection != autoscalingv2.MinChangePolicySelect) {
			selected = result
		}
	}
	return selected
}

// changed remembers a change that was made. Without spec.behavior nothing depends on it.
func (m *memory) changed(b bounds, from, to int32, now time.Time) {
	switch {
	case !b.hasRules():
	case to > from:
		m.ups = append(m.ups, moment{now, to - from})
	case to < from:
		m.downs = append(m.downs, moment{now, from - to})
	}
}

// forget drops what no window and no period reaches any more.
func (m *memory) forget(b bounds, now time.Time) {
	before := func(age time.Duration) func(moment) bool {
		return func(e moment) bool { return e.at.Before(now.Add(-age)) }
	}
	m.recommendations = slices.DeleteFunc(m.recommendations, before(max(b.upWindow(), b.downWindow())))
	// Each direction's policies look at the changes of both.
	period := max(longestPeriod(b.up), longestPeriod(b.down))
	m.ups = slices.DeleteFunc(m.ups, before(period))
	m.downs = slices.DeleteFunc(m.downs, before(period))
}

// sum returns the sum of the changes after a time.
func sum(changes []moment, since time.Time) int32 {
	total := int64(0)
	for _, c := range changes {
		if c.at.After(since) {
			total += int64(c.replicas)
		}
	}
	return int32(min(total, math.MaxInt32))
}

func longestPeriod(rules *autoscalingv2.HPAScalingRules) time.Duration {
	var longest int32
	if rules != nil {
		for _, policy := range rules.Policies {
			longest = max(longest, policy.PeriodSeconds)
		}
	}
	return time.Duration(longest) * time.Second
}

// hasRules reports whether spec.behavior is set. Defaulting sets both directions.
func (b bounds) hasRules() bool { return b.up != nil && b.down != nil }

func (b bounds) upWindow() time.Duration {
	if b.up == nil || b.up.StabilizationWindowSeconds == nil {
		return 0
	}
	return time.Duration(*b.up.StabilizationWindowSeconds) * time.Second
}

func (b bounds) downWindow() time.Duration {
	if b.down == nil || b.down.StabilizationWindowSeconds == nil {
		return downscaleWindow
	}
	return time.Duration(*b.down.StabilizationWindowSeconds) * time.Second
}

// tolerances returns the configured tolerances (KEP-4951), or the default.
func (b bounds) tolerances() tolerances {
	t := tolerances{defaultTolerance, defaultTolerance}
	if b.down != nil && b.down.Tolerance != nil {
		t.down = b.down.Tolerance.AsApproximateFloat64()
	}
	if b.up != nil && b.up.Tolerance != nil {
		t.up = b.up.Tolerance.AsApproximateFloat64()
	}
	return t
}
