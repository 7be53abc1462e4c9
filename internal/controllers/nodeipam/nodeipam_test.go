// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeipam

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

func prefixes(s ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, s := range s {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func TestNext(t *testing.T) {
	tests := []struct {
		name  string
		from  string
		bits  int
		taken []netip.Prefix
		want  string
	}{
		{name: "empty range", from: "10.244.0.0/16", want: "10.244.0.0/24"},
		{name: "first subnets are taken", from: "10.244.0.0/16", taken: prefixes("10.244.0.0/24", "10.244.1.0/24"), want: "10.244.2.0/24"},
		{name: "a gap", from: "10.244.0.0/16", taken: prefixes("10.244.0.0/24", "10.244.2.0/24"), want: "10.244.1.0/24"},
		{name: "part of a subnet is taken", from: "10.244.0.0/16", taken: prefixes("10.244.0.128/25"), want: "10.244.1.0/24"},
		{name: "a larger range is taken", from: "10.244.0.0/16", taken: prefixes("10.244.0.0/20"), want: "10.244.16.0/24"},
		{name: "the range is within a taken one", from: "10.244.0.0/16", taken: prefixes("10.0.0.0/8")},
		{name: "all subnets are taken", from: "10.244.0.0/23", taken: prefixes("10.244.0.0/24", "10.244.1.0/24")},
		{name: "range with host bits", from: "10.244.3.4/16", want: "10.244.0.0/24"},
		{name: "another subnet size", from: "10.244.0.0/16", bits: 26, taken: prefixes("10.244.0.0/26"), want: "10.244.0.64/26"},
		{name: "the whole range", from: "10.244.0.0/24", want: "10.244.0.0/24"},
		{name: "range smaller than a subnet", from: "10.244.0.0/25"},
		{name: "IPv6", from: "fd00::/48", taken: prefixes("fd00::/64", "10.244.0.0/24"), want: "fd00:0:0:1::/64"},
		{name: "end of the address space", from: "255.255.255.0/24", taken: prefixes("255.255.255.0/24")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, ok := Range{CIDR: netip.MustParsePrefix(test.from), NodeBits: test.bits}.next(test.taken)
			if ok != (test.want != "") || ok && got != netip.MustParsePrefix(test.want) {
				t.Errorf("got %v, %v; want %q", got, ok, test.want)
			}
		})
	}
}

func node(name string, cidrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: cidrs}}
	if len(cidrs) > 0 {
		n.Spec.PodCIDR = cidrs[0]
	}
	return n
}

func simulatedNode() *corev1.Node {
	n := node("simulated")
	n.Labels = map[string]string{"simulated": ""}
	return n
}

// TestNodesGetDifferentRanges uses a cache that lags behind the allocations.
func TestNodesGetDifferentRanges(t *testing.T) {
	ctx := context.Background()
	w := controltest.New(t, node("own", "10.244.1.0/24"), node("a"), node("b"), node("c"), node("d"), simulatedNode())
	r := newReconciler(w.Env(), Options{
		Ranges:   []Range{{CIDR: netip.MustParsePrefix("10.244.0.0/21")}, {CIDR: netip.MustParsePrefix("fd00::/48")}},
		Services: prefixes("10.244.5.0/24", "10.244.6.0/23"),
		Routed:   func() ([]netip.Prefix, error) { return prefixes("10.244.2.0/24"), nil }, Simulated: "simulated",
	})
	reconcile := func(name string) time.Duration {
		result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
		w.Must(err)
		return result.RequeueAfter
	}
	for range 2 {
		for _, name := range []string{"own", "simulated", "a", "b", "c"} {
			reconcile(name)
		}
	}
	if wait := reconcile("d"); wait != retryPeriod {
		t.Errorf("requeued after %v, want %v", wait, retryPeriod)
	}
	if diff := cmp.Diff([]string{"Normal CIDRNotAvailable Node d status is now: CIDRNotAvailable"}, w.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	ranges := func() map[string]string {
		var nodes corev1.NodeList
		w.Must(w.API.List(ctx, &nodes))
		got := map[string]string{}
		for _, n := range nodes.Items {
			got[n.Name] = fmt.Sprint(n.Spec.PodCIDR, n.Spec.PodCIDRs)
		}
		return got
	}
	want := map[string]string{
		"own": "10.244.1.0/24[10.244.1.0/24]",
		"a":   "10.244.0.0/24[10.244.0.0/24 fd00::/64]",
		"b":   "10.244.3.0/24[10.244.3.0/24 fd00:0:0:1::/64]",
		"c":   "10.244.4.0/24[10.244.4.0/24 fd00:0:0:2::/64]",
		"d":   "[]", "simulated": "[]",
	}
	if diff := cmp.Diff(want, ranges()); diff != "" {
		t.Fatalf("ranges (-want +got):\n%s", diff)
	}

	// The range of a deleted node is free again.
	w.Must(w.API.Delete(ctx, node("a")))
	w.Sync()
	reconcile("a")
	reconcile("b")
	reconcile("d")
	delete(want, "a")
	want["d"] = "10.244.0.0/24[10.244.0.0/24 fd00::/64]"
	if diff := cmp.Diff(want, ranges()); diff != "" {
		t.Errorf("ranges after a deletion (-want +got):\n%s", diff)
	}
}
