// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rootdir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestPodOfLogs(t *testing.T) {
	for name, want := range map[string]types.UID{"ns_p_u-1": "u-1", "ns_p_": "", "ns_p": "", "a_b_c_d": "", "": ""} {
		if got, ok := PodOfLogs(name); got != want || ok != (want != "") {
			t.Errorf("%q is of pod %q, %t", name, got, ok)
		}
	}
}

func TestLink(t *testing.T) {
	l := Layout{Root: "/node", Links: "/links"}
	if got, want := l.Link("ns", "p", "c", "0123abcd"), "/links/p_ns_c-0123abcd.log"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := filepath.Base(l.Link("ns", strings.Repeat("p", 253), "c", "0123abcd")); len(got) != 255 || !strings.HasSuffix(got, ".log") {
		t.Errorf("the name of a file can't be %q", got)
	}
	if got := (Layout{Root: "/node"}).Link("ns", "p", "c", "0123abcd"); got != "" {
		t.Errorf("%s without a directory of links", got)
	}
}

// Two agents that share the directories of logs and links remove only their own pods' logs and links.
func TestSharedLogs(t *testing.T) {
	shared := t.TempDir()
	logs, links := filepath.Join(shared, "pods"), filepath.Join(shared, "containers")
	first := Layout{Root: t.TempDir(), Logs: logs, Links: links}
	second := Layout{Root: t.TempDir(), Logs: logs, Links: links}
	write := func(l Layout, name string, uid types.UID) (log, link string) {
		log = filepath.Join(l.PodLogsDir("ns", name, uid), l.ContainerLog("c", 0))
		link = l.Link("ns", name, "c", string(uid)+"-container")
		err := errors.Join(l.PrepareLogs(), l.MakePodLogsDir("ns", name, uid), os.Mkdir(filepath.Dir(log), 0o755), os.WriteFile(log, nil, 0o600), os.Symlink(log, link))
		if err != nil {
			t.Fatal(err)
		}
		return log, link
	}
	check := func(want bool, files ...string) {
		t.Helper()
		for _, file := range files {
			if _, err := os.Lstat(file); (err == nil) != want {
				t.Errorf("%s exists: %t, want %t", file, err == nil, want)
			}
		}
	}
	log1, link1 := write(first, "p", "u1")
	log2, link2 := write(second, "p", "u2") // a pod with the same name in another cluster
	log3, link3 := write(first, "p_", "u3") // no pod has such a name
	own, err := first.OwnLogs()
	if err != nil || len(own) != 1 || own["u1"] != filepath.Dir(filepath.Dir(log1)) {
		t.Fatalf("%v, %v", own, err)
	}
	if err := first.RemovePodLogs(own["u1"]); err != nil {
		t.Fatal(err)
	}
	check(false, filepath.Dir(filepath.Dir(log1)), link1)
	check(true, log2, link2, log3, link3)
	for range 2 {
		if err := RemoveLogs(second.Root); err != nil {
			t.Fatal(err)
		}
		check(false, log2)
	}
	check(true, log3)
	if err := RemoveLogs(t.TempDir()); err != nil {
		t.Errorf("an agent without logs: %v", err)
	}
}
