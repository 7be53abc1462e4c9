// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugins registers the drivers that announce themselves with a socket in the node's registry
// directory (plugins_registry), as upstream's kubelet does.
//
// The directory is the desired state: each socket in it is a driver to register, and a driver whose socket
// disappears is removed. A socket that is created again is registered again, because another process is
// behind it. What fails is retried with backoff as long as the socket exists.
package plugins

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Handler handles the drivers of one type.
type Handler interface {
	// Validate returns why a driver cannot be registered.
	Validate(name, endpoint string, versions []string) error
	// Register registers a driver at the path of its socket. It replaces an earlier one at the same path.
	Register(ctx context.Context, name, endpoint string, versions []string) error
	// Deregister removes a driver.
	Deregister(ctx context.Context, name, endpoint string)
}

// Options are what a Watcher depends on.
type Options struct {
	Dir string
	// Handlers has the handler of each type of drivers, as registerapi.CSIPlugin.
	Handlers map[string]Handler
	Clock    clock.WithTicker
}

// Watcher registers drivers.
type Watcher struct {
	options Options
	queue   workqueue.TypedRateLimitingInterface[string]

	mu         sync.Mutex
	registered map[string]*plugin // by the path of the registration socket
}

// plugin is a registered driver.
type plugin struct {
	kind, name, endpoint string
	socket               os.FileInfo // as registered
}

const (
	retryMin = 500 * time.Millisecond
	retryMax = 2*time.Minute + 2*time.Second
)

// New returns a Watcher.
func New(options Options) *Watcher {
	return &Watcher{
		options: options, registered: map[string]*plugin{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryMin, retryMax),
			workqueue.TypedRateLimitingQueueConfig[string]{Clock: options.Clock}),
	}
}

// Run registers drivers until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	if err := os.MkdirAll(w.options.Dir, 0o755); err != nil {
		return fmt.Errorf("create the registry of drivers: %w", err)
	}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the registry of drivers: %w", err)
	}
	defer events.Close()
	if err := w.find(events, w.options.Dir); err != nil {
		return fmt.Errorf("watch the registry of drivers: %w", err)
	}
	stop := context.AfterFunc(ctx, w.queue.ShutDown)
	defer stop()
	var work sync.WaitGroup
	work.Go(func() {
		for w.next(ctx) {
		}
	})
	defer work.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-events.Events:
			w.seen(ctx, events, event)
		case err := <-events.Errors:
			klog.FromContext(ctx).Error(err, "Cannot watch the registry of drivers")
		}
	}
}

// seen handles one change of the directory.
func (w *Watcher) seen(ctx context.Context, events *fsnotify.Watcher, event fsnotify.Event) {
	if event.Has(fsnotify.Create) {
		if info, err := os.Stat(event.Name); err == nil && info.IsDir() {
			if err := w.find(events, event.Name); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot watch a directory in the registry of drivers", "path", event.Name)
			}
			return
		}
	}
	if event.Has(fsnotify.Create) || event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
		w.queue.Forget(event.Name)
		w.queue.Add(event.Name)
	}
}

// find watches a directory and those in it, and queues what is there.
func (w *Watcher) find(events *fsnotify.Watcher, dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && path == dir:
			return err
		case err != nil:
			return nil // it was removed meanwhile
		case entry.IsDir():
			return events.Add(path)
		}
		w.queue.Add(path)
		return nil
	})
}

// next handles the next path of the queue.
func (w *Watcher) next(ctx context.Context) bool {
	path, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(path)
	if err := w.sync(ctx, path); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot register a driver, will retry", "socket", path)
		}
		w.queue.AddRateLimited(path)
		return true
	}
	w.queue.Forget(path)
	return true
}

// sync brings the registration of a path to its desired state.
func (w *Watcher) sync(ctx context.Context, path string) error {
	if strings.HasPrefix(filepath.Base(path), ".") {
		return nil
	}
	socket, err := os.Stat(path)
	exists := err == nil && socket.Mode()&fs.ModeSocket != 0
	w.mu.Lock()
	have := w.registered[path]
	w.mu.Unlock()
	if have != nil && exists && isSameSocket(have.socket, socket) {
		return nil
	}
	if have != nil && !exists {
		w.forget(path)
		w.options.Handlers[have.kind].Deregister(ctx, have.name, have.endpoint)
		return nil
	}
	if !exists {
		return nil
	}
	added, err := w.register(ctx, path)
	if err != nil {
		return err
	}
	added.socket = socket
	w.mu.Lock()
	w.registered[path] = added
	w.mu.Unlock()
	return nil
}

func (w *Watcher) forget(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.registered, path)
}

// isSameSocket reports whether a socket is still the one that was registered. An inode number alone may be
// used again at once.
func isSameSocket(a, b os.FileInfo) bool { return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) }
