// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Annotations that control the app containers of a simulated pod. Durations have Go's format, such as
// 1.5s or 2m.
const (
	// ExitAfter is the time between the start of a container and its exit. Without it, containers
	// run until they are stopped.
	ExitAfter = "kindred.dev/simulated-exit-after"
	// ExitCode is the code of that exit; 0 by default.
	ExitCode = "kindred.dev/simulated-exit-code"
	// StopAfter is the time between SIGTERM and the exit of a container. Without it, containers
	// exit at once. It ends with the grace period.
	StopAfter = "kindred.dev/simulated-stop-after"
)

// The exit codes after SIGTERM and SIGKILL: 128 plus the signal's number.
const (
	codeTerminated = 143
	codeKilled     = 137
)

// behaviour is what a pod's annotations request.
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
