// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/cgroup"
	"github.com/kindred-project/kindred/internal/node/eviction"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/usage"
)

// watchPressure sets up what measures the node and evicts pods.
func (a *Agent) watchPressure() error {
	config, err := eviction.Parse(&a.options.Config.KubeletConfiguration)
	if err != nil {
		return err
	}
	a.usage = usage.New(usage.Options{Clock: a.options.Clock, Period: a.options.Config.VolumeStatsAggPeriod.Duration, Dirs: a.localDirs})
	a.evictions = eviction.New(eviction.Options{
		Config: config, Node: pressureNode{a}, Clock: a.options.Clock, Changed: a.registration.check,
		Evicted:    func(s eviction.Signal) { a.metrics.Evicted(string(s)) },
		EvictedBy:  func(s eviction.Signal, age time.Duration) { a.metrics.EvictedBy(string(s), age) },
		Containers: eviction.ReclaimFunc(a.reclaimContainers), Images: eviction.ReclaimFunc(a.reclaimImages),
		Notice: func(sentence string) { a.notice("node " + a.options.Name + " " + sentence) },
	})
	a.registration.reporter.pressure = a.evictions.Conditions
	return nil
}

func (a *Agent) notice(line string) {
	if a.options.Notice != nil {
		a.options.Notice(line)
	}
}

// pressureNode measures the node and its pods. It implements eviction.Node.
type pressureNode struct{ *Agent }

// Layout implements eviction.Node. Two directories are on one file system if they are on one device.
func (p pressureNode) Layout(ctx context.Context) (eviction.Layout, error) {
	images, containers, err := p.imageDirs(ctx)
	if err != nil {
		return eviction.OneFs, err
	}
	node, err := deviceOf(p.options.RootDir)
	if err != nil {
		return eviction.OneFs, err
	}
	image, err := deviceOf(images)
	if err != nil {
		return eviction.OneFs, err
	}
	container, err := deviceOf(containers)
	switch {
	case err != nil:
		return eviction.OneFs, err
	case image == node:
		return eviction.OneFs, nil
	case container == node:
		return eviction.SplitFs, nil
	}
	return eviction.ImageFs, nil
}

func deviceOf(path string) (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return 0, fmt.Errorf("find the file system of %s: %w", path, err)
	}
	return stat.Dev, nil
}

// imageDirs returns the directories in which the runtime stores images and writable layers.
func (a *Agent) imageDirs(ctx context.Context) (images, containers string, err error) {
	info, err := a.images.ImageFsInfo(ctx)
	if err != nil {
		return "", "", fmt.Errorf("read where the runtime stores images: %w", err)
	}
	of := func(list []*runtimeapi.FilesystemUsage) string {
		if len(list) == 0 {
			return ""
		}
		return list[0].GetFsId().GetMountpoint()
	}
	images, containers = of(info.GetImageFilesystems()), of(info.GetContainerFilesystems())
	if images == "" {
		images = a.options.RootDir
	}
	if containers == "" { // runtimes before KEP-4191
		containers = images
	}
	return images, containers, nil
}

// Observe implements eviction.Node.
func (p pressureNode) Observe(ctx context.Context) (eviction.Observations, error) {
	now := p.options.Clock.Now()
	seen := eviction.Observations{}
	add := func(s eviction.Signal, available, capacity int64, format resource.Format) {
		seen[s] = eviction.Observation{Available: *resource.NewQuantity(available, format), Capacity: *resource.NewQuantity(capacity, format), Time: now}
	}
	var errs []error
	if used, err := cgroup.MachineUsage(); err == nil {
		memory := p.registration.reporter.machine.ordinaryMemory()
		add(eviction.MemoryAvailable, memory-int64(used.Memory), memory, resource.BinarySI)
	} else {
		errs = append(errs, err)
	}
	if used, limit, err := p.cgroups.PodsMemory(); err == nil {
		add(eviction.AllocatableMemoryAvailable, limit-used, limit, resource.BinarySI)
	}
	images, containers, err := p.imageDirs(ctx)
	errs = append(errs, err)
	for _, fs := range []struct {
		dir           string
		bytes, inodes eviction.Signal
	}{
		{p.options.RootDir, eviction.NodeFsAvailable, eviction.NodeFsInodesFree},
		{images, eviction.ImageFsAvailable, eviction.ImageFsInodesFree},
		{containers, eviction.ContainerFsAvailable, eviction.ContainerFsInodesFree},
	} {
		if fs.dir == "" {
			continue
		}
		var stat unix.Statfs_t
		if err := unix.Statfs(fs.dir, &stat); err != nil {
			errs = append(errs, fmt.Errorf("measure the file system of %s: %w", fs.dir, err))
			continue
		}
		add(fs.bytes, int64(stat.Bavail)*stat.Bsize, int64(stat.Blocks)*stat.Bsize, resource.BinarySI)
		if stat.Files > 0 { // some file systems have no limit
			add(fs.inodes, int64(stat.Ffree), int64(stat.Files), resource.DecimalSI)
		}
	}
	if running, most, err := processes("/proc"); err == nil {
		add(eviction.PIDAvailable, most-running, most, resource.DecimalSI)
	} else {
		errs = append(errs, err)
	}
	return seen, errors.Join(errs...)
}

// processes returns the number of the machine's threads, and how many there may be.
func processes(proc string) (running, most int64, err error) {
	for _, file := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		limit, err := strconv.ParseInt(line(proc+"/"+file), 10, 64)
		if err == nil && (most == 0 || limit < most) {
			most = limit
		}
	}
	load, err := os.ReadFile(proc + "/loadavg") // "0.20 0.18 0.12 1/80 11206": 80 threads
	if err != nil || most == 0 {
		return 0, 0, errors.Join(fmt.Errorf("cannot tell how many processes %s has, of at most %d", proc, most), err)
	}
	fields := strings.Fields(string(load))
	if len(fields) < 4 {
		return 0, 0, fmt.Errorf("%s/loadavg has no number of threads: %q", proc, load)
	}
	_, count, _ := strings.Cut(fields[3], "/")
	running, err = strconv.ParseInt(count, 10, 64)
	return running, most, err
}

// Pods implements eviction.Node.
func (p pressureNode) Pods() []*v1.Pod { return p.pods.Active() }

// Evict implements eviction.Node.
func (p pressureNode) Evict(evicted *v1.Pod, e eviction.Eviction) bool {
	return p.pods.Evict(evicted.UID, pod.Eviction{
		Refusal: pod.Refusal{Reason: eviction.Reason, Message: e.Message}, GraceSeconds: e.GraceSeconds, Disrupts: e.Disrupts,
	})
}

// IsEvicting implements eviction.Node.
func (p pressureNode) IsEvicting(uid types.UID) bool { return p.pods.IsEvicting(uid) }

// usagesLimit is the timeout of the runtime's measurement of containers.
const usagesLimit = 10 * time.Second
