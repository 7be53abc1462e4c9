// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/durable"
	"github.com/kindred-project/kindred/internal/node/topology"
)

// stopGrace is the time for which the devices of a plugin that is gone stay in the Node's capacity, as unhealthy ones.
const stopGrace = 5 * time.Minute

// Options are what a Manager depends on.
type Options struct {
	// Dir is the directory of the plugins' sockets.
	Dir   string
	Nodes topology.Mask // of the machine
	Clock clock.WithTicker
	// Changed is called when devices of a resource are new, gone, or of another health.
	Changed func(resource string, ids []string)
	// Observer counts registrations and calls, if set.
	Observer Observer
}

// Observer counts what plugins do.
type Observer interface {
	// PluginRegistered counts a registration, and DevicesAllocated a call that allocates devices.
	PluginRegistered(resource string)
	DevicesAllocated(resource string, took time.Duration)
}

// Manager knows the plugins and their devices. It handles the registration of plugins.
type Manager struct {
	options Options

	mu        sync.Mutex
	ctx       context.Context // of watches; ends with Run
	resources map[string]*resource
	watches   sync.WaitGroup
}

// resource is what is known of a resource.
type resource struct {
	devices map[string]Device
	plugins []*plugin // the last one that registered is used
	gone    time.Time // when the last plugin disappeared; zero if none was here since the agent started
}

// New returns a Manager that knows the resources that plugins registered earlier.
func New(options Options) (*Manager, error) {
	if err := os.MkdirAll(options.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("create the directory of device plugins: %w", err)
	}
	m := &Manager{options: options, ctx: context.Background(), resources: map[string]*resource{}}
	data, err := os.ReadFile(m.namesFile())
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	var names []string
	if err == nil {
		err = json.Unmarshal(data, &names)
	}
	if err != nil {
		return nil, fmt.Errorf("read the names of device plugins' resources: %w", err)
	}
	for _, name := range names {
		m.resources[name] = &resource{}
	}
	return m, nil
}

// namesFile has the names of the resources that plugins registered. Without it, the Node would keep the number of
// devices of a plugin that did not register again.
func (m *Manager) namesFile() string { return filepath.Join(m.options.Dir, "resources.json") }

// add adds a connected plugin, in place of an earlier one at the same socket, and watches its devices.
func (m *Manager) add(p *plugin) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		p.conn.Close()
		return m.ctx.Err()
	}
	r := m.resources[p.resource]
	if r == nil {
		names := slices.Sorted(maps.Keys(m.resources))
		data, err := json.Marshal(append(names, p.resource))
		if err == nil {
			err = durable.WriteFile(m.namesFile(), data, 0o600)
		}
		if err != nil {
			p.conn.Close()
			return fmt.Errorf("store the name of the resource: %w", err)
		}
		r = &resource{}
		m.resources[p.resource] = r
	}
	for _, old := range r.plugins {
		if old.socket == p.socket {
			old.conn.Close() // its watch ends
		}
	}
	r.plugins = append(r.plugins, p)
	ctx := m.ctx
	m.watches.Go(func() {
		defer p.conn.Close()
		err := p.watch(ctx, func(devices map[string]Device) { m.update(p, devices) })
		m.remove(ctx, p, err)
	})
	return nil
}

// update takes the devices of a plugin.
func (m *Manager) update(p *plugin, devices map[string]Device) {
	devices = known(devices, m.options.Nodes)
	m.mu.Lock()
	r := m.resources[p.resource]
	ids := changed(r.devices, devices)
	r.devices = devices
	m.mu.Unlock()
	m.options.Changed(p.resource, ids)
}

// remove removes a plugin that is gone. If it was the last of its resource, the devices are unhealthy.
func (m *Manager) remove(ctx context.Context, p *plugin, err error) {
	if ctx.Err() != nil {
		return
	}
	klog.FromContext(ctx).Info("A device plugin is gone", "resource", p.resource, "socket", p.socket, "reason", err)
	m.mu.Lock()
	r := m.resources[p.resource]
	r.plugins = slices.DeleteFunc(r.plugins, func(other *plugin) bool { return other == p })
	var ids []string
	if len(r.plugins) == 0 {
		unhealthy := maps.Clone(r.devices)
		for id, d := range unhealthy {
			d.Healthy = false
			unhealthy[id] = d
		}
		ids = changed(r.devices, unhealthy)
		r.devices, r.gone = unhealthy, m.options.Clock.Now()
	}
	m.mu.Unlock()
	m.options.Changed(p.resource, ids)
}

// Has reports whether a plugin has registered the resource, now or earlier.
func (m *Manager) Has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resources[name] != nil
}

// Count is the number of devices of a resource.
type Count struct{ Capacity, Allocatable int }

// Counts returns the number of devices of all resources that plugins have registered.
func (m *Manager) Counts() map[string]Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[string]Count{}
	for name, r := range m.resources {
		c := Count{}
		if len(r.plugins) > 0 || m.options.Clock.Since(r.gone) <= stopGrace {
			c.Capacity = len(r.devices)
		}
		for _, d := range r.devices {
			if d.Healthy {
				c.Allocatable++
			}
		}
		counts[name] = c
	}
	return counts
}

// Devices returns the devices of all resources.
func (m *Manager) Devices() map[string]map[string]Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]map[string]Device{}
	for name, r := range m.resources {
		all[name] = r.devices // replaced, never changed
	}
	return all
}

// Hints returns the NUMA nodes that have devices for a request; nil if the resource has no preference.
func (m *Manager) Hints(r Request) topology.Hints {
	return hints(r, m.Devices()[r.Resource], m.options.Nodes)
}

// Allocate chooses devices for a request and has the plugin allocate them. It returns their IDs and what the
// container gets.
func (m *Manager) Allocate(ctx context.Context, r Request) ([]string, *api.ContainerAllocateResponse, error) {
	p := m.plugin(r.Resource)
	ids, err := choose(r, m.Devices()[r.Resource], func(available, mustInclude []string, count int) ([]string, error) {
		if p == nil {
			return nil, nil
		}
		return p.preferred(ctx, available, mustInclude, count)
	})
	if err != nil {
		return nil, nil, err
	}
	if p == nil {
		return nil, nil, fmt.Errorf("unknown Device Plugin %s", r.Resource)
	}
	begin := m.options.Clock.Now()
	response, err := p.allocate(ctx, ids)
	if m.options.Observer != nil {
		m.options.Observer.DevicesAllocated(r.Resource, m.options.Clock.Since(begin))
	}
	return ids, response, err
}

// PreStart notifies a resource's plugin that a container with these devices starts.
func (m *Manager) PreStart(ctx context.Context, name string, ids []string) error {
	p := m.plugin(name)
	if p == nil {
		return nil // it has not registered since the agent started
	}
	return p.preStart(ctx, ids)
}

// plugin returns the plugin to use, or nil.
func (m *Manager) plugin(name string) *plugin {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[name]
	if r == nil || len(r.plugins) == 0 {
		return nil
	}
	return r.plugins[len(r.plugins)-1]
}
