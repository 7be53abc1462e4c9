// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kept caches files that take long to build: a file is rebuilt when its inputs have
// changed, or when it is not as it was built.
package kept

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"
)

// stamp records the inputs and the state of a cached file, in a file beside it. Size and
// modification time are compared each time, as git does with its index; the digest of the content
// only when they differ, as after a copy.
type stamp struct {
	Key    string
	Size   int64
	Time   time.Time
	Digest string
}

func stampName(file string) string { return file + ".json" }

// File builds a file unless it exists unchanged, built from the same inputs. key identifies the
// inputs; see [Key].
func File(file, key string, build func() error) error {
	kept, err := isKept(file, key)
	if err != nil || kept {
		return err
	}
	// An interrupted build must not leave an old stamp for a new file.
	if err := os.Remove(stampName(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := build(); err != nil {
		return err
	}
	return writeStamp(file, key)
}

func isKept(file, key string) (bool, error) {
	var s stamp
	raw, err := os.ReadFile(stampName(file))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// A stamp that cannot be read counts as missing.
	if json.Unmarshal(raw, &s) != nil || s.Key != key {
		return false, nil
	}
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if info.Size() != s.Size || info.ModTime().Equal(s.Time) {
		return info.Size() == s.Size, nil
	}
	content, err := digestOf(file)
	if err != nil || content != s.Digest {
		return false, err
	}
	return true, writeStamp(file, key)
}

func writeStamp(file, key string) error {
	content, err := digestOf(file)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(stamp{Key: key, Size: info.Size(), Time: info.ModTime(), Digest: content})
	if err != nil {
		return err
	}
	return os.WriteFile(stampName(file), raw, 0o644)
}

func digestOf(file string) (string, error) {
	k := NewKey()
	if err := k.AddFile(file); err != nil {
		return "", err
	}
	return k.String(), nil
}
