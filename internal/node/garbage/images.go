// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// imagePeriod is the time between two collections of images, as in the kubelet.
const imagePeriod = 5 * time.Minute

// The reasons of events on the Node, as in the kubelet.
const (
	reasonImageGCFailed       = "ImageGCFailed"
	reasonFreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	reasonInvalidDiskCapacity = "InvalidDiskCapacity"
)

// The reasons for which an image is removed, in metrics.
const (
	removedForAge   = "age"
	removedForSpace = "space"
)

// ImageService is the used part of CRI's image service.
type ImageService interface {
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// RuntimeService is the used part of CRI's runtime service.
type RuntimeService interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
}

// ImageOptions are what the collection of images depends on.
type ImageOptions struct {
	Policy  Policy
	Images  ImageService
	Runtime RuntimeService
	// Volumes reports whether containers may have images as volumes.
	Volumes bool
	// Pinned returns the names of images to keep in addition to those that CRI reports as pinned. Nil: none.
	Pinned func(ctx context.Context) ([]string, error)
	// Wanted returns the full names of the images of the node's pods that are not over.
	Wanted func() []string
	// Prune removes the records of pulled images that list does not return. It calls list once.
	Prune func(list func() ([]string, error)) error
	// Event records an event on the Node.
	Event func(eventType, reason, message string)
	// Removed is called, if set, for each image that is removed, with the reason "age" or "space".
	Removed func(reason string)
	Clock   clock.WithTicker
	// File keeps when images were used.
	File string
}

// Images removes images.
type Images struct {
	options ImageOptions
	usage   *usage
	disk    func(path string) (space, error)

	mu sync.Mutex // held by one collection
}

// NewImages returns the collector of images, which does nothing before Run.
func NewImages(options ImageOptions) *Images {
	return &Images{options: options, usage: openUsage(options.File, options.Clock), disk: spaceOf}
}

// Used records that a pod uses an image, by the runtime's ID.
func (m *Images) Used(id string) {
	if err := m.usage.used(id); err != nil {
		klog.Background().Error(err, "Cannot record the use of an image", "imageID", id)
	}
}

// Run collects images until ctx ends, first at once.
func (m *Images) Run(ctx context.Context) {
	ticker := m.options.Clock.NewTicker(imagePeriod)
	defer ticker.Stop()
	for failures := 0; ; {
		err := m.Collect(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
		default:
			failures++
			klog.FromContext(ctx).Error(err, "Image garbage collection failed", "failures", failures)
		}
		if failures > 1 { // a single failure may be one of the runtime's start
			m.options.Event(v1.EventTypeWarning, reasonImageGCFailed, err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// Collect removes images that have been unused for too long and, if the file system of images is full, more of them.
func (m *Images) Collect(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	removable, err := m.removable(ctx)
	if err != nil {
		return err
	}
	if m.options.Policy.disabled() {
		return nil
	}
	expired, others := m.options.Policy.split(removable, m.options.Clock.Now())
	if _, err := m.remove(ctx, expired, math.MaxUint64, removedForAge); err != nil {
		return fmt.Errorf("wanted to free images older than %v, encountered errors in image deletion: %w", m.options.Policy.MaxAge, err)
	}
	return errors.Join(m.free(ctx, others), m.prune(ctx))
}

// Reclaim removes all images that nothing uses, whatever the usage of the disk.
func (m *Images) Reclaim(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	removable, err := m.removable(ctx)
	if err != nil {
		return err
	}
	_, err = m.remove(ctx, removable, math.MaxUint64, removedForSpace)
	return errors.Join(err, m.prune(ctx))
}

// free removes images until the usage of their file system is as low as it should be.
func (m *Images) free(ctx context.Context, removable []Image) error {
	disk, err := m.imageDisk(ctx)
	if err != nil {
		return err
	}
	if disk.capacity == 0 {
		err := errors.New("invalid capacity 0 on image filesystem")
		m.options.Event(v1.EventTypeWarning, reasonInvalidDiskCapacity, err.Error())
		return err
	}
	excess := m.options.Policy.excess(disk)
	if excess == 0 {
		return nil
	}
	klog.FromContext(ctx).Info("Disk usage on image filesystem is over the high threshold, removing unused images",
		"usage", disk.used(), "highThreshold", m.options.Policy.High, "lowThreshold", m.options.Policy.Low, "bytes", excess)
	freed, err := m.remove(ctx, removable, excess, removedForSpace)
	if err != nil {
		return fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w", excess, freed, err)
	}
	if freed >= excess {
		return nil
	}
	message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		disk.used(), formatSize(disk.capacity), freed)
	m.options.Event(v1.EventTypeWarning, reasonFreeDiskSpaceFailed, message)
	return errors.New(message)
}

// remove removes images in order until their sizes sum up to a number of bytes. It returns the sum, and what failed.
func (m *Images) remove(ctx context.Context, images []Image, bytes uint64, reason string) (freed uint64, err error) {
	var errs []error
	for _, image := range images {
		if freed >= bytes || ctx.Err() != nil {
			break
		}
		if m.wanted().haveAny(image.Names) {
			continue // by a pod that came since the image was found to be unused
		}
		klog.FromContext(ctx).Info("Removing an unused image", "imageID", image.ID, "size", image.Size, "lastUsed", image.LastUsed)
		if err := m.options.Images.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: image.ID}); err != nil {
			errs = append(errs, err)
			continue
		}
		freed += image.Size
		if m.options.Removed != nil {
			m.options.Removed(reason)
		}
	}
	return freed, errors.Join(errs...)
}

// prune removes the records of pulled images that the runtime no longer has. It follows removals: an image without a
// record is one that every pod may use.
func (m *Images) prune(ctx context.Context) error {
	return m.options.Prune(func() ([]string, error) {
		images, err := m.options.Images.ListImages(ctx, nil)
		if err != nil {
			return nil, err
		}
		ids := make([]string, len(images))
		for i, image := range images {
			ids[i] = image.Id
		}
		return ids, nil
	})
}

// imageDisk returns the space of the file system of images.
func (m *Images) imageDisk(ctx context.Context) (space, error) {
	info, err := m.options.Images.ImageFsInfo(ctx)
	if err != nil {
		return space{}, fmt.Errorf("get the file system of images: %w", err)
	}
	for _, fs := range info.GetImageFilesystems() {
		return m.disk(fs.GetFsId().GetMountpoint())
	}
	return space{}, errors.New("the container runtime reports no file system of images")
}

func spaceOf(path string) (space, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return space{}, fmt.Errorf("get the size of the file system of %s: %w", path, err)
	}
	return space{capacity: fs.Blocks * uint64(fs.Bsize), available: fs.Bavail * uint64(fs.Bsize)}, nil
}

// formatSize returns a size with a binary unit, as in 1.5 GiB.
func formatSize(bytes uint64) string {
	size, unit := float64(bytes), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for ; size >= 1024 && unit < len(units)-1; unit++ {
		size /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}
