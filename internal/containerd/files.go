// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"bytes"
	"os"

	"github.com/kindred-project/kindred/internal/durable"
)

// writeIfChanged writes a file unless it has this content, because containerd watches its network
// configuration.
func writeIfChanged(path string, content []byte) error {
	if same, err := hasContent(path, content); err != nil || same {
		return err
	}
	return durable.WriteFile(path, content, 0o644)
}

func hasContent(path string, content []byte) (bool, error) {
	present, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return false, nil
	}
	return bytes.Equal(present, content), err
}
