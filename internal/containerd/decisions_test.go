// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestNamesAreUsable(t *testing.T) {
	n, err := NamesFor("0a1b2c3d")
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Bridge) > 15 {
		t.Errorf("%q is too long for an interface name", n.Bridge)
	}
	for _, chain := range []string{chains1(n), chains2(n), peersChain(n)} {
		if len(chain) > 28 {
			t.Errorf("%q is too long for a chain's name", chain)
		}
	}
	other, err := NamesFor("0a1b2c3e")
	if err != nil {
		t.Fatal(err)
	}
	if n.Bridge == other.Bridge || n.Network == other.Network || n.Cgroup == other.Cgroup || n.Slice == other.Slice {
		t.Errorf("two data directories share a name: %+v and %+v", n, other)
	}
	for _, id := range []string{"", "0a1b2c3", "0A1B2C3D", "0a1b2c3d4", "../../..", "0a1b2c3d\n"} {
		if _, err := NamesFor(id); err == nil {
			t.Errorf("%q was accepted as an ID", id)
		}
	}
}

func chains1(n Names) string { m, _ := chains(n); return m }
func chains2(n Names) string { _, f := chains(n); return f }

// TestResetRefusesInvalidNames: an empty name would select everything.
func TestResetRefusesInvalidNames(t *testing.T) {
	names, err := NamesFor("0a1b2c3d")
	if err != nil {
		t.Fatal(err)
	}
	fine := Options{Names: names, Root: "/nowhere/containerd", RunDir: "/nowhere/run", LogFile: "/nowhere/log"}
	if err := fine.check(); err != nil {
		t.Fatal(err)
	}
	tests := map[string]func(*Options){
		"no options":               func(o *Options) { *o = Options{} },
		"no names":                 func(o *Options) { o.Names = Names{} },
		"root cgroup":              func(o *Options) { o.Names.Cgroup = "" },
		"no root":                  func(o *Options) { o.Root = "" },
		"relative":                 func(o *Options) { o.Root = "containerd" },
		"the root directory":       func(o *Options) { o.RunDir = "/" },
		"a top-level directory":    func(o *Options) { o.RunDir = "/run" },
		"no log":                   func(o *Options) { o.LogFile = "" },
		"a path with ..":           func(o *Options) { o.RunDir = "/run/x/.." },
		"another program's bridge": func(o *Options) { o.Names.Bridge = "docker0" },
	}
	for what, change := range tests {
		t.Run(what, func(t *testing.T) {
			o := fine
			change(&o)
			if err := Reset(t.Context(), o); err == nil {
				t.Errorf("reset with %+v", o)
			}
			if _, err := Start(t.Context(), o); err == nil {
				t.Errorf("start with %+v", o)
			}
		})
	}
}

func TestShimSockets(t *testing.T) {
	o := Options{RunDir: t.TempDir()}
	for name, content := range map[string]string{
		"a/address":        "unix:///run/containerd/s/one",
		"b/bootstrap.json": `{"version":3,"address":"unix:///run/containerd/s/two","protocol":"ttrpc"}`,
		"c/address":        "unix://../../etc/passwd",
		"d/address":        "vsock://1:2",
		"e/bootstrap.json": "{",
	} {
		file := filepath.Join(o.state(), "io.containerd.runtime.v2.task", Namespace, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"/run/containerd/s/one", "/run/containerd/s/two"}
	if diff := cmp.Diff(want, o.shimSockets()); diff != "" {
		t.Errorf("sockets (-want +got):\n%s", diff)
	}
}

func TestFreeRange(t *testing.T) {
	all := func(except ...int) []string {
		var ranges []string
		for i := range 256 {
			if !slices.Contains(except, i) {
				ranges = append(ranges, fmt.Sprintf("10.244.%d.0/24", i))
			}
		}
		return ranges
	}
	tests := map[string]struct {
		id    string
		from  string // 10.244.0.0/16 by default
		taken []string
		want  string
	}{
		"of another range":                            {id: "00000007", from: "192.168.0.0/16", want: "192.168.7.0/24"},
		"of a small range":                            {id: "00000007", from: "10.1.16.0/22", want: "10.1.19.0/24"},
		"a small range has no more":                   {id: "00000007", from: "10.1.16.0/22", taken: []string{"10.1.16.0/22"}},
		"the range of one node":                       {id: "00000007", from: "10.1.2.0/24", want: "10.1.2.0/24"},
		"of a large range":                            {id: "00000007", from: "10.0.0.0/8", want: "10.0.7.0/24"},
		"the range of its ID":                         {id: "000000fe", want: "10.244.254.0/24"},
		"an address in its range is taken":            {id: "00000007", taken: []string{"10.244.7.9/32"}, want: "10.244.8.0/24"},
		"other ranges are taken":                      {id: "00000007", taken: []string{"192.168.0.0/16", "10.244.6.0/24"}, want: "10.244.7.0/24"},
		"continues at the start after the last range": {id: "000000ff", taken: []string{"10.244.255.0/24"}, want: "10.244.0.0/24"},
		"one range is left":                           {id: "00000007", taken: all(3), want: "10.244.3.0/24"},
		"no range is left":                            {id: "00000007", taken: all()},
		"a wider route takes all ranges":              {id: "00000007", taken: []string{"10.0.0.0/8"}},
		"half of the ranges are taken":                {id: "00000007", taken: []string{"10.244.0.0/17"}, want: "10.244.128.0/24"},
		"only the last byte matters":                  {id: "ffffff07", want: "10.244.7.0/24"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var taken []netip.Prefix
			for _, s := range tt.taken {
				taken = append(taken, netip.MustParsePrefix(s))
			}
			from := podRanges
			if tt.from != "" {
				from = netip.MustParsePrefix(tt.from)
			}
			got, err := freeRange(tt.id, from, 24, taken)
			if tt.want == "" {
				if err == nil || !strings.Contains(err.Error(), "--pod-cidr") {
					t.Fatalf("got %s, %v; want an error that says what to do", got, err)
				}
				return
			}
			if err != nil || got.String() != tt.want {
				t.Errorf("got %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestPodCIDRs(t *testing.T) {
	tests := map[string]struct {
		given, used string
		ipv6        bool
		want        string
	}{
		"given":                          {given: "10.1.2.0/24", want: "10.1.2.0/24"},
		"given, with an address":         {given: "10.1.2.3/16", want: "10.1.0.0/16"},
		"too small":                      {given: "10.1.2.0/31"},
		"used before":                    {used: "10.1.2.0/24", want: "10.1.2.0/24"},
		"given instead of the used one":  {given: "10.1.3.0/24", used: "10.1.2.0/24", want: "10.1.3.0/24"},
		"free":                           {want: "10.244.7.0/24"},
		"both free":                      {ipv6: true, want: "10.244.7.0/24,fd00:10:244:7::/64"},
		"both used before":               {ipv6: true, used: "10.1.2.0/24,fd00:1::/64", want: "10.1.2.0/24,fd00:1::/64"},
		"IPv6 given, IPv4 used before":   {ipv6: true, given: "fd00:2::/64", used: "10.1.2.0/24", want: "10.1.2.0/24,fd00:2::/64"},
		"IPv4 comes first":               {ipv6: true, given: "fd00:2::/64,10.1.2.0/24", want: "10.1.2.0/24,fd00:2::/64"},
		"IPv6 is used no longer":         {used: "10.1.2.0/24,fd00:1::/64", want: "10.1.2.0/24"},
		"IPv6 too small":                 {ipv6: true, given: "fd00:2::/127"},
		"what was used cannot be parsed": {used: "pods"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := NetworkOptions{Dir: t.TempDir(), Names: Names{ID: "00000007"}, IPv6: tt.ipv6}
			if tt.used != "" {
				if err := os.WriteFile(o.podRangeFile(), []byte(tt.used), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for s := range strings.SplitSeq(tt.given, ",") {
				if s != "" {
					o.PodCIDRs = append(o.PodCIDRs, netip.MustParsePrefix(s))
				}
			}
			got, err := o.podCIDRs()
			if tt.want == "" {
				if err == nil {
					t.Fatalf("got %s, want an error", got)
				}
				return
			}
			if all := strings.Join(Network{PodCIDRs: got}.Ranges(), ","); err != nil || all != tt.want {
				t.Errorf("got %s, %v; want %s", all, err, tt.want)
			}
		})
	}
}

func TestParseVersion(t *testing.T) {
	tests := map[string]version{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n":                  {1, 6, "1.6.20~ds1"},
		"containerd github.com/containerd/containerd v1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da\n": {1, 7, "1.7.27"},
		"containerd github.com/containerd/containerd/v2 v2.4.2 \n":                                       {2, 4, "2.4.2"},
		"containerd containerd.io 2.0.0-rc.1 abc\n":                                                      {2, 0, "2.0.0-rc.1"},
		"containerd github.com/containerd/containerd 1.4.13~ds1 1.4.13~ds1-1~deb11u4\n":                  {},
		"bash: containerd: command not found\n":                                                          {},
	}
	for out, want := range tests {
		got, err := parseVersion(out)
		if (err != nil) != (want == version{}) || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", out, got, err, want)
		}
	}
}

func TestLackingCapabilities(t *testing.T) {
	const admin, network = 1 << unix.CAP_SYS_ADMIN, 1 << unix.CAP_NET_ADMIN
	for effective, want := range map[uint32][]string{
		0:               {"CAP_NET_ADMIN", "CAP_SYS_ADMIN"},
		admin:           {"CAP_NET_ADMIN"},
		network:         {"CAP_SYS_ADMIN"},
		admin | network: nil,
		^uint32(0):      nil,
	} {
		if got := lacking(effective); !slices.Equal(got, want) {
			t.Errorf("%x: lacks %v, want %v", effective, got, want)
		}
	}
}

func TestHowToGet(t *testing.T) {
	tests := map[string][]string{
		"":                                nil,
		"apt-get install containerd runc": {"containerd", "containerd-shim-runc-v2", "runc"},
		"apt-get install containernetworking-plugins": {"CNI plugin bridge", "CNI plugin host-local"},
		"apt-get install iptables, then run as root":  {"root", "iptables", "iptables-restore"},
		"run as root": {"root"},
		"apt-get install runc, then run with all capabilities of root (in a container: --privileged)": {"CAP_NET_ADMIN", "CAP_SYS_ADMIN", "runc"},
	}
	for want, missing := range tests {
		if got := HowToGet(missing); got != want {
			t.Errorf("%v: got %q, want %q", missing, got, want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{
		"HOME=/root", "NOTIFY_SOCKET=/run/systemd/notify", "LISTEN_FDS=1", "WATCHDOG_USEC=1", "PATH=/a:/b", "HTTPS_PROXY=p",
	}, "/opt/bin")
	want := []string{"HOME=/root", "HTTPS_PROXY=p", "PATH=/opt/bin:/a:/b:" + strings.Join(systemDirs, ":")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestIsContainerd(t *testing.T) {
	is := isContainerd("/d/config.toml")
	for line, want := range map[string]bool{
		"/usr/bin/containerd --config /d/config.toml": true,
		"/usr/bin/containerd --config /e/config.toml": false,
		"/usr/bin/containerd":                         false,
		"/usr/bin/containerd /d/config.toml --config": false,
		"vi --config /d/config.toml":                  false,
		"":                                            false,
	} {
		if got := is(strings.Fields(line)); got != want {
			t.Errorf("%q: got %v, want %v", line, got, want)
		}
	}
}

// TestConfigHasInstalledHandlers: crun is a handler only where it is installed.
func TestConfigHasInstalledHandlers(t *testing.T) {
	for _, v := range []version{{major: 1, minor: 6}, {major: 2, minor: 4}} {
		for _, crun := range []string{"", "/usr/bin/crun"} {
			got, err := settings{Runc: "/usr/sbin/runc", Crun: crun}.render(v)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(got), `BinaryName = "/usr/sbin/runc"`) {
				t.Errorf("%+v: no runc in\n%s", v, got)
			}
			if has := strings.Contains(string(got), "containerd.runtimes.crun]"); has != (crun != "") {
				t.Errorf("%+v, crun %q: handler is %v in\n%s", v, crun, has, got)
			}
		}
	}
}

// TestConfigHasCgroupDriver: all handlers of both formats use the same driver.
func TestConfigHasCgroupDriver(t *testing.T) {
	for _, v := range []version{{major: 1, minor: 6}, {major: 2, minor: 4}} {
		for _, systemd := range []bool{false, true} {
			got, err := settings{Runc: "/usr/sbin/runc", Crun: "/usr/bin/crun", SystemdCgroup: systemd}.render(v)
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("SystemdCgroup = %t\n", systemd); strings.Count(string(got), want) != 2 {
				t.Errorf("%+v: %q is not there twice in\n%s", v, want, got)
			}
		}
	}
}

func TestConfigFollowsTheVersion(t *testing.T) {
	s := settings{Root: "/d/root", State: "/r/state", Hosts: "/d/certs.d", NetworkBin: "/cni", Snapshotter: "overlayfs", RestrictOOM: true, Pause: PauseImage}
	tests := []struct {
		version version
		want    []string
		not     string
	}{
		{version{major: 1, minor: 6}, []string{"version = 2\n", `bin_dir = "/cni"`, `sandbox_image = "kindred.dev/pause`, "restrict_oom_score_adj = true", ".registry]\n    config_path = \"/d/certs.d\""}, "cri.v1"},
		{version{major: 1, minor: 7}, []string{"enable_cdi = true\n", `cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]`}, "cri.v1"},
		{version{major: 2, minor: 0}, []string{"version = 3\n", `bin_dir = "/cni"`, `sandbox = "kindred.dev/pause`, "restrict_oom_score_adj = true"}, "bin_dirs"},
		{version{major: 2, minor: 4}, []string{"version = 3\n", `bin_dirs = ["/cni"]`, ".registry]\n    config_path = \"/d/certs.d\"", "local']\n  config_path = \"/d/certs.d\""}, "bin_dir ="},
	}
	for _, tt := range tests {
		got, err := s.render(tt.version)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !strings.Contains(string(got), want) {
				t.Errorf("%+v: no %s in\n%s", tt.version, want, got)
			}
		}
		if strings.Contains(string(got), tt.not) {
			t.Errorf("%+v: %s in\n%s", tt.version, tt.not, got)
		}
	}
}

// TestCgroupOfContainerd: containerd creates its cgroup in version 1, but not in version 2.
func TestCgroupOfContainerd(t *testing.T) {
	for version, want := range map[int]bool{1: false, 2: true} {
		root := t.TempDir()
		if version == 2 {
			if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpu memory\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := createCgroup(root, "/kindred-0/runtime"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(root, "kindred-0/runtime")); (err == nil) != want {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
