// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"
)

// TestHoldsAreShown: every command shows that an object is on hold and how to release it.
func TestHoldsAreShown(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node"))
	s.kubectl("create", "deployment", "web", "--image", image, "--replicas", "0")
	status := func() string { return s.cluster.run("status").out }
	if out := status(); len(out) == 0 || s.kindred("lint", "--rule", "on-hold").code != 0 {
		t.Fatalf("before: %s", out)
	}
	s.kubectl("annotate", "deployment", "web", "ownership.kindred.dev/hold=")
	const why = "controllers are paused for it by its annotation ownership.kindred.dev/hold; release it with"
	release := `"kubectl annotate -n ` + s.namespace + ` deployment.apps/web ownership.kindred.dev/hold-"`
	s.contains(unwrapped(s.kindred("why", "deployment/web").out), "Deployment "+s.namespace+"/web is on hold: "+why+" "+release+".")
	s.contains(s.kindred("tree", "deployment/web", "-o", "yaml").out, "controllers are paused for it")
	s.contains(s.kindred("tree", "deployment/web").out, "on hold: ")
	s.contains(s.kindred("lint").out, "info", "on-hold")
	s.eventually("status counts it", func() error {
		if out := status(); !strings.Contains(out, "On hold  1 object;") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	s.kubectl("annotate", "deployment", "web", "ownership.kindred.dev/hold-")
	s.eventually("it is released", func() error {
		if out := status(); strings.Contains(out, "On hold") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}
