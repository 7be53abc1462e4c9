// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The processes of the specs report when they are interrupted, as ginkgo's do, and ginkgo waits for them.
const interruptedGinkgo = `#!/bin/sh
trap : INT
sh -c '
trap "exit 0" INT
touch "$0/running"
while :; do sleep 0.05; done
' "$OUT"
cat >"$OUT/report.json" <<END
[{"SpecReports": [{"LeafNodeType": "It", "LeafNodeText": "` + podSpec + `", "State": "passed"}]}]
END
`

// TestAnInterruptedRunHasResults: what was run before an interrupt counts.
func TestAnInterruptedRunHasResults(t *testing.T) {
	dir := t.TempDir()
	ginkgo := filepath.Join(dir, "ginkgo")
	if err := os.WriteFile(ginkgo, []byte(interruptedGinkgo), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		defer interrupt()
		for t.Context().Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "running")); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	s := suite{programs: programs{ginkgo: ginkgo}, dir: dir, env: []string{"OUT=" + dir}, out: dir}
	results, err := s.run(ctx, []string{podSpec, otherSpec})
	if err != nil || len(results) != 2 || results[0].State != passed || results[1].State != notRun {
		t.Errorf("%+v, %v", results, err)
	}
}
