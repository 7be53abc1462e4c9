// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/keymutex"

	"github.com/kindred-project/kindred/internal/node/rootdir"
)

// Options are what the volumes of CSI drivers depend on.
type Options struct {
	Layout rootdir.Layout
	Client kubernetes.Interface
	// Node returns the Node object as the API last had it.
	Node func() *v1.Node
	// InUseChanged is called when InUse may have changed, if set.
	InUseChanged func()
	// Drivers lists the CSIDriver objects, once Synced.
	Drivers storagelisters.CSIDriverLister
	Synced  cache.InformerSynced
	// Token returns a service account token of the pod.
	Token func(ctx context.Context, pod *v1.Pod, request storagev1.TokenRequest) (authenticationv1.TokenRequestStatus, error)
	// Own gives the files in a directory to the pod's fsGroup.
	Own   func(pod *v1.Pod, dir string) error
	Clock clock.WithTicker
	// Intercept returns what counts the calls of a driver, if set.
	Intercept func(driver string) grpc.UnaryClientInterceptor
}

// Manager sets volumes of CSI drivers up and tears them down. It handles the registration of drivers.
type Manager struct {
	options Options
	drivers drivers
	// changing has a lock for each volume: a driver gets one call for a volume at a time.
	changing keymutex.KeyMutex

	mu      sync.Mutex
	changed chan struct{}                      // closed when the Node changes
	wanted  map[types.UID]map[string]bool      // keys of volumes that pods need attached
	staged  map[string]bool                    // paths at which this process has staged a volume
	info    map[string]storagev1.CSINodeDriver // of registered drivers, for the CSINode
	labels  map[string]map[string]string       // topology labels of registered drivers
	nodeMu  sync.Mutex                         // held while CSINode and Node are written
}

// New returns a Manager.
func New(options Options) *Manager {
	return &Manager{
		options: options, drivers: drivers{byID: map[string]*driver{}, intercept: options.Intercept}, changing: keymutex.NewHashed(0),
		changed: make(chan struct{}), wanted: map[types.UID]map[string]bool{}, staged: map[string]bool{},
		info: map[string]storagev1.CSINodeDriver{}, labels: map[string]map[string]string{},
	}
}

func (m *Manager) lock(key string) (unlock func()) {
	m.changing.LockKey(key)
	return func() { _ = m.changing.UnlockKey(key) }
}

func (m *Manager) place(v *Volume) place {
	return place{layout: m.options.Layout, pod: v.Pod.UID, volume: v.Name, block: v.isBlock()}
}

// Path returns where containers find the volume: the directory to mount, or the device.
func (m *Manager) Path(v *Volume) string {
	if v.isBlock() {
		return m.place(v).link()
	}
	return m.place(v).target()
}

// Refer records that the pod uses the volume, and that the volume must be attached if its driver needs that.
func (m *Manager) Refer(ctx context.Context, v *Volume) error {
	settings, err := m.settings(ctx, v.Driver())
	if err != nil {
		return err
	}
	if err := settings.allow(v); err != nil {
		return fmt.Errorf("kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: %w", err)
	}
	defer m.lock(v.key())()
	attach := settings.attach && v.Inline == nil
	if attach {
		m.want(v.Pod.UID, v.key())
	}
	p := m.place(v)
	if _, err := readRecord(p.record()); !errors.Is(err, errNoRecord) {
		return err
	}
	if v.isBlock() {
		if err := makeLink(p.target(), p.link()); err != nil {
			return err
		}
	}
	r := record{
		Volume: v.Name, Handle: v.Handle(), Driver: v.Driver(), Node: m.options.Node().Name, Lifecycle: v.lifecycle(),
	}
	if attach {
		r.Attached, r.Attachment = yes, v.AttachmentName(m.options.Node().Name)
	}
	return r.write(p.record())
}

func makeLink(target, link string) error {
	if have, err := os.Readlink(link); err == nil && have == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o750); err != nil {
		return err
	}
	if err := os.RemoveAll(link); err != nil {
		return err
	}
	return os.Symlink(target, link)
}

// want records that a pod needs a volume attached.
func (m *Manager) want(pod types.UID, key string) {
	m.mu.Lock()
	have := m.wanted[pod]
	if have == nil {
		have = map[string]bool{}
		m.wanted[pod] = have
	}
	fresh := !have[key]
	have[key] = true
	m.mu.Unlock()
	if fresh && m.options.InUseChanged != nil {
		m.options.InUseChanged()
	}
}

// InUse returns the volumes for the Node's status that must stay attached: those that pods need, from before
// they are attached until they are torn down.
func (m *Manager) InUse() []v1.UniqueVolumeName {
	var names []v1.UniqueVolumeName
	m.mu.Lock()
	for _, keys := range m.wanted {
		for key := range keys {
			names = append(names, uniqueName(key))
		}
	}
	m.mu.Unlock()
	for _, path := range m.records() {
		if r, err := readRecord(path); err == nil && r.Attached == yes {
			names = append(names, uniqueName(keyOf(r.Driver, r.Handle)))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// records returns the paths of the records of all pods.
func (m *Manager) records() []string {
	mounted, _ := filepath.Glob(filepath.Join(m.options.Layout.PodsDir(), "*", "volumes", Dir, "*", recordFile))
	mapped, _ := filepath.Glob(filepath.Join(m.options.Layout.SharedVolumesDir("csi"), "volumeDevices", "*", "data", "*.json"))
	mapped = slices.DeleteFunc(mapped, func(path string) bool { return filepath.Base(path) == recordFile })
	return append(mounted, mapped...)
}

// others returns the records, other than the given one, of pods that refer to the volume.
func (m *Manager) others(own string, key string) ([]string, error) {
	var found []string
	for _, path := range m.records() {
		if path == own {
			continue
		}
		r, err := readRecord(path)
		switch {
		case errors.Is(err, errNoRecord): // torn down meanwhile
		case err != nil:
			return nil, err
		case keyOf(r.Driver, r.Handle) == key:
			found = append(found, path)
		}
	}
	return found, nil
}

// UsedElsewhere reports whether another pod of the node refers to a persistent volume.
func (m *Manager) UsedElsewhere(v *Volume) (bool, error) {
	others, err := m.others(m.place(v).record(), v.key())
	return len(others) > 0, err
}

// NodeChanged wakes those who wait for volumes to be attached.
func (m *Manager) NodeChanged() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Manager) changes() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}
