// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestSecondsPerOp(t *testing.T) {
	const line = "BenchmarkKernel/load/500-2 \t       5\t 770000000 ns/op\n"
	if got, err := secondsPerOp("goos: linux\n" + line + "PASS\n"); got != 0.77 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	for _, out := range []string{"PASS\n", line + line} {
		if got, err := secondsPerOp(out); err == nil {
			t.Errorf("%q: got %v without an error", out, got)
		}
	}
}
