// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/source"
)

const (
	// maxManifest is the longest manifest, in bytes.
	maxManifest = 10 << 20
	// settling is the time that a directory must be unchanged before it is read: programs write a file in several steps.
	settling = 100 * time.Millisecond
)

// File is the source of the pods of a directory, or of one file.
type File struct {
	Path   string
	Node   string
	Decode Decode
	// Period is the longest time until a change is seen that the kernel does not report.
	Period time.Duration
	Clock  clock.WithTicker
	// Found is called with all pods, in the order of the files' names.
	Found func(pods []*v1.Pod)
	// Failed is called once for each error of a file.
	Failed func(file string, err error)

	pods   map[string][]*v1.Pod // by file
	failed map[string]string    // the last error of each file
}

// Run reads the path until ctx ends: now, after each change, and periodically.
func (f *File) Run(ctx context.Context) {
	ticker := f.Clock.NewTicker(f.Period)
	defer ticker.Stop()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Changes of static pods are seen only periodically", "path", f.Path)
		f.poll(ctx, ticker)
		return
	}
	defer watcher.Close()
	f.watch(watcher)
	f.read(false)
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-watcher.Events:
			f.removed(event)
			settled = f.Clock.After(settling)
		case <-watcher.Errors: // the next period finds what was missed
		case <-settled:
			f.read(true)
		case <-ticker.C():
			f.watch(watcher) // the directory may be new
			f.read(false)
		}
	}
}

// removed reports the pods without those of a file that was removed or renamed. The file may exist again by the time that
// the directory is read, and its pods are to start again then.
func (f *File) removed(event fsnotify.Event) {
	if !event.Has(fsnotify.Remove) && !event.Has(fsnotify.Rename) || len(f.pods[event.Name]) == 0 {
		return
	}
	delete(f.pods, event.Name)
	var all []*v1.Pod
	for _, file := range slices.Sorted(maps.Keys(f.pods)) {
		all = append(all, f.pods[file]...)
	}
	f.Found(all)
}

// poll reads the path periodically.
func (f *File) poll(ctx context.Context, ticker clock.Ticker) {
	for {
		f.read(false)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// watch watches the directory of the manifests. If it does not exist yet, the next period tries again.
func (f *File) watch(watcher *fsnotify.Watcher) {
	dir := f.Path
	if info, err := os.Stat(f.Path); err == nil && !info.IsDir() {
		dir = filepath.Dir(f.Path)
	}
	_ = watcher.Add(dir)
}

// read reads all manifests and reports their pods. If the path cannot be read, the pods stay as they are. A file with an
// error declares no pods; if keep is set, it keeps those that it declared, because it may be incomplete.
func (f *File) read(keep bool) {
	files, err := manifestsAt(f.Path)
	if f.report(f.Path, err); err != nil {
		return
	}
	pods := map[string][]*v1.Pod{}
	var all []*v1.Pod
	for _, file := range files {
		found, err := f.readFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if f.report(file, err); err != nil && keep {
			found = f.pods[file]
		}
		pods[file] = found
		all = append(all, found...)
	}
	for file := range f.failed {
		if _, exists := pods[file]; !exists {
			delete(f.failed, file)
		}
	}
	f.pods = pods
	f.Found(all)
}

// report reports an error of a file unless it is the last one that was reported.
func (f *File) report(file string, err error) {
	if err == nil {
		delete(f.failed, file)
		return
	}
	if f.failed == nil {
		f.failed = map[string]string{}
	}
	if f.failed[file] == err.Error() {
		return
	}
	f.failed[file] = err.Error()
	f.Failed(file, err)
}

func (f *File) readFile(file string) ([]*v1.Pod, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	text, err := readAtMost(file)
	if err != nil {
		return nil, err
	}
	pods, err := f.Decode(text, origin{node: f.Node, from: source.File, at: file}.complete)
	if err != nil {
		return nil, err
	}
	if len(pods) != 1 {
		return nil, fmt.Errorf("a file must have one pod, not a list of %d", len(pods))
	}
	return pods, nil
}

func readAtMost(file string) ([]byte, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return limited(opened)
}

// limited reads all of a manifest.
func limited(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err == nil && len(text) > maxManifest {
		err = fmt.Errorf("longer than %d bytes", maxManifest)
	}
	return text, err
}

// manifestsAt returns the files of a path, sorted: the path itself, or if it is a directory, the files in it whose names do
// not begin with a dot. There are none if the path does not exist.
func manifestsAt(path string) ([]string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	return files, nil
}
