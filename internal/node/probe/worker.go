// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

// outcome is the outcome of one attempt.
type outcome string

const (
	success outcome = "success"
	warning outcome = "warning" // a success with an event
	failure outcome = "failure"
	unknown outcome = "unknown" // the attempt itself failed
)

// The reasons of events.
const (
	eventUnhealthy = "Unhealthy"
	eventWarning   = "ProbeWarning"
)

// maxTries is the number of attempts, if each of them fails.
const maxTries = 3

// worker is one probe of one container.
type worker struct {
	manager *Manager
	target  *target
	kind    nodepod.ProbeKind
	spec    *v1.Probe

	inRow    int32 // consecutive attempts with outcome last
	last     bool
	reported *bool // the last result; nil before the first
}

// run probes until ctx ends or the probe is over.
func (w *worker) run(ctx context.Context) {
	if w.kind != nodepod.Startup {
		select {
		case <-ctx.Done():
			return
		case <-w.target.started:
		}
	}
	period := seconds(w.spec.PeriodSeconds, 10)
	begin := w.target.StartedAt.Add(seconds(w.spec.InitialDelaySeconds, 0))
	delay := begin.Sub(w.manager.options.Clock.Now())
	if !w.wait(ctx, max(delay, w.manager.jitter(w.target, period))) || !w.probe(ctx) {
		return
	}
	if !w.wait(ctx, untilBeat(w.manager.options.Clock.Now())) {
		return
	}
	ticker := w.manager.options.Clock.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if !w.probe(ctx) {
			return
		}
	}
}

// beat is what the times of attempts after the first are rounded up to, so that the process wakes up once for several probes.
const beat = 100 * time.Millisecond

// untilBeat returns the time until the next multiple of beat.
func untilBeat(now time.Time) time.Duration { return now.Truncate(beat).Add(beat).Sub(now) % beat }

func (w *worker) wait(ctx context.Context, delay time.Duration) bool {
	if delay <= 0 {
		return ctx.Err() == nil
	}
	timer := w.manager.options.Clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// probe makes one attempt and reports whether to continue.
func (w *worker) probe(ctx context.Context) bool {
	begin := w.manager.options.Clock.Now()
	found, output, err := w.try(ctx)
	if ctx.Err() != nil {
		return false
	}
	if o := w.manager.options.Observer; o != nil {
		o.Probed(string(w.kind), w.target.Pod, w.target.Container.Name, resultOf(found, err), w.manager.options.Clock.Since(begin))
	}
	if err != nil {
		w.manager.event(w.target, eventUnhealthy, fmt.Sprintf("%s probe errored and resulted in %s state: %s", w.kind, found, err))
		return true
	}
	switch found {
	case warning:
		w.manager.event(w.target, eventWarning, fmt.Sprintf("%s probe warning: %s", w.kind, output))
	case failure:
		w.manager.event(w.target, eventUnhealthy, fmt.Sprintf("%s probe failed: %s", w.kind, output))
		klog.FromContext(ctx).V(2).Info("Probe failed", "probe", w.kind, "pod", klog.KObj(w.target.Pod), "container", w.target.Container.Name, "output", output)
	}
	return w.count(found != failure, output)
}

// resultOf returns the result of an attempt in metrics.
func resultOf(found outcome, err error) string {
	switch {
	case err != nil:
		return "unknown"
	case found == failure:
		return "failed"
	}
	return "successful"
}

// try makes an attempt, and repeats it if the attempt itself fails.
func (w *worker) try(ctx context.Context) (found outcome, output string, err error) {
	for range maxTries {
		found, output, err = w.manager.attempt(ctx, &w.target.ProbeTarget, w.spec)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return found, output, err
}

// count counts an attempt, reports a new result, and reports whether to continue.
func (w *worker) count(ok bool, output string) bool {
	if w.inRow == 0 || w.last != ok {
		w.last, w.inRow = ok, 0
	}
	w.inRow++
	threshold := w.spec.FailureThreshold
	if ok {
		threshold = w.spec.SuccessThreshold
	}
	if w.inRow < threshold {
		return true
	}
	if w.reported == nil || *w.reported != ok {
		w.reported = &ok
		w.target.report(nodepod.ProbeResult{
			ContainerID: w.target.ContainerID, Kind: w.kind, Success: ok, Message: output,
		})
	}
	switch w.kind {
	case nodepod.Startup:
		// A container starts once. If it fails to, it is restarted, and the new run is probed.
		if ok {
			close(w.target.started)
		}
		return false
	case nodepod.Liveness:
		// After a failure the container is killed: do not probe it any more.
		return ok
	}
	return true
}

// seconds converts a field of a probe to a duration. Zero means the API's default.
func seconds(n, defaultValue int32) time.Duration {
	if n == 0 {
		n = defaultValue
	}
	return time.Duration(n) * time.Second
}
