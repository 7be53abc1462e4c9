// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kindred-project/kindred/internal/durable"
)

// mappings is the content of a pod's file: upstream's format, so that tools which read it work.
type mappings struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

func store(path string, r Range) error {
	m := []mapping{{HostID: uint32(r.First), Length: uint32(r.Length)}}
	data, err := json.Marshal(mappings{UIDs: m, GIDs: m})
	if err != nil {
		return err
	}
	return durable.WriteFile(path, data, 0o600)
}

// load returns the range in a pod's file, and whether the file exists.
func load(path string) (r Range, found bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Range{}, false, nil
	}
	if err != nil {
		return Range{}, false, err
	}
	var m mappings
	if err := json.Unmarshal(data, &m); err != nil {
		return Range{}, false, fmt.Errorf("invalid user namespace mappings file %s: %w", path, err)
	}
	if len(m.UIDs) != 1 || len(m.GIDs) != 1 || m.UIDs[0] != m.GIDs[0] || m.UIDs[0].ContainerID != 0 || m.UIDs[0].Length == 0 {
		return Range{}, false, fmt.Errorf("invalid user namespace mappings file %s: want one range from ID 0, the same for users and groups", path)
	}
	return Range{First: int64(m.UIDs[0].HostID), Length: int64(m.UIDs[0].Length)}, true, nil
}
