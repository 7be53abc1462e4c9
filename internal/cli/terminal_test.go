// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestCut(t *testing.T) {
	for text, want := range map[string]string{
		"deployment.apps/web":                                "deployment.apps/web",
		"clusterrolebinding.rbac.authorization.k8s.io/fleet": "clusterrolebinding.…/fleet",
		"networkpolicy.networking.k8s.io/of-a-name-too-long": "networkpolicy.networking.…",
		"configmap/a-name-that-is-longer-than-all":           "configmap/a-name-that-is-…",
		"copying deployment.apps/web into the other cluster": "copying deployment.apps/w…",
	} {
		if got := cut(text, 26); got != want {
			t.Errorf("%q was cut to %q, want %q", text, got, want)
		}
	}
}
