// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const limitsOfProcess = `Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max file size             unlimited            unlimited            bytes     
Max processes             63432                63432                processes 
Max open files            1024                 524288               files     
Max locked memory         8388608              8388608              bytes     
`

func TestMaxOpenFiles(t *testing.T) {
	for _, tc := range []struct {
		limits string
		want   *int64
	}{
		{limitsOfProcess, new(int64(1024))},
		{"Max open files            unlimited            unlimited            files     \n", new(int64(-1))},
		{"Max open files            many                 many                 files     \n", nil},
		{"Max file size             unlimited            unlimited            bytes     \n", nil},
		{"", nil},
	} {
		if diff := cmp.Diff(tc.want, maxOpenFiles(tc.limits)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tc.limits, diff)
		}
	}
}

func TestCountProcesses(t *testing.T) {
	proc := t.TempDir()
	for pid, targets := range map[string][]string{
		"1":  {"/dev/null"},
		"17": {"/dev/null", "pipe:[4711]", "socket:[4712]", "/run/socket:", "socket:[4713]"},
		"18": {"anon_inode:[eventpoll]", "socket:[4714]"},
	} {
		dir := filepath.Join(proc, pid, "fd")
		err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(proc, pid, "limits"), []byte(limitsOfProcess), 0o600))
		for i, target := range targets {
			err = errors.Join(err, os.Symlink(target, filepath.Join(dir, string(rune('0'+i)))))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		path string
		pids []int
		want processes
	}{
		{"two processes, one of which has ended", "/k/pod/c", []int{17, 18, 19}, processes{3, 7, 3, new(int64(1024))}},
		{"the main process has ended", "/k/pod/c", []int{19, 18}, processes{2, 2, 1, nil}},
		{"a pod, whose processes are in child cgroups", "/k/pod", nil, processes{}},
		{"the machine", "/", []int{18}, processes{1, 2, 1, new(int64(1024))}},
	} {
		got := countProcesses(proc, tc.pids, mainProcess(tc.path, tc.pids))
		if diff := cmp.Diff(&tc.want, got, cmp.AllowUnexported(processes{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	if got := mainProcess("/", nil); got != 1 {
		t.Errorf("the main process of the machine is %d", got)
	}
}
