// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

var v4 = []corev1.IPFamily{corev1.IPv4Protocol}

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

func addrs(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

func TestAssign(t *testing.T) {
	pools := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/31"), netip.MustParsePrefix("198.51.100.7/32")}
	nodes := addrs("10.0.0.1", "10.0.0.2", "fd00::1")
	web := []port{{corev1.ProtocolTCP, 80}}
	for name, tt := range map[string]struct {
		pools []netip.Prefix
		taken []wish
		wish  wish
		want  string
	}{
		"first of a pool":          {pools, nil, wish{families: v4}, "[192.0.2.0]"},
		"next of a pool":           {pools, []wish{{families: v4}}, wish{families: v4}, "[192.0.2.1]"},
		"next pool":                {pools, []wish{{families: v4}, {families: v4}}, wish{families: v4}, "[198.51.100.7]"},
		"all taken":                {pools, []wish{{families: v4}, {families: v4}, {families: v4}}, wish{families: v4}, "all addresses of the pools of load balancers are in use"},
		"keeps its own":            {pools, nil, wish{families: v4, current: addrs("192.0.2.1")}, "[192.0.2.1]"},
		"its own left the pool":    {pools, nil, wish{families: v4, current: addrs("192.0.2.9")}, "[192.0.2.0]"},
		"its own is taken":         {pools, []wish{{families: v4}}, wish{families: v4, current: addrs("192.0.2.0")}, "[192.0.2.1]"},
		"required":                 {pools, nil, wish{families: v4, required: addrs("198.51.100.7")[0], current: addrs("192.0.2.1")}, "[198.51.100.7]"},
		"required, but taken":      {pools, []wish{{families: v4}}, wish{families: v4, required: addrs("192.0.2.0")[0]}, "address 192.0.2.0 is in use by the Service ns/0"},
		"required, in no pool":     {pools, nil, wish{families: v4, required: addrs("192.0.2.9")[0]}, "spec.loadBalancerIP 192.0.2.9 is in no pool of load balancers"},
		"required, other family":   {pools, nil, wish{families: v4, required: addrs("fd00::1")[0]}, "spec.loadBalancerIP fd00::1 is not of an IP family of the Service"},
		"no pool of the family":    {pools, nil, wish{families: []corev1.IPFamily{corev1.IPv6Protocol}}, "no pool of load balancers has addresses of the family [IPv6]"},
		"nodes":                    {nil, nil, wish{families: v4, ports: web}, "[10.0.0.1 10.0.0.2]"},
		"nodes, other port":        {nil, []wish{{families: v4, ports: web}}, wish{families: v4, ports: []port{{corev1.ProtocolUDP, 80}}}, "[10.0.0.1 10.0.0.2]"},
		"nodes, same port":         {nil, []wish{{families: v4, ports: web}}, wish{families: v4, ports: web}, "port 80/TCP of address 10.0.0.1 is in use by the Service ns/0"},
		"nodes, required":          {nil, nil, wish{families: v4, ports: web, required: addrs("10.0.0.2")[0]}, "[10.0.0.2]"},
		"nodes, required, unknown": {nil, nil, wish{families: v4, ports: web, required: addrs("10.0.0.9")[0]}, "spec.loadBalancerIP 10.0.0.9 is not the address of a node"},
	} {
		table := newTable(tt.pools)
		for i, w := range tt.taken {
			w.key = key(fmt.Sprint(i))
			if _, err := table.assign(w, nodes); err != nil {
				t.Fatal(name, err)
			}
		}
		tt.wish.key = key("new")
		got, err := table.assign(tt.wish, nodes)
		result := fmt.Sprint(got)
		if err != nil {
			result = err.Error()
		}
		if result != tt.want {
			t.Errorf("%s: got %s, want %s", name, result, tt.want)
		}
		if err != nil && len(table.held[tt.wish.key]) > 0 {
			t.Errorf("%s: a Service without an address holds %v", name, table.held[tt.wish.key])
		}
	}
}

// Random Services come, go and change. The model is the list of their addresses: an address belongs to one Service,
// a Service keeps its address, and gets none only if all are in use. A restart changes nothing.
func TestPoolsAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		pool := netip.MustParsePrefix("192.0.2.0/29")
		table, model := newTable([]netip.Prefix{pool}), map[string]netip.Addr{}
		for range 60 {
			name := fmt.Sprint(random.IntN(12))
			switch random.IntN(8) {
			case 0, 1, 2:
				table.release(key(name))
				delete(model, name)
				continue
			case 3:
				table = newTable([]netip.Prefix{pool})
				for n, a := range model {
					table.keep(wish{key: key(n), families: v4, current: []netip.Addr{a}})
				}
			}
			w := wish{key: key(name), families: v4}
			old, had := model[name]
			if had {
				w.current = []netip.Addr{old}
			}
			got, err := table.assign(w, nil)
			if err != nil {
				if len(model) < 8 || had {
					t.Fatalf("seed %d: %v, with %d in use", seed, err, len(model))
				}
				continue
			}
			if had && got[0] != old {
				t.Fatalf("seed %d: %s moved from %s to %s", seed, name, old, got[0])
			}
			model[name] = got[0]
			used := map[netip.Addr]string{}
			for n, a := range model {
				if other, twice := used[a]; twice || !pool.Contains(a) {
					t.Fatalf("seed %d: %s of %s and %s", seed, a, n, other)
				}
				used[a] = n
			}
		}
	}
}

func TestRestartKeepsTheOlderOfTwo(t *testing.T) {
	table := newTable([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/30")})
	older := wish{key: key("older"), families: v4, current: addrs("192.0.2.2")}
	newer := wish{key: key("newer"), families: v4, current: addrs("192.0.2.2")}
	table.keep(older)
	table.keep(newer)
	moved, _ := table.assign(newer, nil)
	kept, _ := table.assign(older, nil)
	if !slices.Equal(kept, addrs("192.0.2.2")) || slices.Equal(moved, kept) {
		t.Errorf("the older has %v, the newer %v", kept, moved)
	}
}
