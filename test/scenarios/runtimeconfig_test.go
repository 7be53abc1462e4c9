// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"strings"
	"testing"
)

// TestRuntimeConfig disables and enables API versions with --runtime-config, as upstream's API
// server does: discovery does not list a disabled version, requests get 404, and stored objects are
// kept.
func TestRuntimeConfig(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, "--no-node")
	s := newSession(t, c)
	s.kubectl("create", "deployment", "web", "--image="+image, "--replicas=0")
	s.kubectl("autoscale", "deployment", "web", "--max=3")
	c.terminate(t)

	c.mustStart(t, "--no-node", "--runtime-config=autoscaling/v1=false,api/alpha=false")
	if versions := s.kubectl("api-versions"); strings.Contains(versions, "autoscaling/v1\n") || strings.Contains(versions, "ownership.kindred.dev") || !strings.Contains(versions, "autoscaling/v2\n") {
		t.Errorf("api-versions:\n%s", versions)
	}
	s.refused([]string{"could not find the requested resource"}, "get", "--raw", "/apis/autoscaling/v1/horizontalpodautoscalers")
	s.kubectl("get", "horizontalpodautoscaler", "web")
	s.kubectl("scale", "deployment", "web", "--replicas=1") // a Scale is in autoscaling/v1
	c.terminate(t)

	c.mustStart(t, "--no-node", "--runtime-config=autoscaling/v2/horizontalpodautoscalers=false,autoscaling/v1=false")
	if versions := s.kubectl("api-versions"); strings.Contains(versions, "autoscaling/") || !strings.Contains(versions, "ownership.kindred.dev/v1alpha1\n") {
		t.Errorf("api-versions:\n%s", versions)
	}
	c.terminate(t)

	c.mustStart(t, "--no-node")
	s.kubectl("get", "horizontalpodautoscalers.v1.autoscaling", "web")
}
