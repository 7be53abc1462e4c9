// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"runtime"
	"testing"
	"time"
)

func TestMustFree(t *testing.T) {
	const mb = 1 << 20
	for name, tc := range map[string]struct {
		allocated uint64 // in 5 s
		now       usage
		want      bool
	}{
		"garbage of a burst":           {5 * mb, usage{objects: 200 * mb, live: 70 * mb}, true},
		"free, and not returned":       {5 * mb, usage{objects: 71 * mb, live: 70 * mb, free: 40 * mb}, true},
		"both together":                {5 * mb, usage{objects: 80 * mb, live: 70 * mb, free: 10 * mb}, true},
		"the burst goes on":            {50 * mb, usage{objects: 200 * mb, live: 70 * mb}, false},
		"little garbage":               {5 * mb, usage{objects: 80 * mb, live: 70 * mb}, false},
		"little of a large heap":       {5 * mb, usage{objects: 1100 * mb, live: 1000 * mb}, false},
		"a quarter of a large heap":    {5 * mb, usage{objects: 1300 * mb, live: 1000 * mb}, true},
		"less than was live":           {5 * mb, usage{objects: 60 * mb, live: 70 * mb}, false},
		"less than was live, but free": {5 * mb, usage{objects: 60 * mb, live: 70 * mb, free: 30 * mb}, true},
	} {
		before := usage{allocated: 1000 * mb}
		tc.now.allocated = before.allocated + tc.allocated
		if got := mustFree(before, tc.now, 5*time.Second); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// TestReadUsage: each number that the rule needs has a value in this version of Go.
func TestReadUsage(t *testing.T) {
	runtime.GC()
	before := readUsage()
	garbage := make([]byte, 32<<20)
	after := readUsage()
	runtime.KeepAlive(garbage)
	if before.live == 0 || before.objects == 0 || after.allocated-before.allocated < 32<<20 || after.objects-before.objects < 16<<20 {
		t.Errorf("before %+v, after 32 MB more %+v", before, after)
	}
}
