// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// nsPerOp matches the result in a line of a Go benchmark.
var nsPerOp = regexp.MustCompile(`(?m)^Benchmark\S+\s+\d+\s+([\d.]+) ns/op`)

// policies returns a measurement by a Go benchmark of package policy, in seconds: NetworkPolicies are compiled and
// written into a table of the kernel, in a network namespace of their own.
func policies(benchmark string, times int) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, _ *bench) (float64, error) {
		out, err := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench="+benchmark, "-benchtime="+strconv.Itoa(times)+"x",
			"./internal/network/policy").CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("run the benchmark %s: %w: %s", benchmark, err, out)
		}
		return secondsPerOp(string(out))
	}
}

// inMilliseconds converts a measurement from seconds.
func inMilliseconds(measure func(context.Context, *bench) (float64, error)) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (float64, error) {
		seconds, err := measure(ctx, b)
		return 1000 * seconds, err
	}
}

// secondsPerOp returns the result of the only benchmark in the output of "go test".
func secondsPerOp(out string) (float64, error) {
	found := nsPerOp.FindAllStringSubmatch(out, -1)
	if len(found) != 1 {
		return 0, fmt.Errorf("%d results instead of one: %s", len(found), out)
	}
	ns, err := strconv.ParseFloat(found[0][1], 64)
	return ns / float64(time.Second), err
}
