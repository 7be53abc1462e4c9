// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

func TestSCTPEvents(t *testing.T) {
	sctp := newService("sctp", "10.96.0.3")
	sctp.Spec.Ports = append(sctp.Spec.Ports, v1.ServicePort{Port: 81, Protocol: v1.ProtocolSCTP})
	tcp := newService("sctp", "10.96.0.3")
	for name, tt := range map[string]struct {
		lacks string
		seen  []*v1.Service
		want  int
	}{
		"the kernel has it":     {seen: []*v1.Service{sctp}},
		"not used":              {lacks: "no", seen: []*v1.Service{tcp}},
		"one event":             {lacks: "no", seen: []*v1.Service{sctp, sctp, sctp}, want: 1},
		"removed and added":     {lacks: "no", seen: []*v1.Service{sctp, tcp, sctp}, want: 2},
		"added to a Service":    {lacks: "no", seen: []*v1.Service{tcp, sctp}, want: 1},
		"removed, never missed": {seen: []*v1.Service{sctp, tcp}},
	} {
		t.Run(name, func(t *testing.T) {
			events := record.NewFakeRecorder(10)
			n := &Network{options: Options{Node: "here", Events: events}}
			n.sctp = withoutSCTP{lacks: func() string { return tt.lacks }, told: map[string]bool{}}
			for _, svc := range tt.seen {
				n.checkSCTP("ns/sctp", svc, usesSCTP(svc))
			}
			if got := len(events.Events); got != tt.want {
				t.Fatalf("%d events, want %d", got, tt.want)
			}
			if tt.want > 0 {
				if got, want := <-events.Events, "Warning SCTPNotSupported The SCTP ports of this Service do not work on node here: no"; got != want {
					t.Errorf("event %q, want %q", got, want)
				}
			}
		})
	}
}
