// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestLimitBandwidth: the limits of the annotations are in force before a container starts. A container whose pod cannot
// be limited starts, with an event.
func TestLimitBandwidth(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		hostNetwork bool
		fails       error
		want, event string
	}{
		"none":             {},
		"both":             {annotations: map[string]string{ingressBandwidth: "10M", egressBandwidth: "1500k"}, want: "10000000 1500000"},
		"one":              {annotations: map[string]string{egressBandwidth: "1Gi"}, want: "0 1073741824"},
		"least and most":   {annotations: map[string]string{ingressBandwidth: "1k", egressBandwidth: "1P"}, want: "1000 1000000000000000"},
		"host network":     {annotations: map[string]string{egressBandwidth: "10M"}, hostNetwork: true},
		"not a quantity":   {annotations: map[string]string{egressBandwidth: "fast"}, event: `annotation kubernetes.io/egress-bandwidth: "fast": `},
		"too small":        {annotations: map[string]string{ingressBandwidth: "999"}, event: "annotation kubernetes.io/ingress-bandwidth: resource is unreasonably small (< 1kbit)"},
		"too large":        {annotations: map[string]string{ingressBandwidth: "1001T"}, event: "annotation kubernetes.io/ingress-bandwidth: resource is unreasonably large (> 1Pbit)"},
		"negative":         {annotations: map[string]string{ingressBandwidth: "-5M"}, event: "unreasonably small"},
		"the kernel":       {annotations: map[string]string{ingressBandwidth: "5M"}, fails: errors.New("no filter"), want: "5000000 0", event: "The pod's bandwidth is not limited: no filter"},
		"one is not valid": {annotations: map[string]string{ingressBandwidth: "5M", egressBandwidth: ""}, event: "egress-bandwidth"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod()
			pod.Annotations, pod.Spec.HostNetwork = test.annotations, test.hostNetwork
			s := newStageTest(t, pod)
			var limited []string
			s.parts.LimitBandwidth = func(sandbox string, ingress, egress int64) error {
				if run, _ := s.seen.Latest("c"); run.ID != "" {
					t.Error("started before")
				}
				if sandbox != s.seen.Sandboxes[0].ID {
					t.Errorf("sandbox %q", sandbox)
				}
				limited = append(limited, fmt.Sprint(ingress, egress))
				return test.fails
			}
			s.do(Action{Kind: CreateSandbox})
			s.do(Action{Kind: StartContainer, Container: "c"})
			if !slices.Contains(s.cri.took(), "StartContainer c-0") {
				t.Error("the container did not start")
			}
			if got := strings.Join(limited, ","); got != test.want {
				t.Errorf("limits %q, want %q", got, test.want)
			}
			var warning string
			for _, e := range s.takeEvents() {
				if strings.Contains(e, "BandwidthNotLimited") {
					warning = e
				}
			}
			if (warning != "") != (test.event != "") || !strings.Contains(warning, test.event) {
				t.Errorf("event %q, want %q", warning, test.event)
			}
		})
	}
}
