// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/durable"
)

// claim records the requests to drivers for one ResourceClaim. Its slices and maps are not changed once it
// is stored.
type claim struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Pods are the pods that the claim was prepared for, or may have been.
	Pods []types.UID `json:"pods"`
	// Drivers has the drivers of the claim's devices, with the devices that they prepared.
	Drivers map[string][]device `json:"drivers"`

	// prepared is set once all drivers have prepared the claim for this process.
	prepared bool
	// unpreparing is set from before a driver is asked to unprepare the claim.
	unpreparing bool
}

// device is a prepared device.
type device struct {
	Pool string `json:"pool"`
	Name string `json:"name"`
	// Share identifies the part of a device that several claims share (KEP-5075).
	Share *string `json:"share,omitempty"`
	// Requests are the requests of the claim that the device is for; none means all.
	Requests []string `json:"requests,omitempty"`
	CDI      []string `json:"cdi,omitempty"`
}

func (c claim) key() string { return c.Namespace + "/" + c.Name }

func (c claim) isFor(pod types.UID) bool { return slices.Contains(c.Pods, pod) }

// Store has the records of claims, by namespace and name. They are on disk as well.
type Store struct {
	dir string

	mu     sync.Mutex
	claims map[string]claim
}

// Open reads the records in a directory.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, claims: map[string]claim{}}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the records of ResourceClaims: %w", err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".json") {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the records of ResourceClaims: %w", err)
		}
		var c claim
		if err := json.Unmarshal(data, &c); err != nil {
			return nil, fmt.Errorf("the record of a ResourceClaim at %s is damaged: drain the node and remove it: %w", path, err)
		}
		s.claims[c.key()] = c
	}
	return s, nil
}

// get returns the claim of this namespace and name.
func (s *Store) get(key string) (claim, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.claims[key]
	return c, ok
}

// all returns all claims.
func (s *Store) all() []claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]claim, 0, len(s.claims))
	for _, c := range s.claims {
		all = append(all, c)
	}
	return all
}

// InUse returns the numbers of claims by driver. "<any>" is the number of all.
func (s *Store) InUse() map[string]int {
	all := s.all()
	counts := map[string]int{"<any>": len(all)}
	for _, c := range all {
		for driver := range c.Drivers {
			counts[driver]++
		}
	}
	return counts
}

// write stores a claim on disk and in memory.
func (s *Store) write(c claim) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("checkpoint ResourceClaim state: %w", err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("checkpoint ResourceClaim state: %w", err)
	}
	if err := durable.WriteFile(s.path(c), data, 0o600); err != nil {
		return fmt.Errorf("checkpoint ResourceClaim state: %w", err)
	}
	s.note(c)
	return nil
}

// note stores a claim in memory only.
func (s *Store) note(c claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims[c.key()] = c
}

// remove removes a claim. If the file survives power loss, its drivers unprepare the claim once more.
func (s *Store) remove(c claim) error {
	if err := os.Remove(s.path(c)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("checkpoint ResourceClaim state: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, c.key())
	return nil
}

func (s *Store) path(c claim) string { return filepath.Join(s.dir, string(c.UID)+".json") }
