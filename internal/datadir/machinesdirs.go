// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/kindred-project/kindred/internal/durable"
)

// AddMachinesDir stores that pods of the cluster make machines of this host in a directory. Only the holder of the lock may call it.
func (l Layout) AddMachinesDir(dir string) error {
	all, err := l.MachinesDirs()
	if err != nil || slices.Contains(all, dir) {
		return err
	}
	text, err := json.Marshal(append(all, dir))
	if err != nil {
		return err
	}
	return l.wrap(durable.WriteFile(l.machinesFile(), append(text, '\n'), 0o644))
}

// MachinesDirs returns the directories that AddMachinesDir has stored: also those that are no longer used, because machines may be left there.
func (l Layout) MachinesDirs() (all []string, err error) {
	text, err := os.ReadFile(l.machinesFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, l.wrap(unreadable(err))
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, l.wrap(fmt.Errorf("machines.json: %w", err))
	}
	return all, nil
}
