// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kindred-project/kindred/internal/durable"
)

// records remember with whose credentials images were pulled, so that a pod cannot
// use by its bare name what another pod's secret brought to the node (KEP-2535,
// policy NeverVerifyPreloadedImages). An image without a record was put on the
// node by its owner and is for all.
type records struct {
	dir string

	mu sync.Mutex
}

// pullRecord is the file of one image, by the runtime's reference.
type pullRecord struct {
	// Repositories has an entry for each name the image was pulled under.
	Repositories map[string]access `json:"repositories"`
}

// access says who may use an image under one name.
type access struct {
	Everybody bool    `json:"everybody,omitempty"`
	Secrets   []proof `json:"secrets,omitempty"`
}

// proof is a credential that pulled the image once.
type proof struct {
	Secret string `json:"secret"`
	Hash   string `json:"hash"`
}

// allows says whether a pod with these credentials may use the present image;
// needsKeys that it depends on them.
func (r *records) allows(image, ref string, credentials []credential) (allowed, needsKeys bool) {
	name, err := repository(image)
	if err != nil {
		return false, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var record pullRecord
	switch err := r.read(r.pulledFile(ref), &record); {
	case errors.Is(err, fs.ErrNotExist):
		// A pull with a secret that was cut off tells nothing of who may use the image.
		_, err := os.Stat(r.intentFile(image))
		return errors.Is(err, fs.ErrNotExist), false
	case err != nil:
		return false, false
	}
	granted, ok := record.Repositories[name]
	if granted.Everybody {
		return true, false
	}
	for _, c := range credentials {
		if slices.ContainsFunc(granted.Secrets, func(p proof) bool { return p.Hash == c.hash || p.Secret == c.secret }) {
			return true, true
		}
	}
	return false, ok
}

// begin notes that a pull starts, and returns what notes its end with the
// runtime's reference to the image, or "" when it failed.
func (r *records) begin(image string, c *credential) (done func(ref string), err error) {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	intent := r.intentFile(image)
	if c.auth != nil {
		if err := durable.WriteFile(intent, []byte(image), 0o600); err != nil {
			return nil, err
		}
	}
	return func(ref string) {
		// An intent that stays makes the next pod prove its right: safe.
		if ref != "" && r.grant(image, ref, c) != nil {
			return
		}
		if c.auth != nil {
			_ = os.Remove(intent)
		}
	}, nil
}

// grant adds to the image's record that these credentials pulled it.
func (r *records) grant(image, ref string, c *credential) error {
	name, err := repository(image)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var record pullRecord
	if err := r.read(r.pulledFile(ref), &record); err != nil && !errors.Is(err, fs.ErrNotExist) {
		record = pullRecord{}
	}
	if record.Repositories == nil {
		record.Repositories = map[string]access{}
	}
	granted := record.Repositories[name]
	added := proof{Secret: c.secret, Hash: c.hash}
	switch {
	case granted.Everybody:
		return nil
	case c.auth == nil:
		granted = access{Everybody: true}
	case slices.Contains(granted.Secrets, added):
		return nil
	default:
		granted.Secrets = append(granted.Secrets, added)
	}
	record.Repositories[name] = granted
	return r.write(r.pulledFile(ref), record)
}

func (r *records) read(path string, record *pullRecord) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, record)
}

// write stores a record. It is durable, because an image without one may be used by all.
func (r *records) write(path string, record pullRecord) error {
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return durable.WriteFile(path, data, 0o600)
}

func (r *records) pulledFile(ref string) string { return r.file("pulled", ref) }

func (r *records) intentFile(image string) string { return r.file("pulling", image) }

func (r *records) file(kind, name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(r.dir, kind+"-"+hex.EncodeToString(sum[:]))
}
