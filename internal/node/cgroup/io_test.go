// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestIO(t *testing.T) {
	want := []DeviceIO{{Major: 8, ReadBytes: 4096, WriteBytes: 10, Reads: 1, Writes: 2}, {Major: 254, Minor: 3, WriteBytes: 7, Writes: 1}}
	for name, test := range map[string]struct {
		files map[string]string
		make  func(string) hierarchy
		want  []DeviceIO
	}{
		"version 2 with the I/O cost controller": {map[string]string{
			"cgroup.controllers": "cpu memory io",
			"k/p/io.stat": "8:0 rbytes=4096 wbytes=10 rios=1 wios=2 dbytes=0 dios=0 cost.usage=1532009\n" +
				"254:3 rbytes=0 wbytes=7 rios=0 wios=1 dbytes=9 dios=9 cost.vrate=100.00 cost.usage=5 cost.wait=1477289 cost.indebt=0 cost.indelay=2\n",
		}, detectV2, []DeviceIO{
			{Major: 8, ReadBytes: 4096, WriteBytes: 10, Reads: 1, Writes: 2, Costs: map[string]time.Duration{"usage": 1532009 * time.Microsecond}},
			{Major: 254, Minor: 3, WriteBytes: 7, Writes: 1, Costs: map[string]time.Duration{
				"usage": 5 * time.Microsecond, "wait": 1477289 * time.Microsecond, "indebt": 0, "indelay": 2 * time.Microsecond,
			}},
		}},
		"version 2": {map[string]string{
			"cgroup.controllers": "cpu memory io",
			"k/p/io.stat":        "8:0 rbytes=4096 wbytes=10 rios=1 wios=2 dbytes=0 dios=0\n7:0 \n254:3 rbytes=0 wbytes=7 rios=0 wios=1 dbytes=9 dios=9\n",
		}, detectV2, want},
		"version 1": {map[string]string{
			"cpu/tasks": "", "memory/tasks": "",
			"blkio/k/p/blkio.throttle.io_service_bytes_recursive": "254:3 Read 0\n254:3 Write 7\n8:0 Read 4096\n8:0 Write 10\n8:0 Sync 1\n8:0 Total 4106\nTotal 4113\n",
			"blkio/k/p/blkio.throttle.io_serviced_recursive":      "8:0 Read 1\n8:0 Write 2\n254:3 Write 1\nTotal 4\n",
		}, detectV1, want},
		"version 1 with BFQ": {map[string]string{
			"cpu/tasks": "", "memory/tasks": "",
			"blkio/k/p/blkio.bfq.io_service_bytes_recursive":      "8:0 Read 4096\n8:0 Write 10\n8:0 Sync 4106\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 4106\n254:3 Write 7\nTotal 4113\n",
			"blkio/k/p/blkio.bfq.io_serviced_recursive":           "8:0 Read 1\n8:0 Write 2\n8:0 Sync 3\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 3\n254:3 Write 1\nTotal 4\n",
			"blkio/k/p/blkio.throttle.io_service_bytes_recursive": "9:0 Read 5\nTotal 5\n",
			"blkio/k/p/blkio.throttle.io_serviced_recursive":      "9:0 Read 5\nTotal 5\n",
		}, detectV1, want},
		"version 1 with an idle BFQ": {map[string]string{
			"cpu/tasks": "", "memory/tasks": "",
			"blkio/k/p/blkio.bfq.io_service_bytes_recursive": "Total 0\n",
			"blkio/k/p/blkio.bfq.io_serviced_recursive":      "Total 0\n",
			"blkio/k/p/blkio.throttle.io_service_bytes":      "8:0 Read 4096\n8:0 Write 10\n254:3 Write 7\nTotal 4113\n",
			"blkio/k/p/blkio.throttle.io_serviced":           "8:0 Read 1\n8:0 Write 2\n254:3 Write 1\nTotal 4\n",
		}, detectV1, want},
		"version 1, idle": {map[string]string{
			"cpu/tasks": "", "memory/tasks": "",
			"blkio/k/p/blkio.throttle.io_service_bytes_recursive": "Total 0\n",
			"blkio/k/p/blkio.throttle.io_serviced_recursive":      "Total 0\n",
		}, detectV1, nil},
		"version 2 without I/O": {map[string]string{"cgroup.controllers": "cpu memory"}, detectV2, nil},
		"version 1 without I/O": {map[string]string{"cpu/tasks": "", "memory/tasks": ""}, detectV1, nil},
	} {
		if diff := cmp.Diff(test.want, test.make(tree(t, test.files)).io("/k/p")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDeviceName(t *testing.T) {
	sys := t.TempDir()
	dir := filepath.Join(sys, "dev/block/8:0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "uevent"), []byte("MAJOR=8\nMINOR=0\nDEVNAME=sda\nDEVTYPE=disk\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for minor, want := range map[uint64]string{0: "/dev/sda", 1: ""} {
		if got := deviceName(sys, 8, minor); got != want {
			t.Errorf("8:%d: %q, want %q", minor, got, want)
		}
	}
}
