// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kindred-project/kindred/internal/durable"
)

// Record is stored beside a store. It reveals that the store was replaced by an older copy.
type Record struct {
	Time time.Time `json:"time"`
	// Entry is a log entry that was durable at that time.
	Entry uint64 `json:"entry"`
	// Stopped is the state of the database at the last clean stop; nil before the first.
	Stopped *Stopped `json:"stopped,omitempty"`
}

// Stopped is the state of the database at a clean stop.
type Stopped struct {
	// Transaction is the last transaction of the database. If it is unchanged, nothing was written
	// since.
	Transaction uint64 `json:"transaction"`
	// Versions is the number of versions of keys, Sums the checksum of the file with their
	// checksums, and Rest that of all other entries.
	Versions int    `json:"versions"`
	Sums     uint32 `json:"sums"`
	Rest     uint32 `json:"rest"`
}

func recordFile(dir string) string { return filepath.Join(dir, "record") }
func sumsFile(dir string) string   { return filepath.Join(dir, "sums") }

// ReadRecord reads the record of a store; nil if there is none, or it is damaged itself.
func ReadRecord(dir string) (*Record, error) {
	text, err := os.ReadFile(recordFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, nil
	}
	return &r, nil
}

// Note records that a log entry is durable. The record of the last clean stop stays valid for the
// versions that still exist.
func Note(dir string, entry uint64, now time.Time) error {
	r, err := ReadRecord(dir)
	if err != nil {
		return err
	}
	if r == nil {
		r = &Record{}
	}
	r.Entry, r.Time = entry, now
	return r.write(dir)
}

// NoteStop records the state of the store at a clean stop, with the last entry of its log. It reads
// the whole database.
func NoteStop(ctx context.Context, dir string, entry uint64, now time.Time) error {
	var stopped *Stopped
	err := durable.Write(sumsFile(dir), 0o600, func(w io.Writer) (err error) {
		out := newSumsWriter(w)
		if stopped, err = takeSums(ctx, dir, out); err != nil {
			return err
		}
		stopped.Sums, err = out.finish()
		return err
	})
	if err != nil {
		return err
	}
	r := &Record{Time: now, Entry: entry, Stopped: stopped}
	return r.write(dir)
}

// takeSums writes the checksums of all versions.
func takeSums(ctx context.Context, dir string, out *sumsWriter) (*Stopped, error) {
	db, _, err := openDatabase(databaseFile(dir))
	if err != nil {
		return nil, err
	}
	defer db.file.Close()
	stopped := &Stopped{Transaction: db.meta.transaction}
	var failed error
	db.visit = func(e entry) {
		if string(e.bucket) != keyBucket {
			stopped.Rest = restSum(stopped.Rest, e)
			return
		}
		v, err := readVersion(e)
		if err == nil {
			stopped.Versions++
			err = out.add(v.sum())
		}
		failed = errors.Join(failed, err)
	}
	db.walk(ctx, func(err error) { failed = errors.Join(failed, err) })
	return stopped, errors.Join(failed, ctx.Err())
}

// restSum adds an entry that is not a version of a key to a checksum.
func restSum(sum uint32, e entry) uint32 {
	for _, part := range [][]byte{e.bucket, e.key, e.value} {
		sum = crc32.Update(sum, castagnoli, part)
		sum = crc32.Update(sum, castagnoli, []byte{0})
	}
	return sum
}

func (r *Record) write(dir string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.WriteFile(recordFile(dir), append(text, '\n'), 0o600)
}

// MissingError is the error if a store existed before and is missing.
type MissingError struct {
	// Dir is the directory of the store, and Seen when it last existed.
	Dir  string
	Seen time.Time
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("the store in %s is missing, and was there at %s; mount the disk that it is on, or restore it from a backup; to start with an empty cluster, remove everything with \"kindred reset\"",
		e.Dir, e.Seen.UTC().Format(time.RFC3339))
}

// Missing returns a [MissingError] if there is a record of a store, but no store.
func Missing(dir string) error {
	record, err := ReadRecord(dir)
	if err != nil || record == nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, "member")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &MissingError{dir, record.Time}
}
