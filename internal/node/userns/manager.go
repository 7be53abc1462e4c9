// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package userns

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/durable"
	"github.com/kindred-project/kindred/internal/node/rootdir"
)

// Options configure a manager.
type Options struct {
	Layout rootdir.Layout
	// IDsPerPod is the number of IDs of each pod, a multiple of Unit.
	IDsPerPod int64
	MaxPods   int64
	// Supports reports whether a runtime handler ("" is the default one) supports user namespaces.
	Supports func(handler string) (bool, error)
}

// Manager gives pods their ranges. It implements pod.UserNamespaces.
type Manager struct {
	options Options
	host    Range

	mu   sync.Mutex
	used map[types.UID]Range
}

// New returns a manager with the ranges that earlier agents gave to pods.
func New(options Options) (*Manager, error) {
	host, err := hostRange(options.IDsPerPod)
	if err != nil {
		return nil, fmt.Errorf("user namespaces: %w", err)
	}
	return newIn(host, options)
}

func newIn(host Range, options Options) (*Manager, error) {
	if err := host.check(options.IDsPerPod, options.MaxPods); err != nil {
		return nil, fmt.Errorf("user namespaces: %w", err)
	}
	m := &Manager{options: options, host: host, used: map[types.UID]Range{}}
	entries, err := os.ReadDir(options.Layout.PodsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("user namespaces: %w", err)
	}
	for _, entry := range entries {
		uid := types.UID(entry.Name())
		r, found, err := load(options.Layout.UserNamespaceFile(uid))
		if err != nil {
			return nil, fmt.Errorf("the user namespace of pod %s is unknown; if the pod does not run, remove its directory: %w", uid, err)
		}
		if found {
			m.used[uid] = r
		}
	}
	return m, nil
}

// For returns the user namespace of a pod that requests one. The first call allocates it, if the runtime handler supports
// user namespaces.
func (m *Manager) For(uid types.UID, handler string) (*runtimeapi.UserNamespace, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.used[uid]; ok {
		return namespace(r), nil
	}
	if err := m.checkHandler(handler); err != nil {
		return nil, err
	}
	r, ok := m.host.free(m.options.IDsPerPod, slices.Collect(maps.Values(m.used)))
	if !ok {
		return nil, errors.New("create user namespace: could not find an empty slot to allocate a user namespace")
	}
	if err := m.save(uid, r); err != nil {
		return nil, fmt.Errorf("create user namespace: %w", err)
	}
	m.used[uid] = r
	return namespace(r), nil
}

func (m *Manager) checkHandler(handler string) error {
	supported, err := m.options.Supports(handler)
	if supported && err == nil {
		return nil
	}
	problem := "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
	if handler != "" {
		problem = fmt.Sprintf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", problem, err)
	}
	return errors.New(problem)
}

func (m *Manager) save(uid types.UID, r Range) error {
	path := m.options.Layout.UserNamespaceFile(uid)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return store(path, r)
}

// Release frees the range of a pod that does not run any more and has no volumes. If the pod has none, it does nothing.
func (m *Manager) Release(uid types.UID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.used[uid]; !ok {
		return nil
	}
	// The file first: a new agent that finds it keeps the range, which does no harm.
	if err := durable.Remove(m.options.Layout.UserNamespaceFile(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release user namespace: %w", err)
	}
	delete(m.used, uid)
	return nil
}

// ReleaseOrphans frees the ranges of pods that are not to keep. Nothing of them may run.
func (m *Manager) ReleaseOrphans(keep func(types.UID) bool) error {
	m.mu.Lock()
	held := slices.Collect(maps.Keys(m.used))
	m.mu.Unlock()
	var errs []error
	for _, uid := range held {
		if !keep(uid) {
			errs = append(errs, m.Release(uid))
		}
	}
	return errors.Join(errs...)
}

func namespace(r Range) *runtimeapi.UserNamespace {
	ids := func() []*runtimeapi.IDMapping {
		return []*runtimeapi.IDMapping{{HostId: uint32(r.First), ContainerId: 0, Length: uint32(r.Length)}}
	}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids(), Gids: ids()}
}
