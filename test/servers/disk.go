// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"sigs.k8s.io/yaml"
)

// anyDisk are settings of a node agent with which it works on a disk however full, because tests share the disk with builds: pods
// are neither kept away nor evicted, and images that were just loaded are not removed.
func anyDisk() map[string]any {
	return map[string]any{
		"evictionHard": map[string]string{
			"nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
	}
}

// OnAnyDisk adds a flag to those of a node of Kindred with which it works on a disk however full. It names a file that is written.
// Flags that configure the agent themselves, or start none, are returned as they are.
func OnAnyDisk(file string, flags []string) ([]string, error) {
	if slices.Contains(flags, "--no-node") || slices.Contains(flags, "--kubelet-config") {
		return flags, nil
	}
	config := map[string]any{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
	maps.Copy(config, anyDisk())
	content, err := yaml.Marshal(config)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return nil, fmt.Errorf("configuration of the node: %w", err)
	}
	return append(slices.Clone(flags), "--kubelet-config", file), nil
}
