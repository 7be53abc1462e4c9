// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFreeRange: the pod range does not overlap any route of the machine.
func TestFreeRange(t *testing.T) {
	for name, c := range map[string]struct {
		taken []string
		want  string
	}{
		"nothing taken":       {nil, "10.200.0.0/24"},
		"others taken":        {[]string{"127.0.0.0/8", "192.0.2.0/24", "fd00::/64", "10.244.0.0/16"}, "10.200.0.0/24"},
		"first taken":         {[]string{"10.200.0.0/24"}, "10.201.0.0/24"},
		"one address taken":   {[]string{"10.200.0.77/32", "10.201.0.0/30"}, "10.202.0.0/24"},
		"a wider range taken": {[]string{"10.192.0.0/12"}, "10.208.0.0/24"},
		"all taken":           {[]string{"10.0.0.0/8"}, ""},
	} {
		var taken []netip.Prefix
		for _, each := range c.taken {
			taken = append(taken, netip.MustParsePrefix(each))
		}
		got, err := freeRange(taken)
		if (err == nil) != (c.want != "") || err == nil && got.String() != c.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
}

// TestIsShim: shims of another containerd are not stopped.
func TestIsShim(t *testing.T) {
	for command, want := range map[string]bool{
		"/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-address\x00/ours/containerd.sock\x00":  true,
		"/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-address\x00/other/containerd.sock\x00": false,
		"/bin/ctr\x00--address\x00/ours/containerd.sock\x00":                                             false,
		"": false,
	} {
		if got := isShim([]byte(command), "/ours/containerd.sock"); got != want {
			t.Errorf("%q: %t", command, got)
		}
	}
}

// TestAddCgroup: a new cgroup has no CPUs in v1 and no controllers in v2, until it
// inherits them.
func TestAddCgroup(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, cgroupName)
	write(t, filepath.Join(parent, "cpuset.cpus"), "0-1\n")
	write(t, filepath.Join(parent, "cpuset.mems"), "0\n")
	write(t, filepath.Join(parent, "cgroup.controllers"), "memory\n")
	for range 2 { // the second call takes over what a killed run left
		if err := addCgroup([]string{dir}); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "cpuset.cpus"):               "0-1\n",
		filepath.Join(dir, "cpuset.mems"):               "0\n",
		filepath.Join(parent, "cgroup.subtree_control"): "+memory",
	} {
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", file, got, err, want)
		}
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRemoveAllButLogs: of the cluster's files only the logs are kept, and files of other programs are
// not removed.
func TestRemoveAllButLogs(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"etcd.log", "etcd/wal.log", "kubelet.yaml"} {
		write(t, filepath.Join(dir, file), "")
	}
	if err := removeAllButLogs(dir); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"etcd.log"}) {
		t.Errorf("remaining: %q", got)
	}
}

// TestMakeDirRefusesDirectoryInUse: a directory with other files is refused, because they would
// be removed with it.
func TestMakeDirRefusesDirectoryInUse(t *testing.T) {
	parent, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, link := filepath.Join(parent, "new"), filepath.Join(parent, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{node: node{dir: link}}
	if err := c.makeDir(); err != nil || c.node.dir != dir {
		t.Errorf("the cluster is in %s, %v, want %s: mounts have the resolved path", c.node.dir, err, dir)
	}
	write(t, filepath.Join(dir, "etcd.log"), "another's")
	if err := c.makeDir(); err == nil {
		t.Error("a directory in use was taken")
	}
}

// TestRemoveFixedDirs: directories that the kubelet created are removed, and those that existed before
// it are kept with their files.
func TestRemoveFixedDirs(t *testing.T) {
	dir := t.TempDir()
	there, inner, outer := filepath.Join(dir, "there"), filepath.Join(dir, "new/inner"), filepath.Join(dir, "new")
	write(t, filepath.Join(there, "file"), "")
	before := missing([]string{there, inner, outer})
	write(t, filepath.Join(inner, "kubelet.sock"), "")
	write(t, filepath.Join(there, "another"), "")
	if err := removeFixedDirs(before); err != nil {
		t.Fatal(err)
	}
	if got := append(names(t, dir), names(t, there)...); !slices.Equal(got, []string{"there", "another", "file"}) {
		t.Errorf("remaining: %q", got)
	}
	write(t, filepath.Join(inner, "unknown/file"), "")
	if err := removeFixedDirs([]string{inner}); err == nil {
		t.Error("an unknown directory was removed")
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

const portRules = `# Generated by iptables-save
*nat
:PREROUTING ACCEPT [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-MASQ - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A PREROUTING -j OTHERS
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000
COMMIT
`

// TestRemovalOfChains: only chains that the cluster created are removed, and only if no other pods use
// them.
func TestRemovalOfChains(t *testing.T) {
	ports := remnants[len(remnants)-1]
	const none = "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n"
	ours := []string{
		"-D|PREROUTING|-m|addrtype|--dst-type|LOCAL|-j|CNI-HOSTPORT-DNAT",
		"-D|POSTROUTING|-m|comment|--comment|CNI portfwd requiring masquerade|-j|CNI-HOSTPORT-MASQ",
		"-F|CNI-HOSTPORT-DNAT", "-F|CNI-HOSTPORT-SETMARK", "-F|CNI-HOSTPORT-MASQ",
		"-X|CNI-HOSTPORT-DNAT", "-X|CNI-HOSTPORT-SETMARK", "-X|CNI-HOSTPORT-MASQ",
	}
	for name, c := range map[string]struct {
		before, now string
		want        []string
	}{
		"no pod had ports":                 {none, none, nil},
		"ours":                             {none, portRules, ours},
		"there before":                     {portRules, portRules, nil},
		"a pod of another runtime has one": {none, portRules + "-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 80 -j CNI-DN-0123\n", nil},
	} {
		var got []string
		for _, command := range ports.removal([]byte(c.before), []byte(c.now)) {
			got = append(got, strings.Join(command, "|"))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", name, got, c.want)
		}
	}
}
