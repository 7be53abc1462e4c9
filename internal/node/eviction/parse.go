// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Config is what a KubeletConfiguration says about evictions.
type Config struct {
	// Thresholds are ordered as the signals are, hard ones first.
	Thresholds []Threshold
	// Transition is the time that a node condition stays true after its last threshold was met.
	Transition time.Duration
	// MaxPodGraceSeconds limits the grace period of pods that soft thresholds evict. A negative one limits nothing.
	MaxPodGraceSeconds int64
	// LocalLimits is set if pods that exceed their limits of local storage are evicted.
	LocalLimits bool
}

// Parse reads the fields about evictions of a configuration with defaults. Its error has all mistakes.
func Parse(c *kubeletv1beta1.KubeletConfiguration) (Config, error) {
	p := parser{}
	config := Config{
		Transition:         c.EvictionPressureTransitionPeriod.Duration,
		MaxPodGraceSeconds: int64(c.EvictionMaxPodGracePeriod),
		LocalLimits:        c.LocalStorageCapacityIsolation == nil || *c.LocalStorageCapacityIsolation,
	}
	if config.Transition < 0 {
		p.fail("evictionPressureTransitionPeriod is %v, and must be positive", config.Transition)
	}
	hard := p.thresholds("evictionHard", c.EvictionHard)
	soft := p.thresholds("evictionSoft", c.EvictionSoft)
	grace := p.gracePeriods(c.EvictionSoftGracePeriod)
	for i, t := range soft {
		period, ok := grace[t.Signal]
		if !ok {
			p.fail("evictionSoft has %s, and evictionSoftGracePeriod must have it as well", t.Signal)
		}
		soft[i].Grace = period
	}
	reclaims := p.reclaims(c.EvictionMinimumReclaim)
	all := slices.Concat(hard, soft)
	if slices.Contains(c.EnforceNodeAllocatable, "pods") {
		// The limit of all pods together must not be reached either: the kernel would kill.
		for _, t := range hard {
			if t.Signal == MemoryAvailable {
				t.Signal = AllocatableMemoryAvailable
				all = append(all, t)
			}
		}
	}
	for i, t := range all {
		if reclaim, ok := reclaims[t.Signal]; ok {
			all[i].MinReclaim = &reclaim
		} else if reclaim, ok := reclaims[MemoryAvailable]; ok && t.Signal == AllocatableMemoryAvailable {
			all[i].MinReclaim = &reclaim
		}
	}
	config.Thresholds = inOrder(all)
	return config, errors.Join(p.errs...)
}

// inOrder sorts thresholds in the order of the signals; those of one signal keep theirs.
func inOrder(thresholds []Threshold) []Threshold {
	order := map[Signal]int{}
	for i, s := range signals {
		order[s.signal] = i
	}
	slices.SortStableFunc(thresholds, func(a, b Threshold) int { return order[a.Signal] - order[b.Signal] })
	return thresholds
}

// parser collects mistakes.
type parser struct{ errs []error }

func (p *parser) fail(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

// known reports whether a key of a field is a signal.
func (p *parser) known(field, key string) bool {
	if Signal(key).resource() != "" {
		return true
	}
	var names []string
	for _, s := range signals {
		names = append(names, string(s.signal))
	}
	p.fail("%s has %q, which is no eviction signal: use one of %s", field, key, strings.Join(names, ", "))
	return false
}

// thresholds parses thresholds without grace periods. 0% and 100% switch a threshold off.
func (p *parser) thresholds(field string, statements map[string]string) (thresholds []Threshold) {
	for _, key := range slices.Sorted(maps.Keys(statements)) {
		text := statements[key]
		if !p.known(field, key) || text == "0%" || text == "100%" {
			continue
		}
		value, ok := parseValue(text)
		if !ok || value.Quantity != nil && value.Quantity.Sign() <= 0 || value.Share < 0 || value.Share > 1 {
			p.fail("%s[%s] is %q, and must be a positive quantity such as 100Mi, or a share such as 5%%", field, key, text)
			continue
		}
		thresholds = append(thresholds, Threshold{Signal: Signal(key), Value: value})
	}
	return thresholds
}

func (p *parser) gracePeriods(statements map[string]string) map[Signal]time.Duration {
	periods := map[Signal]time.Duration{}
	for _, key := range slices.Sorted(maps.Keys(statements)) {
		const field = "evictionSoftGracePeriod"
		if !p.known(field, key) {
			continue
		}
		period, err := time.ParseDuration(statements[key])
		if err != nil || period < 0 {
			p.fail("%s[%s] is %q, and must be a duration such as 1m30s", field, key, statements[key])
		}
		periods[Signal(key)] = period
	}
	return periods
}

func (p *parser) reclaims(statements map[string]string) map[Signal]Value {
	values := map[Signal]Value{}
	for _, key := range slices.Sorted(maps.Keys(statements)) {
		const field = "evictionMinimumReclaim"
		if !p.known(field, key) {
			continue
		}
		value, ok := parseValue(statements[key])
		if !ok || value.Quantity != nil && value.Quantity.Sign() < 0 || value.Quantity == nil && (value.Share <= 0 || value.Share > 1) {
			p.fail("%s[%s] is %q, and must be a quantity such as 500Mi, or a share such as 5%%", field, key, statements[key])
			continue
		}
		values[Signal(key)] = value
	}
	return values
}

// parseValue parses "5%" or "100Mi".
func parseValue(text string) (Value, bool) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		share, err := strconv.ParseFloat(percent, 32)
		return Value{Share: float32(share) / 100}, err == nil
	}
	quantity, err := resource.ParseQuantity(text)
	return Value{Quantity: &quantity}, err == nil
}
