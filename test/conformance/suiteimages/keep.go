// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package suiteimages

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// stamp says beside a kept file what it was made of and how it was then. Size and time
// are looked at each time, as git does with its index; the content's digest only when
// they differ, as after a copy.
type stamp struct {
	Key    string
	Size   int64
	Time   time.Time
	Digest string
}

func stampName(file string) string { return file + ".json" }

// keep makes a file unless it is there, made of the same and as it was made.
func keep(file, key string, build func() error) error {
	kept, err := isKept(file, key)
	if err != nil || kept {
		return err
	}
	// A run that ends in the middle must not leave an old stamp at a new file.
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
	// A stamp that can't be read is none.
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
	h := sha256.New()
	if err := addFile(h, file); err != nil {
		return "", err
	}
	return sum(h), nil
}

func digest(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func sum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

func addFile(h hash.Hash, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(h, file)
	return err
}

// addSource adds a package's files but its tests, of which nothing that is built depends.
func addSource(h hash.Hash, files fs.FS) error {
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(name, "_test.go") {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(h, "%s %d\n%s", name, len(content), content)
		return err
	})
}
