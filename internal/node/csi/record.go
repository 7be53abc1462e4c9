// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/kindred-project/kindred/internal/durable"
)

// record is what a driver was asked to do for a volume, of a pod or of the node. The names of the first
// fields are those of upstream's vol_data.json, which tools read.
type record struct {
	Volume     string                        `json:"specVolID,omitempty"`
	Handle     string                        `json:"volumeHandle"`
	Driver     string                        `json:"driverName"`
	Node       string                        `json:"nodeName,omitempty"`
	Lifecycle  storagev1.VolumeLifecycleMode `json:"volumeLifecycleMode,omitempty"`
	Attachment string                        `json:"attachmentID,omitempty"`

	// Attached is "true" if the volume is attached to the node for this pod.
	Attached string `json:"attached,omitempty"`
	// Asked is "true" from before the driver is asked to publish or stage the volume. Done is "true"
	// once it has.
	Asked string `json:"asked,omitempty"`
	Done  string `json:"done,omitempty"`
}

const yes = "true"

// errNoRecord is returned for a volume without a record.
var errNoRecord = errors.New("no record")

func readRecord(path string) (record, error) {
	var r record
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, errNoRecord
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("the record of a volume at %s is damaged: %w", path, err)
	}
	return r, nil
}

func (r record) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.WriteFile(path, data, 0o640)
}

// removeEmpty removes a directory that may not exist. It fails if the directory is not empty.
func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
