// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Annotations which tell the containers of a simulated pod what to do. They mean its app
// containers; durations read like 1.5s or 2m.
const (
	// ExitAfter is how long after its start a container ends by itself. Without it
	// containers run for ever.
	ExitAfter = "kindred.dev/simulated-exit-after"
	// ExitCode is the code it ends with then; 0 by default.
	ExitCode = "kindred.dev/simulated-exit-code"
	// StopAfter is how long a container takes to end once it got TERM. Without it
	// containers obey at once. The grace period bounds it.
	StopAfter = "kindred.dev/simulated-stop-after"
)

// What containers end with when they get TERM or KILL: 128 and the signal's number.
const (
	codeTerminated = 143
	codeKilled     = 137
)

// behaviour is what a pod's annotations ask for.
type behaviour struct {
	exits     bool
	exitAfter time.Duration
	exitCode  int32
	stopAfter time.Duration
}

func behaviourOf(p *v1.Pod) (behaviour, error) {
	var b behaviour
	if s, ok := p.Annotations[ExitAfter]; ok {
		d, err := parseDuration(ExitAfter, s)
		if err != nil {
			return b, err
		}
		b.exits, b.exitAfter = true, d
	}
	if s, ok := p.Annotations[StopAfter]; ok {
		d, err := parseDuration(StopAfter, s)
		if err != nil {
			return b, err
		}
		b.stopAfter = d
	}
	if s, ok := p.Annotations[ExitCode]; ok {
		code, err := strconv.ParseUint(s, 10, 8)
		if err != nil {
			return b, fmt.Errorf("annotation %s is %q, not an exit code from 0 to 255", ExitCode, s)
		}
		b.exitCode = int32(code)
	}
	return b, nil
}

func parseDuration(annotation, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("annotation %s is %q, not a duration such as 1.5s", annotation, s)
	}
	return d, nil
}
