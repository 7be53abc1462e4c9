// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	stampSuffix      = "20060102-150405"
	compressedSuffix = ".gz"
	unfinishedSuffix = ".tmp"
)

// RotatorOptions are the limits of logs.
type RotatorOptions struct {
	// Reopen makes the runtime reopen the container's log file (CRI ReopenContainerLog).
	Reopen func(ctx context.Context, containerID string) error
	Clock  clock.WithTicker
	// MaxSize is the size in bytes at which a file is rotated.
	MaxSize int64
	// MaxFiles is the number of files of a log, including the current one; at least 2.
	MaxFiles int
	// Period is the time between two checks of the sizes.
	Period time.Duration
}

// Rotator rotates the logs of running containers. It implements pod.Logs.
type Rotator struct {
	options RotatorOptions

	mu    sync.Mutex
	paths map[string]string // by container ID
}

// NewRotator returns a Rotator, which does nothing before Run.
func NewRotator(options RotatorOptions) *Rotator {
	return &Rotator{options: options, paths: map[string]string{}}
}

// Start implements pod.Logs.
func (r *Rotator) Start(containerID, path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paths[containerID] = path
}

// Stop implements pod.Logs.
func (r *Rotator) Stop(containerID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.paths, containerID)
}

// Run rotates logs until ctx ends.
func (r *Rotator) Run(ctx context.Context) {
	ticker := r.options.Clock.NewTicker(r.options.Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			r.rotateAll(ctx)
		}
	}
}

func (r *Rotator) rotateAll(ctx context.Context) {
	r.mu.Lock()
	paths := make(map[string]string, len(r.paths))
	for id, path := range r.paths {
		paths[id] = path
	}
	r.mu.Unlock()
	for id, path := range paths {
		info, err := os.Stat(path)
		if err == nil && info.Size() < r.options.MaxSize {
			continue
		}
		if err := r.rotate(ctx, id, path); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot rotate the log, will retry", "containerID", id, "path", path)
		}
	}
}

// rotate rotates a log. The agent may crash after any step: the next rotation continues from what it
// left.
func (r *Rotator) rotate(ctx context.Context, id, path string) error {
	old, err := cleanUp(path)
	if err != nil {
		return err
	}
	// Leave room for the current file and for the one that it is renamed to.
	for excess := len(old) - (r.options.MaxFiles - 2); excess > 0; excess-- {
		if err := os.Remove(old[0]); err != nil {
			return err
		}
		old = old[1:]
	}
	// The runtime still had the newest old file open when it was renamed. It is complete now.
	for _, file := range old {
		if strings.HasSuffix(file, compressedSuffix) {
			continue
		}
		if err := compress(file); err != nil {
			return err
		}
	}
	return r.rename(ctx, id, path)
}

// rename renames the log file and has the runtime open a new one.
func (r *Rotator) rename(ctx context.Context, id, path string) error {
	aside := path + "." + r.options.Clock.Now().Format(stampSuffix)
	err := os.Rename(path, aside)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	// If the file is missing, an earlier rotation ended between rename and reopen.
	if err := r.options.Reopen(ctx, id); err != nil {
		if !missing {
			// The runtime still writes to the old file: undo the rename.
			err = errors.Join(err, os.Rename(aside, path))
		}
		return fmt.Errorf("failed to reopen log of container %s: %w", id, err)
	}
	return nil
}

// cleanUp removes the leftovers of interrupted compressions, and returns the old files of the log,
// oldest first.
func cleanUp(path string) ([]string, error) {
	all, err := oldFiles(path)
	if err != nil {
		return nil, err
	}
	var kept []string
	for _, file := range all {
		done := strings.TrimSuffix(file, compressedSuffix)
		switch {
		case strings.HasSuffix(file, unfinishedSuffix),
			done == file && slices.Contains(all, file+compressedSuffix):
			if err := os.Remove(file); err != nil {
				return nil, err
			}
		default:
			kept = append(kept, file)
		}
	}
	return kept, nil
}

// oldFiles returns all rotated files of the log, sorted by time.
func oldFiles(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	prefix := filepath.Base(path) + "."
	var files []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), prefix) {
			files = append(files, filepath.Join(filepath.Dir(path), entry.Name()))
		}
	}
	return files, nil // ReadDir sorts by name, and the names contain times
}

// compress replaces a file by its compressed form atomically. It does not sync: like the runtime's log
// files, rotated ones may lose their end when the power fails.
func compress(path string) error {
	unfinished := path + unfinishedSuffix
	if err := writeCompressed(path, unfinished); err != nil {
		_ = os.Remove(unfinished)
		return err
	}
	if err := os.Rename(unfinished, path+compressedSuffix); err != nil {
		return err
	}
	return os.Remove(path)
}

func writeCompressed(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	packer := gzip.NewWriter(out)
	_, err = io.Copy(packer, in)
	return errors.Join(err, packer.Close(), out.Close())
}

// Remove removes a container's log and its rotated files.
func Remove(path string) error {
	files, err := oldFiles(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range append(files, path) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return utilerrors.NewAggregate(errs)
}
