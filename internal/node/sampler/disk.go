// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kindred-project/kindred/internal/node/metrics"
	"github.com/kindred-project/kindred/internal/node/usage"
)

// Volume is a prepared volume of a pod.
type Volume struct {
	Name string
	// Path is where it is mounted into containers.
	Path string
	// Claim is the name of the PersistentVolumeClaim; empty if there is none.
	Claim string
	// Files is set if the volume is a directory of the node's own, which is measured by its files. Otherwise its file
	// system is measured.
	Files bool
	// Local is set if its files are ephemeral storage of the node.
	Local bool
}

// used is the disk usage of something: bytes and inodes.
type used struct{ bytes, inodes uint64 }

// disk is the disk usage of a node.
type disk struct {
	at time.Time
	// images and containers are the file systems of images, and of the writable layers of containers.
	images, containers *statsapi.FsStats
	// layers are the writable layers of containers by ID, and logs by [containerKey].
	layers, logs map[string]used
	volumes      map[types.UID][]statsapi.VolumeStats
	// local is what the volumes of a pod use that are ephemeral storage.
	local map[types.UID]used
}

// diskNow measures the disk usage. It returns what it could measure along with an error.
func (s *Sampler) diskNow(ctx context.Context) (*disk, error) {
	d := &disk{
		at: s.options.Clock.Now(), layers: map[string]used{}, logs: map[string]used{},
		volumes: map[types.UID][]statsapi.VolumeStats{}, local: map[types.UID]used{},
	}
	errs := []error{s.imageFileSystems(ctx, d), s.layers(ctx, d)}
	for _, pod := range s.options.Pods() {
		if ctx.Err() != nil {
			return d, ctx.Err()
		}
		for _, c := range pod.Containers {
			d.logs[containerKey(string(pod.UID), c.Name)] = logUsage(s.options.Logs(pod.Pod, c.Name))
		}
		for _, v := range s.options.Volumes(pod.UID) {
			errs = append(errs, s.volume(d, pod.Pod, v))
		}
	}
	return d, errors.Join(errs...)
}

// imageFileSystems measures the file systems that CRI names.
func (s *Sampler) imageFileSystems(ctx context.Context, d *disk) error {
	info, err := s.options.Images.ImageFsInfo(ctx)
	if err != nil {
		return err
	}
	d.images = d.fileSystem(info.GetImageFilesystems())
	if d.containers = d.fileSystem(info.GetContainerFilesystems()); d.containers == nil {
		d.containers = d.images
	}
	return nil
}

func (d *disk) fileSystem(reported []*runtimeapi.FilesystemUsage) *statsapi.FsStats {
	if len(reported) == 0 {
		return nil
	}
	f := reported[0]
	stats, err := statfs(f.GetFsId().GetMountpoint(), d.at)
	if err != nil {
		stats = &statsapi.FsStats{Time: metav1.NewTime(d.at)}
	}
	stats.UsedBytes, stats.InodesUsed = new(f.GetUsedBytes().GetValue()), new(f.GetInodesUsed().GetValue())
	return stats
}

// layers measures the writable layers of containers.
func (s *Sampler) layers(ctx context.Context, d *disk) error {
	list, err := s.options.Runtime.ListContainerStats(ctx, s.options.Filter)
	for _, c := range list {
		if layer := c.GetWritableLayer(); layer != nil {
			d.layers[c.GetAttributes().GetId()] = used{layer.GetUsedBytes().GetValue(), layer.GetInodesUsed().GetValue()}
		}
	}
	return err
}

// volume measures a volume by its file system, or by its files.
func (s *Sampler) volume(d *disk, pod *v1.Pod, v Volume) error {
	stats, err := statfs(v.Path, d.at)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoDirectory) {
		return nil // a block device, or gone
	}
	if err != nil {
		return err
	}
	own, err := isOtherDevice(v.Path, s.options.RootDir)
	if err != nil {
		return err
	}
	if v.Files && !own {
		measured, err := s.directory(v.Path)
		if err != nil {
			return err
		}
		bytes, inodes := uint64(measured.Bytes), uint64(measured.Inodes)
		stats.UsedBytes, stats.InodesUsed = &bytes, &inodes
		if v.Local {
			sum := d.local[pod.UID]
			d.local[pod.UID] = used{sum.bytes + bytes, sum.inodes + inodes}
		}
	}
	reported := statsapi.VolumeStats{Name: v.Name, FsStats: *stats}
	if v.Claim != "" {
		reported.PVCRef = &statsapi.PVCReference{Name: v.Claim, Namespace: pod.Namespace}
	}
	d.volumes[pod.UID] = append(d.volumes[pod.UID], reported)
	return nil
}

var errNoDirectory = errors.New("not a directory")

// statfs measures the file system of a directory.
func statfs(dir string, at time.Time) (*statsapi.FsStats, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, errNoDirectory
	}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return nil, err
	}
	size := uint64(s.Bsize)
	return &statsapi.FsStats{
		Time:           metav1.NewTime(at),
		AvailableBytes: new(s.Bavail * size), CapacityBytes: new(s.Blocks * size), UsedBytes: new((s.Blocks - s.Bfree) * size),
		Inodes: &s.Files, InodesFree: &s.Ffree, InodesUsed: new(s.Files - s.Ffree),
	}, nil
}

func isOtherDevice(a, b string) (bool, error) {
	var statA, statB unix.Stat_t
	if err := errors.Join(unix.Stat(a, &statA), unix.Stat(b, &statB)); err != nil {
		return false, err
	}
	return statA.Dev != statB.Dev, nil
}

// directory returns what a directory uses.
func (s *Sampler) directory(dir string) (usage.Used, error) {
	if s.options.Known != nil {
		if known, ok := s.options.Known(dir); ok {
			return known, nil
		}
	}
	return usage.Measure(context.Background(), dir)
}

// logUsage returns what the logs in a directory use.
func logUsage(dir string) used {
	var sum used
	entries, err := os.ReadDir(dir)
	if err != nil {
		return sum
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		sum.bytes += uint64(info.Size())
		sum.inodes++
	}
	return sum
}

// Volumes returns the volumes with a claim, and the logs of containers, as last measured.
func (s *Sampler) Volumes() (volumes []statsapi.VolumeStats, logs []metrics.LogUsage) {
	d := s.disk.Load()
	for _, pod := range s.options.Pods() {
		for _, v := range d.volumes[pod.UID] {
			if v.PVCRef != nil {
				volumes = append(volumes, v)
			}
		}
		for _, c := range pod.Containers {
			if u, ok := d.logs[containerKey(string(pod.UID), c.Name)]; ok {
				logs = append(logs, metrics.LogUsage{UID: string(pod.UID), Namespace: pod.Namespace, Pod: pod.Name, Container: c.Name, Bytes: u.bytes})
			}
		}
	}
	return volumes, logs
}
