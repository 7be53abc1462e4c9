// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kept

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"
)

// Key is a digest of the inputs of a file.
type Key struct{ hash hash.Hash }

// NewKey returns the key of the values, each in its printed form (%#v).
func NewKey(values ...any) Key {
	k := Key{sha256.New()}
	for _, value := range values {
		fmt.Fprintf(k.hash, "%#v\n", value)
	}
	return k
}

// AddFile adds a file's content.
func (k Key) AddFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(k.hash, file)
	return err
}

// AddSource adds the files of a package without its tests, because no build depends on those.
func (k Key) AddSource(files fs.FS) error {
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(name, "_test.go") {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(k.hash, "%s %d\n%s", name, len(content), content)
		return err
	})
}

// String returns the key of everything that was added so far.
func (k Key) String() string { return hex.EncodeToString(k.hash.Sum(nil)) }
