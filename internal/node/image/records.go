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

// records store which credentials pulled an image, so that a pod without these credentials cannot use
// the image only because it is present (KEP-2535, policy NeverVerifyPreloadedImages). An image without
// a record was preloaded, and every pod may use it.
type records struct {
	dir string

	mu sync.Mutex
	// granted are the files of the images pulled since the last prune began.
	granted map[string]bool
}

// pullRecord is the file of one image, which is named by the runtime's reference.
type pullRecord struct {
	// Repositories has an entry for each repository that the image was pulled from.
	Repositories map[string]access `json:"repositories"`
}

// access lists the credentials of the pods that may use an image under one repository's name.
type access struct {
	Everybody bool    `json:"everybody,omitempty"`
	Secrets   []proof `json:"secrets,omitempty"`
}

// proof is a credential that has pulled the image.
type proof struct {
	Secret string `json:"secret"`
	Hash   string `json:"hash"`
}

// allows reports whether a pod with these credentials may use the present image, and whether that
// depends on the credentials.
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
		// After an interrupted pull with a secret, it is unknown who may use the image.
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

// begin records the start of a pull. The function it returns records the end, with the runtime's
// reference of the image, or "" if the pull failed.
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
		// If the grant cannot be stored, the intent stays, and the next pod must pull with its own
		// credentials.
		if ref != "" && r.grant(image, ref, c) != nil {
			return
		}
		if c.auth != nil {
			_ = os.Remove(intent)
		}
	}, nil
}

// grant adds these credentials to the image's record.
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
	if r.granted == nil {
		r.granted = map[string]bool{}
	}
	r.granted[r.pulledFile(ref)] = true
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

// prune removes the records of images that list does not return. The caller has removed these images already: with
// the opposite order, an agent that is killed in between would leave an image without a record, which every pod may
// use. For the same reason, the record of an image that is pulled meanwhile stays.
func (r *records) prune(list func() ([]string, error)) error {
	r.mu.Lock()
	r.granted = nil
	r.mu.Unlock()
	refs, err := list()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	keep := map[string]bool{}
	for _, ref := range refs {
		keep[r.pulledFile(ref)] = true
	}
	files, err := filepath.Glob(filepath.Join(r.dir, "pulled-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		if keep[file] || r.granted[file] {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
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
