// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kindred-project/kindred/internal/durable"
)

// Membership is which cluster a machine has joined. It is kept in the machine's data directory.
type Membership struct {
	// Server is the URL of the API.
	Server string `json:"server"`
	// Servers are the addresses, host:port, of the cluster's servers when they were last seen.
	Servers []string `json:"servers,omitempty"`
	// Node is the name of the machine's node.
	Node string `json:"node"`
	// CA are the certificates of the cluster's authority, in PEM.
	CA []byte `json:"ca"`
}

// ReadMembership reads a membership from a file; an empty one if there is no file.
func ReadMembership(path string) (Membership, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Membership{}, nil
	}
	if err != nil {
		return Membership{}, err
	}
	var m Membership
	if err := json.Unmarshal(text, &m); err != nil {
		return Membership{}, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Write writes the membership to a file.
func (m Membership) Write(path string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(text, '\n'), 0o600)
}
