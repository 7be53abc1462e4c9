// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

var (
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "what the moments, the writes and the torn pages are drawn from")
	within = flag.Duration("within", 30*time.Second, "how long a start after a crash may take; more only on a machine that is busy with something else")
	rounds = flag.Int("rounds", 10, "how often each test ends the cluster in the long form, which KINDRED_CRASH=1 chooses")
)

func TestMain(m *testing.M) {
	flag.Parse()
	fmt.Printf("seed %d; repeat with make crash ARGS='-seed %d -rounds %d'\n", *seed, *seed, *rounds)
	if err := os.Setenv("KINDRED_CRASH_SEED", fmt.Sprint(*seed)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// long reports whether the tests run in their long form.
func long() bool { return os.Getenv("KINDRED_CRASH") != "" }

// drawn returns the random number generator of a test, which depends on the seed only.
func drawn(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(*seed, stream)) }

// moment returns a random duration between two.
func moment(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}
