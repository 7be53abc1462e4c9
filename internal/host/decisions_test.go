// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/knftables"
)

func TestFreeRange(t *testing.T) {
	tests := map[string]struct {
		taken []string
		want  string
	}{
		"nothing is routed":    {want: "10.192.0.0/16"},
		"the first is taken":   {taken: []string{"10.192.4.0/24"}, want: "10.193.0.0/16"},
		"several are taken":    {taken: []string{"10.192.0.0/14"}, want: "10.196.0.0/16"},
		"another one is taken": {taken: []string{"192.168.0.0/16", "10.244.3.0/24"}, want: "10.192.0.0/16"},
		"all are taken":        {taken: []string{"10.0.0.0/8"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := freeRange(prefixes(tt.taken...))
			if tt.want == "" {
				if err == nil {
					t.Fatalf("got %s, want an error", got)
				}
				return
			}
			if err != nil || got.String() != tt.want {
				t.Errorf("got %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// TestAddresses: machines and endpoints get addresses from the two ends of the range, and none that is taken.
func TestAddresses(t *testing.T) {
	h := &Host{root: t.TempDir()}
	n := network{Range: netip.MustParsePrefix("10.192.0.0/29")}
	var got []string
	for i := range 3 {
		a, err := h.freeAddress(n)
		if err != nil {
			t.Fatal(err)
		}
		m := Machine{Spec: Spec{Name: string(rune('a' + i))}, Address: netip.PrefixFrom(a, 29)}
		if err := h.write(m); err != nil {
			t.Fatal(err)
		}
		e, err := h.freeEndpoint(n)
		if err != nil && i < 2 {
			t.Fatal(err)
		}
		if err == nil {
			name := string(rune('a' + i))
			if err := writeJSON(h.endpointFile(name), Endpoint{Name: name, Address: e, Port: 1}); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, a.String()+" "+e.String())
	}
	want := []string{"10.192.0.2 10.192.0.6", "10.192.0.3 10.192.0.5", "10.192.0.4 invalid IP"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses of machines and endpoints (-want +got):\n%s", diff)
	}
	if a, err := h.freeAddress(n); err == nil {
		t.Errorf("a fourth machine gets %s", a)
	}
}

func TestRules(t *testing.T) {
	fake := knftables.NewFake(knftables.IPv4Family, "machines")
	tx := fake.NewTransaction()
	tx.Add(&knftables.Table{})
	address := netip.MustParseAddr
	addRules(tx, network{Range: netip.MustParsePrefix("10.192.0.0/16")}, []Endpoint{
		{Name: "none", Address: address("10.192.255.252"), Port: 6443},
		{Name: "one", Address: address("10.192.255.253"), Port: 6443, Servers: []netip.Addr{address("10.192.0.2")}},
		{Name: "two", Address: address("10.192.255.254"), Port: 7443, Servers: []netip.Addr{address("10.192.0.4"), address("10.192.0.3")}},
	})
	if err := fake.Run(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	got := fake.Dump()
	for _, want := range []string{
		"prerouting ip daddr 10.192.255.253 tcp dport 6443 dnat to 10.192.0.2\n",
		"output ip daddr 10.192.255.254 tcp dport 7443 dnat to numgen random mod 2 map { 0 : 10.192.0.3, 1 : 10.192.0.4 }\n",
		"postrouting ip saddr 10.192.0.0/16 ip daddr != 10.192.0.0/16 masquerade\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the rules lack %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "10.192.255.252") {
		t.Errorf("an endpoint without servers is translated:\n%s", got)
	}
}

func TestParseCgroups(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"version 2": {"0::/user.slice\n", []string{"/sys/fs/cgroup"}},
		"hybrid":    {"2:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/c\n", []string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"}},
		"version 1": {"2:memory:/a:b\n", []string{"/sys/fs/cgroup/memory"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range parseCgroups(tt.text) {
				got = append(got, c.mountPoint())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("mount points (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResolvConf(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := file("plain", "search example.com\nnameserver 192.0.2.1\n")
	local := file("local", "nameserver 127.0.0.53\noptions edns0\n")
	both := file("both", "nameserver ::1\nnameserver 192.0.2.2\n")
	tests := map[string]struct {
		files []string
		want  string
	}{
		"the host's":                   {[]string{plain}, "search example.com\nnameserver 192.0.2.1\n"},
		"loopback is not reached":      {[]string{local, plain}, "search example.com\nnameserver 192.0.2.1\n"},
		"without the one on loopback":  {[]string{both}, "nameserver 192.0.2.2\n"},
		"a file is missing":            {[]string{filepath.Join(dir, "no"), both}, "nameserver 192.0.2.2\n"},
		"no resolver that is reached":  {[]string{local}, "# The host has no resolver that a machine reaches.\n"},
		"no file with a resolver here": {nil, "# The host has no resolver that a machine reaches.\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := resolvConf(tt.files...)
			if err != nil || string(got) != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestSpecIsChecked(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		spec  Spec
		files []File
	}{
		"name":          {spec: Spec{Name: "../a", Program: program}},
		"long name":     {spec: Spec{Name: strings.Repeat("a", 64), Program: program}},
		"no program":    {spec: Spec{Name: "a", Program: filepath.Join(t.TempDir(), "kindred")}},
		"relative":      {spec: Spec{Name: "a", Program: "kindred"}},
		"memory":        {spec: Spec{Name: "a", Program: program, Memory: -1}},
		"shared file":   {spec: Spec{Name: "a", Program: program}, files: []File{{Path: "/usr/bin/true"}}},
		"outside":       {spec: Spec{Name: "a", Program: program}, files: []File{{Path: "/etc/../root/.profile"}}},
		"relative file": {spec: Spec{Name: "a", Program: program}, files: []File{{Path: "etc/passwd"}}},
		"a directory":   {spec: Spec{Name: "a", Program: program}, files: []File{{Path: "/etc"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tt.spec.check(tt.files); err == nil {
				t.Error("no error")
			}
		})
	}
	if err := (&Spec{Name: "a", Program: program}).check([]File{{Path: "/etc/a/b"}, {Path: "/var/lib/c"}}); err != nil {
		t.Errorf("a good specification: %v", err)
	}
}

// TestKeepRefusesAnother: a machine that exists is not changed into another one.
func TestKeepRefusesAnother(t *testing.T) {
	h := &Host{root: t.TempDir()}
	m := Machine{Spec: Spec{Name: "a", Program: "/kindred", Args: []string{"up"}, Owner: "one"}, Phase: Dead}
	if _, err := h.keep(t.Context(), network{}, m, Spec{Name: "a", Program: "/kindred", Args: []string{"join"}}); !errors.Is(err, ErrOther) {
		t.Errorf("got %v, want ErrOther", err)
	}
	kept, err := h.keep(t.Context(), network{}, m, Spec{Name: "a", Program: "/kindred", Args: []string{"up"}, Owner: "two"})
	if err != nil || kept.Owner != "two" || kept.Phase != Dead {
		t.Errorf("got %+v, %v; want a dead machine of another owner", kept, err)
	}
	stored, found, err := h.Get("a")
	if err != nil || !found || stored.Owner != "two" {
		t.Errorf("stored %+v, %v, %v", stored, found, err)
	}
}

func TestOwnDir(t *testing.T) {
	for path, want := range map[string]string{
		"/etc/kindred/a": "etc/kindred/a", "/var/lib/kindred/b": "lib/kindred/b", "/etc": "", "/etcd/a": "", "/usr/a": "", "/var/library": "",
	} {
		if got := ownDir(path); got != want {
			t.Errorf("%s is at %q, want %q", path, got, want)
		}
	}
}

// TestOpenParent: the directory above the directory of machines is refused, and the right one named.
func TestOpenParent(t *testing.T) {
	parent := t.TempDir()
	h, err := Open(filepath.Join(parent, "machines"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(parent); err != nil {
		t.Errorf("before there are machines: %v", err)
	}
	if err := h.changing(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("directory of machines %s: the machines are in %s", parent, filepath.Join(parent, "machines"))
	if _, err := Open(parent); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := Open(h.root); err != nil {
		t.Error(err)
	}
}
