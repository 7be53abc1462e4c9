// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/kindred-project/kindred/internal/durable"
	"github.com/kindred-project/kindred/internal/node/memory"
	"github.com/kindred-project/kindred/internal/node/topology"
)

// record is what a pod has: its containers that have something, in the order in which they start. A stored record
// does not change.
type record struct {
	Containers []container `json:"containers"`
}

// container is what one container has.
type container struct {
	Name string `json:"name"`
	// Ends is set for an init container that ends before the next container starts.
	Ends    bool               `json:"ends,omitempty"`
	CPUs    string             `json:"cpus,omitempty"` // a list, such as 1-3,7
	Memory  []memory.Block     `json:"memory,omitempty"`
	Devices map[string]devices `json:"devices,omitempty"` // by resource
}

// devices are a container's devices of one resource.
type devices struct {
	IDs   []string                 `json:"ids"`
	Nodes map[string]topology.Mask `json:"nodes,omitempty"` // of each device
	// Response is what the plugin gives to the container: a protobuf message.
	Response []byte `json:"response"`
}

func (d devices) response() (*deviceapi.ContainerAllocateResponse, error) {
	r := &deviceapi.ContainerAllocateResponse{}
	return r, proto.Unmarshal(d.Response, r)
}

func (c *container) hasNothing() bool {
	return c.CPUs == "" && len(c.Memory) == 0 && len(c.Devices) == 0
}

// cpus returns the CPUs of the container. A stored list is valid: open checks it.
func (c *container) cpus() cpuset.CPUSet {
	set, _ := cpuset.Parse(c.CPUs)
	return set
}

// of returns what a container has, or false.
func (r *record) of(name string) (container, bool) {
	if r != nil {
		for _, c := range r.Containers {
			if c.Name == name {
				return c, true
			}
		}
	}
	return container{}, false
}

// cpus returns the CPUs of all containers.
func (r *record) cpus() cpuset.CPUSet {
	all := cpuset.New()
	for i := range r.Containers {
		all = all.Union(r.Containers[i].cpus())
	}
	return all
}

// reusableCPUs returns the CPUs that a container that starts next can reuse.
func (r *record) reusableCPUs() cpuset.CPUSet {
	reusable := cpuset.New()
	for i := range r.Containers {
		if c := &r.Containers[i]; c.Ends {
			reusable = reusable.Union(c.cpus())
		} else {
			reusable = reusable.Difference(c.cpus())
		}
	}
	return reusable
}

// devices returns all devices of a resource, and those that a container that starts next can reuse.
func (r *record) devices(resource string) (all, reusable sets.Set[string]) {
	all, reusable = sets.New[string](), sets.New[string]()
	for _, c := range r.Containers {
		ids := c.Devices[resource].IDs
		all.Insert(ids...)
		if c.Ends {
			reusable.Insert(ids...)
		} else {
			reusable.Delete(ids...)
		}
	}
	return all, reusable
}

// uses returns the memory of the containers.
func (r *record) uses() []memory.Use {
	var uses []memory.Use
	for _, c := range r.Containers {
		uses = append(uses, memory.Use{Ends: c.Ends, Blocks: c.Memory})
	}
	return uses
}

// store has the records of all pods, in memory and on disk.
type store struct {
	dir string

	mu      sync.Mutex
	records map[types.UID]*record
}

const suffix = ".json"

// open reads the records in a directory, which it creates.
func open(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("create the directory of assigned resources: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the assigned resources: %w", err)
	}
	s := &store{dir: dir, records: map[types.UID]*record{}}
	for _, entry := range entries {
		uid, ok := strings.CutSuffix(entry.Name(), suffix)
		if !ok {
			continue
		}
		r, err := load(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the resources assigned to pod %s: %w; drain the node, then remove the file", uid, err)
		}
		s.records[types.UID(uid)] = r
	}
	return s, nil
}

func load(path string) (*record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, c := range r.Containers {
		if _, err := cpuset.Parse(c.CPUs); err != nil {
			return nil, fmt.Errorf("%s: container %s: %w", path, c.Name, err)
		}
	}
	return r, nil
}

func (s *store) path(uid types.UID) string { return filepath.Join(s.dir, string(uid)+suffix) }

// get returns the pod's record, or nil.
func (s *store) get(uid types.UID) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[uid]
}

// all returns the records of all pods.
func (s *store) all() map[types.UID]*record {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[types.UID]*record, len(s.records))
	for uid, r := range s.records {
		all[uid] = r
	}
	return all
}

func (s *store) put(uid types.UID, r *record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the assigned resources: %w", err)
	}
	if err := durable.WriteFile(s.path(uid), data, 0o600); err != nil {
		return fmt.Errorf("store the assigned resources: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[uid] = r
	return nil
}

// remove removes a pod's record. The file goes first: resources that are free in memory must not come back.
func (s *store) remove(uid types.UID) error {
	if err := durable.Remove(s.path(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release the assigned resources: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, uid)
	return nil
}
