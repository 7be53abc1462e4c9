// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kindred-project/kindred/internal/node/config"
)

// TestPodsAPIGate: the feature gate PodsAPI is enabled by default.
func TestPodsAPIGate(t *testing.T) {
	for _, test := range []struct {
		gates map[string]bool
		want  bool
	}{
		{nil, true},
		{map[string]bool{"PodsAPI": true}, true},
		{map[string]bool{"PodsAPI": false}, false},
	} {
		a := &Agent{options: Options{Config: &config.Configuration{
			KubeletConfiguration: kubeletv1beta1.KubeletConfiguration{FeatureGates: test.gates},
		}}}
		a.podsAPI = a.newPodsAPI()
		if got := a.podsAPI != nil; got != test.want {
			t.Errorf("%v: served %t, want %t", test.gates, got, test.want)
		}
		if got := a.podWatcher() != nil; got != test.want {
			t.Errorf("%v: pods are watched %t, want %t", test.gates, got, test.want)
		}
	}
}
