// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// volume is the state of a volume. Its data is in the directory, or file, with the name of its ID.
type volume struct {
	Size int64 `json:"size"`
	// Block is true for a block device.
	Block bool `json:"block,omitempty"`
	// Parameters are the mutable ones.
	Parameters map[string]string `json:"parameters,omitempty"`
	// Node is the node to which the volume is attached.
	Node string `json:"node,omitempty"`
	// Staged and Published are where the volume is mounted there.
	Staged    string   `json:"staged,omitempty"`
	Published []string `json:"published,omitempty"`
}

// snapshot is the state of a snapshot. Its data is in a directory of its own.
type snapshot struct {
	Source  string                 `json:"source"`
	Size    int64                  `json:"size"`
	Block   bool                   `json:"block,omitempty"`
	Created *timestamppb.Timestamp `json:"created"`
}

// state is the driver's state on disk:
//
//	<volume>                    the data of a volume: a directory, or the file of a block device
//	.volumes/<volume>.json      a volume
//	.snapshots/<snapshot>       the data of a snapshot
//	.snapshots/<snapshot>.json  a snapshot
//	.limit                      exists once the driver has refused to attach a volume
//	.violations                 calls that the specification forbids
type state struct {
	mu  sync.Mutex // held during a call
	dir string
}

func openState(dir string) (*state, error) {
	for _, sub := range []string{".volumes", ".snapshots"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	return &state{dir: dir}, nil
}

func (s *state) volumePath(id string) string   { return filepath.Join(s.dir, ".volumes", id+".json") }
func (s *state) snapshotPath(id string) string { return filepath.Join(s.dir, ".snapshots", id+".json") }
func (s *state) volumeData(id string) string   { return filepath.Join(s.dir, id) }
func (s *state) snapshotData(id string) string { return filepath.Join(s.dir, ".snapshots", id) }
func (s *state) limitPath() string             { return filepath.Join(s.dir, ".limit") }

// volume returns a volume, or the error NotFound.
func (s *state) volume(id string) (*volume, error) {
	v := &volume{}
	return v, read(s.volumePath(id), v)
}

func (s *state) snapshot(id string) (*snapshot, error) {
	v := &snapshot{}
	return v, read(s.snapshotPath(id), v)
}

// volumes returns all volumes by ID.
func (s *state) volumes() (map[string]*volume, error) {
	paths, err := filepath.Glob(s.volumePath("*"))
	if err != nil {
		return nil, err
	}
	all := map[string]*volume{}
	for _, path := range paths {
		v := &volume{}
		if err := read(path, v); err != nil {
			return nil, err
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = v
	}
	return all, nil
}

// attached returns how many volumes are attached to a node.
func (s *state) attached(node string) (int, error) {
	all, err := s.volumes()
	maps.DeleteFunc(all, func(_ string, v *volume) bool { return v.Node != node })
	return len(all), err
}

// violation records a call that the specification forbids, and returns its error.
func (s *state) violation(call, id, problem string) error {
	file, err := os.OpenFile(filepath.Join(s.dir, ".violations"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.WriteString(call + " " + id + ": " + problem + "\n"); err != nil {
		return err
	}
	return status.Error(codes.FailedPrecondition, problem)
}

func read(path string, to any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return status.Error(codes.NotFound, "no "+strings.TrimSuffix(filepath.Base(path), ".json"))
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

// write replaces a file at once.
func write(path string, from any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// remove removes an object, then its data.
func remove(path, data string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(data)
}

// fill makes the data of a volume or snapshot, empty or with a copy of another one's. A copy that was interrupted
// is done again.
func fill(target, source string, block bool) error {
	if err := os.RemoveAll(target); err != nil {
		return err
	}
	switch {
	case block && source == "":
		return os.WriteFile(target, nil, 0o600)
	case block:
		data, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o600)
	case source == "":
		return os.MkdirAll(target, 0o777)
	}
	return os.CopyFS(target, os.DirFS(source))
}
