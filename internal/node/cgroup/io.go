// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DeviceIO is what the processes of a cgroup read from a block device and wrote to it.
type DeviceIO struct {
	// Device is its path, such as /dev/sda; empty if it is unknown.
	Device                string
	Major, Minor          uint64
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
	// Costs are the times of the I/O cost controller (blk-iocost) by its names "usage", "wait", "indebt" and "indelay". Only
	// version 2 has that controller. It has "usage" of each device that it controls, and the others only if the kernel runs with
	// blkcg_debug_stats.
	Costs map[string]time.Duration
}

// IO returns the use of block devices by a cgroup and its children; nothing if the kernel does not count it.
func (m *Manager) IO(path string) []DeviceIO {
	if m.tree == nil {
		return nil
	}
	all := m.tree.io(path)
	for i := range all {
		all[i].Device = deviceName("/sys", all[i].Major, all[i].Minor)
	}
	return all
}

func (t version2) io(path string) []DeviceIO {
	text, err := read(filepath.Join(t.root, path), "io.stat")
	if err != nil {
		return nil
	}
	return parseIOStat(text)
}

// parseIOStat parses lines like "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0".
func parseIOStat(text string) []DeviceIO {
	var all []DeviceIO
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue // a device without use has no numbers
		}
		device, ok := parseDevice(fields[0])
		if !ok {
			continue
		}
		for _, field := range fields[1:] {
			name, value, _ := strings.Cut(field, "=")
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				continue
			}
			device.set(name, n)
		}
		all = append(all, device)
	}
	return all
}

// set sets a field of io.stat.
func (d *DeviceIO) set(name string, n uint64) {
	switch name {
	case "rbytes":
		d.ReadBytes = n
	case "wbytes":
		d.WriteBytes = n
	case "rios":
		d.Reads = n
	case "wios":
		d.Writes = n
	}
	cost, ok := strings.CutPrefix(name, "cost.")
	if !ok {
		return
	}
	if d.Costs == nil {
		d.Costs = map[string]time.Duration{}
	}
	d.Costs[cost] = microseconds(n)
}

func (t version1) io(path string) []DeviceIO {
	dir := t.controller("blkio", path)
	for _, files := range blkioFiles {
		counts, err := read(dir, files.counts)
		if err != nil || !strings.Contains(counts, ":") {
			continue
		}
		bytes, _ := read(dir, files.bytes) // without it, bytes are not counted
		return parseBlkio(bytes, counts)
	}
	return nil
}

// blkioFiles are the files that count I/O, in the order in which runc and upstream's kubelet look for a device in them. The I/O
// schedulers BFQ and CFQ count the devices that they serve, and throttling counts those with a limit, or with older kernels all.
var blkioFiles = []struct{ counts, bytes string }{
	{"blkio.bfq.io_serviced_recursive", "blkio.bfq.io_service_bytes_recursive"},
	{"blkio.io_serviced_recursive", "blkio.io_service_bytes_recursive"},
	{"blkio.throttle.io_serviced_recursive", "blkio.throttle.io_service_bytes_recursive"},
	{"blkio.throttle.io_serviced", "blkio.throttle.io_service_bytes"},
}

// parseBlkio parses lines like "8:0 Read 4096", of bytes and of operations. Lines of totals have no device.
func parseBlkio(bytes, counts string) []DeviceIO {
	devices := map[[2]uint64]DeviceIO{}
	each := func(text string, set func(d *DeviceIO, operation string, n uint64)) {
		for line := range strings.Lines(text) {
			fields := strings.Fields(line)
			if len(fields) != 3 {
				continue
			}
			device, ok := parseDevice(fields[0])
			n, err := strconv.ParseUint(fields[2], 10, 64)
			if !ok || err != nil {
				continue
			}
			key := [2]uint64{device.Major, device.Minor}
			if known, ok := devices[key]; ok {
				device = known
			}
			set(&device, fields[1], n)
			devices[key] = device
		}
	}
	each(bytes, func(d *DeviceIO, operation string, n uint64) {
		switch operation {
		case "Read":
			d.ReadBytes = n
		case "Write":
			d.WriteBytes = n
		}
	})
	each(counts, func(d *DeviceIO, operation string, n uint64) {
		switch operation {
		case "Read":
			d.Reads = n
		case "Write":
			d.Writes = n
		}
	})
	var all []DeviceIO
	for _, d := range devices {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b DeviceIO) int { return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor)) })
	return all
}

func parseDevice(text string) (DeviceIO, bool) {
	major, minor, _ := strings.Cut(text, ":")
	a, errA := strconv.ParseUint(major, 10, 64)
	b, errB := strconv.ParseUint(minor, 10, 64)
	return DeviceIO{Major: a, Minor: b}, errA == nil && errB == nil
}

// deviceName returns the path of a block device by its numbers; empty if there is none.
func deviceName(sys string, major, minor uint64) string {
	data, err := os.ReadFile(filepath.Join(sys, "dev/block", strconv.FormatUint(major, 10)+":"+strconv.FormatUint(minor, 10), "uevent"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok {
			return "/dev/" + name
		}
	}
	return ""
}
