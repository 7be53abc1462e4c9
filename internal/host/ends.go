// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"
)

// settled is the time after which a Kindred that runs has no former ends.
const settled = 30 * time.Second

// Ends are the ends of Kindred in a machine since it ran for longer than settled.
type Ends struct {
	Count int `json:"count"`
	// Last is the exit status of the last end, or its signal.
	Last string `json:"last,omitempty"`
}

// endsSize is the size of the record of Ends. It is written in place, also when the disk is full.
const endsSize = 128

// writeEnds writes the record to the file that the first process of a machine has locked.
func writeEnds(file *os.File, e Ends) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	record := bytes.Repeat([]byte(" "), endsSize)
	copy(record, text)
	_, err = file.WriteAt(record, 0)
	return err
}

// readEnds reads the record. A file without one counts as no ends: other versions of this program do not write it.
func readEnds(path string) (e Ends, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err != nil {
		return e, err
	}
	if json.Unmarshal(text, &e) != nil {
		return Ends{}, nil
	}
	return e, nil
}
