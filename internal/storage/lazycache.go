// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// lazyCache is a store whose watch cache is opened by the first list or watch. Until then, requests go to the store below.
//
// k8s.io/apiextensions-apiserver opens a storage for each version of a definition, and clients read one of them. Each cache decodes
// all events of the resource, calls the conversion webhook for them, and keeps the objects of more than a minute: the cache of an
// unread version costs as much as that of the version in use.
type lazyCache struct {
	storage.Interface
	// open returns the layers from the watch cache up, and a function that ends them.
	open func() (storage.Interface, func(), error)

	mu     sync.Mutex
	cached storage.Interface // nil until the cache is opened
	stop   func()
	// stopped is set when the storage is destroyed. Its cache is not opened after that.
	stopped bool
}

// current returns where requests go that need no cache.
func (l *lazyCache) current() storage.Interface {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.either()
}

// opened returns where lists and watches go.
func (l *lazyCache) opened() (storage.Interface, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cached != nil || l.stopped {
		return l.either(), nil
	}
	cached, stop, err := l.open()
	if err != nil {
		return nil, err
	}
	l.cached, l.stop = cached, stop
	return cached, nil
}

// either is for callers that hold mu.
func (l *lazyCache) either() storage.Interface {
	if l.cached == nil {
		return l.Interface
	}
	return l.cached
}

func (l *lazyCache) destroy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if l.stop != nil {
		l.stop()
	}
}

func (l *lazyCache) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	s, err := l.opened()
	if err != nil {
		return err
	}
	return s.GetList(ctx, key, opts, list)
}

func (l *lazyCache) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	s, err := l.opened()
	if err != nil {
		return nil, err
	}
	return s.Watch(ctx, key, opts)
}

func (l *lazyCache) Get(ctx context.Context, key string, opts storage.GetOptions, object runtime.Object) error {
	return l.current().Get(ctx, key, opts, object)
}

func (l *lazyCache) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	return l.current().GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
}

func (l *lazyCache) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	return l.current().Delete(ctx, key, out, preconditions, validate, cached, opts)
}

func (l *lazyCache) Stats(ctx context.Context) (storage.Stats, error) { return l.current().Stats(ctx) }

func (l *lazyCache) ReadinessCheck() error { return l.current().ReadinessCheck() }
